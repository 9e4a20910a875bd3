//! Full and partial databases that follow a stream. Many of these programs are of a hostile reading: what is called a promise is one of
//! the documents.

mod choices;
mod faults;
mod peers;
mod place;
mod updates;

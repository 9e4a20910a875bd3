//! The history beside the naive model: any account, slot and proof at any kept block, after any
//! changes of the chain and of the history's files.

mod backup;
mod crafted;
mod faults;
mod growing;
mod interrupted;
mod limits;
mod long_chain;
mod odd_paths;
mod promises;
mod ranges;
mod states;
mod world;

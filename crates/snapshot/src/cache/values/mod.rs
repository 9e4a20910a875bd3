//! Accounts and slots of the snapshot by their paths, for single reads: one that is read again and
//! again is answered from two or three lines of memory, without index and page.
//!
//! A table of fixed size is made of *buckets*, and a key has one bucket that it may be in. Buckets
//! are chosen by a keyed hash, so that nobody can aim at one; keys are compared whole. That there
//! is no such account or slot is an entry, too.
//!
//! Reading very many keys once leaves alone what is read now and then: [`bucket`] says how.
//!
//! # Which snapshot an entry is of
//!
//! Each merge makes the snapshot of the next *generation*, and views of older ones live on. What
//! the table has is right for the newest generation, and for older ones down to that of the
//! bucket, in which the newest change to it was made:
//!
//! 1. A view of generation *g* uses a bucket only if the bucket's generation is at most *g*.
//! 2. A view of generation *g* puts an entry only if *g* is the table's newest generation, and the
//!    bucket's becomes *g*. That is checked with the bucket locked.
//! 3. A merge makes the newest generation *g* + 1, *then* goes through all that it changed, locks
//!    the bucket of each, and replaces the entry: the bucket's generation becomes *g* + 1. Where
//!    all slots of an account were cleared, it goes through all buckets and removes them. Only
//!    then there are views of generation *g* + 1.
//!
//! A late reader can't put back what a merge has replaced: if it locks the bucket before the merge
//! does, the merge finds what it put; if it does so later, it sees the new generation, by the
//! order of the bucket's lock, and puts nothing.
//!
//! Readers never wait: where the lock is taken they find nothing, and put nothing.

mod bucket;
mod table;
#[cfg(all(test, feature = "loom"))]
mod model;
#[cfg(test)]
mod tests;

pub use table::Entries;

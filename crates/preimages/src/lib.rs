//! Preimages: addresses and keys of slots by their hashes.
//!
//! The state has hashes alone, as the trie does. A dump with addresses, or with the keys of slots, needs their
//! preimages. [`Preimages`] keeps them beside the state, in files of its own:
//!
//! ```text
//! genesis, blocks --> memory, sorted --> runs in files, sorted by hash, merged geometrically
//! ```
//!
//! A run has the preimages alone, 20 bytes for an address and 32 for a slot's key, in the order of their
//! hashes, which are computed again when they are read. A look-up reads one page of each run until one has the hash.
//! A walk over the accounts of a state in its order reads each page once: see [`PreimagesLookup`].
//!
//! A preimage is valid on every branch, so none is ever taken back. Duplicates are dropped when runs are merged. The
//! state never needs preimages: without them a dump has hashes.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod error;
mod kind;
mod page;
mod run;
mod list;
mod files;
mod merge;
mod seen;
mod lookup;
mod set;
mod backup;
#[cfg(test)]
mod tests;

pub use backup::copy_preimages;
pub use error::PreimagesError;
pub use lookup::PreimagesLookup;
pub use set::{Preimages, PreimagesOptions, PreimagesStats};

/// Number of the format of each kind of file that this version writes, by the name of the kind.
pub const FORMATS: [(&str, u32); 2] = [
    ("preimages list", list::FORMAT),
    ("preimages runs", run::FORMAT),
];

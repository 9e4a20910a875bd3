//! States that have no layer in memory: restoring them from the log, and proofs of any state.

pub(crate) mod restore;
pub(crate) mod trie;
pub(crate) mod proof;
pub(crate) mod uppers;

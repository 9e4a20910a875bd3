//! The partial trie against models: updates, commitments, proofs, witnesses and their forgeries.

mod common;

mod all_subsets;
mod building;
mod differential;
mod entries;
mod entry_proofs;
mod hostile;
mod layered;
mod layered_entries;
mod layered_entry_forgeries;
mod proofs;
mod range_proofs;
mod spread;
mod trie_tests;
mod versions;
mod witness;

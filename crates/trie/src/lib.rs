//! The partial trie: Ethereum-exact commitments, proofs, witnesses and their verifiers.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod apply;
mod arena;
mod crown;
mod encode;
mod graft;
mod hash;
mod node_ref;
mod partial;
mod rlp;

pub use apply::{Missing, NoResolve, Resolve, TrieError, UpdateError};
pub use arena::Link;
pub use crown::{CrownError, SHARD_NIBBLES, SHARDS, crown};
pub use graft::LeafValue;
pub use hash::commit;
pub use node_ref::{EMPTY_ROOT, NodeKind, NodeRef, Place, Stub};
pub use partial::{Lookup, NodeView, PartialTrie};
pub use rlp::{encode_branch, encode_extension, encode_leaf};

//! The index of a snapshot: the upper part of the state trie, down to blinded nodes that name leaf
//! pages. It is held in memory or, where memory is too small, its lower levels are on disk:
//!
//! ```text
//!   top       always in memory                    (branch)
//!                                                /   |    \
//!   parts     in the checkpoint's file,     (part) (part) (part)    up to PART_BYTES_MAX each
//!             and a cache                    / \    / \    / \
//!   pages     in segments                   [] []  [] []  [] []
//! ```
//!
//! In the second case a cold look-up takes one read for the part and one for the page. A checkpoint
//! either contains the whole index, divided into parts, so that a database opens with any amount of
//! memory; or, while the index fits into memory, only the changes since the previous checkpoint.
//!
//! Merges and checks, which walk whole shards, load a shard with one read and join all parts to its
//! top ([`Index::whole`]). Only a few shards are in memory at a time then. A merge joins only the
//! parts that it changes ([`Index::opened`]), and copies the bytes of the others.

mod section;
mod files;
mod shard;
mod parts;
mod lookup;
mod read;
mod write;

pub use files::IndexChain;
pub(crate) use lookup::PartInMemory;
pub use lookup::{HeldParts, Index, IndexLookup, TrieRef};
pub use parts::PartCache;
pub(crate) use read::read_index;
pub use read::{LoadedIndex, StoredIndex};
pub use section::{damaged_section, parse_section};
pub(crate) use shard::{PartRef, without_cached_refs};
pub use write::{IndexWriter, TouchedNodes, WrittenIndex};

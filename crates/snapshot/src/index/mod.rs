//! The index of a snapshot: the upper part of the state trie, down to blinded nodes that name leaf
//! pages. Its lower levels are in memory, in encoded blocks, or, where memory is too small, on disk:
//!
//! ```text
//!   top       always in memory                    (branch)
//!                                                /   |    \
//!   blocks    in memory, or                 (block) (block) (block)   blocks below blocks (block.rs)
//!   parts     in the checkpoint's file,     (part)  (part)  (part)    up to PART_BYTES_MAX each
//!             and a cache                    / \     / \     / \
//!   pages     in segments                   [] []   [] []   [] []
//! ```
//!
//! In the second case a cold look-up takes one read for the part and one for the page. A checkpoint
//! either contains the whole index, divided into parts, so that a database opens with any amount of
//! memory; or, while the index fits into memory, only the changes since the previous checkpoint.
//!
//! A merge joins only the blocks or parts that it changes to the top of a shard ([`Index::opened`]).
//! The other blocks are shared by the old index and the new one; of other parts it copies the bytes.
//! Checks, which walk whole shards, join all of them ([`Index::whole`]), a few shards at a time.

mod section;
mod files;
mod part_ref;
mod block;
mod shard;
mod openings;
mod blocks;
mod parts;
mod lookup;
mod read;
mod write;
#[cfg(test)]
mod tests;

pub use files::IndexChain;
pub use lookup::{HeldParts, Index, IndexLookup, OpenedShard, TrieRef};
pub(crate) use lookup::{PartInMemory, Unopened};
pub(crate) use part_ref::PartRef;
pub use parts::PartCache;
pub(crate) use read::read_index;
pub use read::{LoadedIndex, StoredIndex};
pub use section::{damaged_section, parse_section};
pub(crate) use shard::without_cached_refs;
pub use write::{IndexWriter, TouchedNodes, WrittenIndex};

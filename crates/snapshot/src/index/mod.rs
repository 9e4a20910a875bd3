//! The index of a snapshot: the upper part of the state trie, down to blinded nodes that name leaf
//! pages. Its lower levels are in memory, in encoded blocks, or, where memory is too small, on disk:
//!
//! ```text
//!   top       always in memory                    (branch)
//!                                                /   |    \
//!   blocks    in memory, or                 (block) (block) (block)   blocks below blocks (block.rs)
//!   parts     on disk, and in a cache      (part)  (part)  (part)    up to PART_BYTES_MAX each
//!                                            / \     / \     / \
//!   pages     in segments                   [] []   [] []   [] []
//! ```
//!
//! In the second case a cold look-up takes one read for the part and one for the page. Checkpoints have an index in one of
//! three forms:
//!
//! | form | when | parts |
//! |---|---|---|
//! | complete | it fits into memory | in the checkpoint, so that a database opens with any amount of memory |
//! | changes | it fits, and they take less than a complete one | those of the checkpoint that they are on |
//! | tops | it does not fit | in the segments, beside the pages |
//!
//! A merge joins only the blocks or parts that it changes to the top of a shard ([`Index::opened`]).
//! The other blocks and parts are shared by the old index and the new one. Parts in the segments are appended, retired
//! and moved as pages are. Those of a complete checkpoint that did not fit when it was opened go to the segments with
//! the first merge. Checks, which walk whole shards, join all of them ([`Index::whole`]), a few shards at a time.

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
pub(crate) use lookup::{Opened, PartInMemory};
pub(crate) use openings::Turn;
pub(crate) use part_ref::PartRef;
pub use parts::{LostPart, PartCache};
pub(crate) use read::read_index;
pub use read::{LoadedIndex, SegmentIndex, StoredIndex};
pub use section::{damaged_section, parse_section};
pub(crate) use shard::without_cached_refs;
pub use write::{IndexWriter, TouchedNodes, WrittenIndex};

//! The index of a snapshot: the upper part of the state trie, whose stubs name pages. It is in
//! memory, or, where that is too small for it, its lower levels are on disk:
//!
//! ```text
//!   top       always in memory                    (branch)
//!                                                /   |    \
//!   parts     in the checkpoint's file,     (part) (part) (part)    up to PART_BYTES_MAX each
//!             and a cache                    / \    / \    / \
//!   pages     in segments                   [] []  [] []  [] []
//! ```
//!
//! A look-up then takes one read for the part besides that for the page. A checkpoint holds the
//! index in parts, so that a database opens with whatever memory there is; or, as long as it is in
//! memory, only what has changed in it since the checkpoint before.
//!
//! What goes through a whole shard gets it with all parts joined to its top, by one read: a few
//! shards are in memory at a time then ([`Index::whole`]).

mod section;
mod files;
mod shard;
mod parts;
mod lookup;
mod read;
mod write;

pub use files::IndexFiles;
pub use lookup::{Found, Held, Index, TrieRef};
pub use parts::PartCache;
pub(crate) use read::read_index;
pub use read::{FoundIndex, IndexOnDisk};
pub use section::{damaged_section, parse_section};
pub(crate) use shard::without_cached_refs;
pub use write::{IndexWriter, WrittenIndex};

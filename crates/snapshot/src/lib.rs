//! The snapshot: the state at one block, on disk, as an index over leaf pages. This crate reads
//! it, and merges changes into it, which makes the next snapshot.
//!
//! The layers of newer blocks above a snapshot, commits and the block log are in `cambium-state`.
//! A checkpoint's data for them is an [`AboveSnapshot`].
//!
//! Modules stand in the order in which they build on each other:
//!
//! | module | responsibility |
//! |---|---|
//! | `base` | errors, counters, thread pools, the memory budget, mapping between tries and pages |
//! | `resident` | which pages are in memory besides those in the cache |
//! | `pages` | leaf pages and the page cache |
//! | `dirty` | one shard of the dirty trie above the snapshot, with the pages that it has expanded |
//! | `index` | the upper part of the state trie, in memory or on disk |
//! | `cache` | value cache (accounts and slots), code cache |
//! | `read` | the snapshot: single reads and batches |
//! | `merge` | writes dirty tries to pages, and makes the next index |
//! | `reclaim` | decides when a segment can be removed |
//! | `checkpoint` | makes a snapshot durable, and reads it back |
//! | `load` | builds an initial state of any size |
//! | `rebuild` | rebuilds the index from the pages |
//! | `check` | reads and hashes everything again |

#![warn(clippy::missing_errors_doc)]

mod base;
mod resident;
mod pages;
mod dirty;
mod index;
mod cache;
mod read;
mod merge;
mod reclaim;
pub mod checkpoint;
mod load;
mod rebuild;
mod check;

pub use base::{
    budget::{
        Budget, IndexMemory, MemoryInUse, code_cache_bytes_max, pinned_bytes_max,
        restored_bytes_max, restored_bytes_reserved, value_cache_bytes_max,
    },
    counters::{Counter, CounterValues, Counters},
    error::{StateError, update_error},
    hashing::{hash_tries, hash_tries_on},
    histogram::{Histogram, Latency},
    kept_storage::{KeptStorage, storage_root_of},
    key::{EntryKey, Key, MergedChange},
    layout::{
        addr_of_place, addr_of_stub, decode_digest, decode_digests, decode_leaf, is_under, place,
        shard_of, shard_prefix, subtrie_of,
    },
    pool,
};
pub use cache::{
    codes::{CodeCache, bytecode},
    values::ValueCache,
};
pub use check::{CheckProgress, CheckReport, check_codes, check_state};
pub use checkpoint::{AboveSnapshot, CheckpointState};
pub use dirty::{DirtyShard, HeldPages};
pub use index::{
    HeldParts, Index, IndexChain, IndexLookup, IndexWriter, LoadedIndex, LostPart, OpenedShard,
    PartCache, SegmentIndex, StoredIndex, TouchedNodes, TrieRef, WrittenIndex, damaged_section,
    parse_section,
};
pub use load::{LeafBuckets, LoadProgress, RootLoader, remove_spilled, root_of_slots};
pub use merge::{
    Cleaning, Merged, MergedShard, NamedPage, NamedPages, emptiest, merge, places,
    split_above_bytes,
};
pub use pages::{
    PagePin, Pages, PlacedPage, PrefetchedPages, RETRY_PAUSES, ReadCause, retry_transient,
};
pub use read::{
    ahead::AheadReader,
    batch::{CHUNK_KEYS, PORTION_FOUND_KEYS_MIN, PORTION_KEYS_MIN},
    explore::{MapPage, ReadStep},
    snapshot::{Slots, Snapshot, TopLeaves},
};
pub use rebuild::{rebuild, restore_parts};
pub use reclaim::Reclaimer;

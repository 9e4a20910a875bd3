//! The state at one block, on disk: an index over leaf pages, how it is read, and how a merge
//! makes the next one.
//!
//! Modules stand in the order in which they build on each other:
//!
//! | module | what it has |
//! |---|---|
//! | `base` | errors, counters, threads, shares of memory, where things are in tries and pages |
//! | `pages` | leaf pages, and those of them that are in memory |
//! | `dirty` | one shard of the tries above the snapshot, with the pages it has taken apart |
//! | `index` | the upper part of the state trie, in memory or on disk |
//! | `cache` | values of accounts and slots, and codes as they run |
//! | `read` | the snapshot: single reads and batches |
//! | `merge` | tries become pages, and an index over them |
//! | `reclaim` | when a segment may go |
//! | `checkpoint` | what makes a snapshot durable |
//! | `load` | a first state, of any size |
//! | `rebuild` | the index, made again from the pages |
//! | `check` | everything read and hashed again |

mod base;
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
    budget::{Budget, Taken, code_bytes, entry_bytes, past_bytes},
    counters::{Counter, CounterValues, Counters},
    error::{StateError, update_error},
    hashing::{hash, hash_on},
    histogram::{Histogram, Latency},
    key::{Key, Written},
    layout::{
        addr_of, decode_leaf, digests_of, is_under, node_of, page_addr, place, shard_of,
        shard_prefix, subtrie_of,
    },
    pool,
};
pub use cache::{
    codes::{CodeCache, bytecode},
    values::Entries,
};
pub use check::{CheckProgress, CheckReport, check_codes, check_state};
pub use checkpoint::{AboveSnapshot, CheckpointState};
pub use dirty::{DirtyShard, HeldPages};
pub use index::{
    Found, FoundIndex, Held, Index, IndexFiles, IndexOnDisk, IndexWriter, PartCache, TrieRef,
    WrittenIndex, damaged_section, parse_section,
};
pub use load::{Buckets, LoadProgress, RootLoader, remove_spilled};
pub use merge::{Cleaning, Merged, MergedShard, first_page, merge, places};
pub use pages::{Pages, PagesAhead, PlacedPage, RETRY_AFTER, ReadFor, retried};
pub use read::{
    batch::{CHUNK_KEYS, PARALLEL_KEYS_MIN},
    snapshot::Snapshot,
};
pub use rebuild::rebuild;
pub use reclaim::Reclaim;

//! Counts that say why: kept always, since a relaxed add costs about a nanosecond.

use std::sync::atomic::{AtomicU64, Ordering};

/// One count.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, by: u64) {
        if by > 0 {
            self.0.fetch_add(by, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)+ }

        /// What the engine did since it was opened. All are totals; bytes are bytes, times are
        /// nanoseconds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CounterValues { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Counters {
            pub(crate) fn values(&self) -> CounterValues {
                CounterValues { $($name: self.$name.get(),)+ }
            }
        }

        impl CounterValues {
            /// The counts with their names, in the order of declaration.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counters! {
    /// Accounts and slots asked of views.
    reads,
    /// Reads answered by a layer above the snapshot.
    overlay_hits,
    /// Page lookups answered by a page that was in the cache.
    page_cache_hits,
    /// Pages read from segments to answer a read.
    page_reads_value,
    /// Pages read from segments to update or walk the trie.
    page_reads_trie,
    /// Pages read from segments to merge what is beside a change.
    page_reads_merge,
    /// Bytes of pages read.
    page_bytes_read,
    /// Keccak-256 hashes of trie nodes.
    node_hashes,
    /// Roots computed.
    roots,
    /// Blocks made durable.
    blocks_committed,
    /// Bytes appended to the block log.
    log_bytes_written,
    /// Syncs of the block log.
    log_syncs,
    /// Merges into the snapshot.
    merges,
    /// Pages written by merges.
    pages_written,
    /// Bytes of pages written by merges.
    page_bytes_written,
    /// Pages that merges made unreachable.
    pages_dead,
    /// Bytes of checkpoints written.
    checkpoint_bytes_written,
    /// Time spent on reverts: reading what a block is about to overwrite.
    revert_ns,
    /// Time spent applying changes to the trie, added up over threads.
    apply_ns,
    /// Time spent hashing the trie, added up over threads.
    hash_ns,
    /// Time spent appending to and syncing the block log.
    commit_ns,
    /// Time commits waited for a merge to finish.
    merge_wait_ns,
    /// Time spent merging, in the background.
    merge_ns,
}

//! Counts that say why: kept always, since a relaxed add costs about a nanosecond.

use crate::base::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};

/// One count.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    /// Adds to the count.
    pub fn add(&self, by: u64) {
        if by > 0 {
            self.0.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    (
        counted { $($(#[doc = $doc:literal])+ $name:ident,)+ }
        measured { $($(#[doc = $measured_doc:literal])+ $measured:ident,)+ }
    ) => {
        /// What an open database counts: [`CounterValues`] says what each is of.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Counter,)+
            /// How long commits took.
            pub commit_latency: Histogram,
            /// How long those blocks waited to be sealed that waited at all.
            pub seal_waits: Histogram,
        }

        /// What the engine did since it was opened. All are totals; bytes are bytes, times are
        /// nanoseconds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CounterValues {
            $($(#[doc = $doc])+ pub $name: u64,)+
            $($(#[doc = $measured_doc])+ pub $measured: u64,)+
        }

        impl Counters {
            /// The counts. What is measured elsewhere is 0.
            pub fn values(&self) -> CounterValues {
                CounterValues {
                    $($name: self.$name.get(),)+
                    $($measured: 0,)+
                }
            }
        }

        impl CounterValues {
            /// The counts with their names, in the order of declaration.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($name), self.$name),)+
                    $((stringify!($measured), self.$measured),)+
                ]
            }
        }
    };
}

counters! {
    counted {
        /// Accounts and slots asked of views.
        reads,
        /// Reads answered by a layer above the snapshot.
        overlay_hits,
        /// Single reads below the layers answered by the cache of entries.
        entry_cache_hits,
        /// Single reads below the layers not answered by it.
        entry_cache_misses,
        /// Contract codes that were in the cache of codes.
        code_cache_hits,
        /// Contract codes read from their file.
        code_cache_misses,
        /// Page lookups answered by a page that was in the cache.
        page_cache_hits,
        /// Page lookups not answered by the cache.
        page_cache_misses,
        /// Pages read to answer a read of an account or a slot.
        page_reads_value,
        /// Pages read to update the trie.
        page_reads_trie,
        /// Pages read by merges: neighbours of what changed, and what is moved.
        page_reads_merge,
        /// Pages read for proofs and witnesses.
        page_reads_proof,
        /// Pages read by checks.
        page_reads_check,
        /// Bytes of pages read, whatever for.
        page_bytes_read,
        /// Parts of the index read, or all of a shard at once, where the index is larger than its
        /// share of the memory.
        index_reads,
        /// Bytes of these.
        index_bytes_read,
        /// Nodes of the trie hashed, by roots, merges and checks.
        node_hashes,
        /// Roots computed.
        roots,
        /// Blocks made durable.
        blocks_committed,
        /// Syncs of the block log.
        log_syncs,
        /// Merges into the snapshot.
        merges,
        /// Parts of the state that merges are done with; a merge has 256.
        merge_parts,
        /// Pages written with changed content, by merges and by the loader.
        pages_written,
        /// Pages that became too large, and became several.
        pages_split,
        /// Pages that several became, which were small.
        pages_joined,
        /// Pages moved as they were, out of segments with much dead space.
        pages_moved,
        /// Bytes of these.
        page_bytes_moved,
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
        /// Of the pages read for merges those that came with another, in one device read.
        pages_read_together,
        /// Time blocks waited to be sealed, since they came faster than they can be merged.
        seal_wait_ns,
        /// Time spent merging, in the background.
        merge_ns,
    }
    measured {
        /// Of the pages read those that were not on the disk yet: no device read each.
        page_reads_buffered,
        /// Pages that could not be read, since they are damaged, or the disk failed again and
        /// again.
        pages_unreadable,
        /// Entries of the block index read from the disk.
        block_index_reads,
        /// Bytes written to segments: pages changed or moved, and zeros that fill blocks.
        page_bytes_written,
        /// Bytes written to the block log: records, and the zeros by which its files are extended.
        log_bytes_written,
        /// Bytes written to the block index.
        block_index_bytes_written,
        /// Bytes written to the file of codes.
        code_bytes_written,
        /// Reads of the disk, whatever for, since the disk was made.
        disk_reads,
        /// Bytes that these took from the system.
        disk_bytes_read,
        /// Batches in which reads were made.
        disk_batches,
        /// Writes to the disk.
        disk_writes,
        /// Bytes in these.
        disk_bytes_written,
        /// Syncs of files and of directories.
        disk_syncs,
    }
}

impl CounterValues {
    /// Pages that took a device read, whatever for.
    pub const fn page_reads(&self) -> u64 {
        let all = self.page_reads_value
            + self.page_reads_trie
            + self.page_reads_merge
            + self.page_reads_proof
            + self.page_reads_check;
        all.saturating_sub(self.page_reads_buffered + self.pages_read_together)
    }

    /// Bytes written, whatever for. Making a database writes its manifest, and what the loader
    /// puts aside, besides.
    pub const fn bytes_written(&self) -> u64 {
        self.log_bytes_written
            + self.page_bytes_written
            + self.checkpoint_bytes_written
            + self.block_index_bytes_written
            + self.code_bytes_written
    }
}

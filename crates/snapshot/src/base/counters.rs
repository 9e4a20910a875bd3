//! Counters of the engine's work, by cause. They are always on: a relaxed add takes about a
//! nanosecond.

use crate::base::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that any number of threads may add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `by` to the count.
    #[inline]
    pub fn add(&self, by: u64) {
        if by > 0 {
            self.0.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    (
        counted { $($(#[doc = $doc:literal])+ $name:ident,)+ }
        measured { $($(#[doc = $measured_doc:literal])+ $measured:ident,)+ }
    ) => {
        /// The counters of an open database. [`CounterValues`] is a copy of their values.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Counter,)+
            /// Duration of commits.
            pub commit_latency: Histogram,
            /// Time that blocks waited to be sealed. Blocks that did not wait are left out.
            pub seal_waits: Histogram,
        }

        /// Totals of the engine's work since the database was opened. Names with `bytes` count
        /// bytes, names that end in `_ns` are nanoseconds, and all others count events.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CounterValues {
            $($(#[doc = $doc])+ pub $name: u64,)+
            $($(#[doc = $measured_doc])+ pub $measured: u64,)+
        }

        impl Counters {
            /// Current values. Those that the segments, the block log, the code file and the disk
            /// count themselves are 0: the caller fills them in.
            pub fn values(&self) -> CounterValues {
                CounterValues {
                    $($name: self.$name.get(),)+
                    $($measured: 0,)+
                }
            }
        }

        impl CounterValues {
            /// Description of each counter, in the order of [`CounterValues::named`].
            pub const fn help() -> &'static [&'static str] {
                &[$(concat!($($doc,)+),)+ $(concat!($($measured_doc,)+),)+]
            }

            /// All counters with their names, in the order of declaration.
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
        /// Accounts and slots read through views.
        reads,
        /// Reads of accounts and slots answered by a layer above the snapshot.
        overlay_hits,
        /// Reads of accounts and slots below the layers that the value cache answered.
        value_cache_hits,
        /// Reads of accounts and slots below the layers that the value cache did not answer.
        value_cache_misses,
        /// Contract codes found in the code cache.
        code_cache_hits,
        /// Contract codes read from the code file.
        code_cache_misses,
        /// Page lookups that the page cache answered.
        page_cache_hits,
        /// Page lookups that the page cache did not answer.
        page_cache_misses,
        /// Pages read to answer reads of accounts and slots.
        page_reads_value,
        /// Pages read ahead of execution, because blocks that come next are likely to need them.
        page_reads_ahead,
        /// Pages read ahead that were used.
        pages_ahead_used,
        /// Pages read ahead that were dropped before anything used them.
        pages_ahead_wasted,
        /// Times that the read of a single key waited for a page: for a device read of its own, or
        /// for one ahead of it that was still under way.
        page_waits,
        /// Time that reads of single keys waited for pages, summed over threads, in nanoseconds.
        page_wait_ns,
        /// Pages read to update tries.
        page_reads_trie,
        /// Pages read by merges: pages that changed, their neighbours, and pages that are moved and not cached.
        page_reads_merge,
        /// Pages read for proofs and witnesses.
        page_reads_proof,
        /// Pages read by checks.
        page_reads_check,
        /// Bytes of pages read, for all causes.
        page_bytes_read,
        /// Device reads of the index, each of one part or, from a checkpoint, of a whole shard. 0 as long as the index
        /// is in memory.
        index_reads,
        /// Bytes read from the index on disk.
        index_bytes_read,
        /// Parts of the index on disk that merges have opened.
        index_parts_opened,
        /// Parts of the index on disk that merges have written: changed ones, and those moved out of segments with much dead
        /// space.
        index_parts_written,
        /// Bytes of these parts. They are in `page_bytes_written` too.
        index_bytes_written,
        /// Blocks of an index in memory that merges have decoded, to change them or to move pages that they name.
        index_blocks_opened,
        /// Trie nodes hashed, by state roots, merges and checks.
        node_hashes,
        /// State roots computed.
        roots,
        /// Roots of the states at which intervals of the `layered` commitment end.
        snapshot_roots,
        /// Blocks whose root waited for the root of such a state.
        snapshot_root_waits,
        /// Time that their roots waited, in nanoseconds.
        snapshot_root_wait_ns,
        /// Time spent computing the roots of such states, in the background, in nanoseconds.
        snapshot_root_ns,
        /// Blocks made durable.
        blocks_committed,
        /// Records with references of changed subtries in the block log.
        reference_records,
        /// Changed subtries that an opening took from references in the block log: the first root read no pages of them.
        subtries_restored,
        /// Openings at which the references in the block log were not used, because they made another root.
        references_refused,
        /// Time from the first root after an opening until tries of the head were there, in nanoseconds.
        catch_up_ns,
        /// Syncs of the block log.
        log_syncs,
        /// Merges into the snapshot.
        merges,
        /// Shards that merges have finished. A merge has 256 shards.
        merge_parts,
        /// Pages written with changed content, by merges and by the loader.
        pages_written,
        /// Pages that merges split because they became too large.
        pages_split,
        /// Pages that merges wrote in place of several small ones.
        pages_joined,
        /// Pages moved unchanged out of segments with much dead space.
        pages_moved,
        /// Bytes of pages moved unchanged out of segments with much dead space.
        page_bytes_moved,
        /// Long values that blocks have moved out of segments with much dead space.
        values_moved,
        /// Bytes of long values that blocks have moved out of segments with much dead space.
        value_bytes_moved,
        /// Pages that merges made unreachable from the newest snapshot.
        pages_dead,
        /// Bytes written to checkpoints.
        checkpoint_bytes_written,
        /// Time spent making reverts, which takes reading the values that a block overwrites, in
        /// nanoseconds.
        revert_ns,
        /// Time spent applying changes to tries, summed over threads, in nanoseconds.
        apply_ns,
        /// Time spent hashing tries, summed over threads, in nanoseconds.
        hash_ns,
        /// Time spent appending to the block log and syncing it, in nanoseconds.
        commit_ns,
        /// Time that blocks waited to be sealed because merges were behind, in nanoseconds.
        seal_wait_ns,
        /// Time spent merging in the background, in nanoseconds.
        merge_ns,
    }
    measured {
        /// Page reads answered from a segment's write buffer, without a device read.
        page_reads_buffered,
        /// Pages that were read by the device read of another page: they are neighbours in a segment.
        pages_read_together,
        /// Pages that can't be read, because they are damaged or the disk failed repeatedly. This
        /// is a current value, not a total.
        pages_unreadable,
        /// Entries of the block index read from disk.
        block_index_reads,
        /// Bytes written to segments: changed and moved pages, parts of the index on disk, and the zeros that fill blocks.
        page_bytes_written,
        /// Bytes written to the block log: records, and the zeros that extend its files.
        log_bytes_written,
        /// Bytes written to the block index.
        block_index_bytes_written,
        /// Bytes written to the code file.
        code_bytes_written,
        /// Bytes written to value segments: values that are stored apart from their leaves.
        value_bytes_written,
        /// Disk reads for all causes, single or in a batch, since the disk was opened.
        disk_reads,
        /// Bytes read from the disk. Direct reads count whole blocks.
        disk_bytes_read,
        /// Batches of disk reads.
        disk_batches,
        /// Disk writes.
        disk_writes,
        /// Bytes written to the disk.
        disk_bytes_written,
        /// Syncs of files and directories.
        disk_syncs,
    }
}

impl CounterValues {
    /// Device reads of pages, for all causes. Reads from a write buffer do not count, and pages
    /// that were read together count as one read.
    pub const fn page_reads(&self) -> u64 {
        let all = self.page_reads_value
            + self.page_reads_ahead
            + self.page_reads_trie
            + self.page_reads_merge
            + self.page_reads_proof
            + self.page_reads_check;
        all.saturating_sub(self.page_reads_buffered + self.pages_read_together)
    }

    /// Bytes written, for all causes: log, pages, checkpoints, block index, codes and values. The manifest
    /// and the loader's spill files are not included.
    pub const fn bytes_written(&self) -> u64 {
        self.log_bytes_written
            + self.page_bytes_written
            + self.checkpoint_bytes_written
            + self.block_index_bytes_written
            + self.code_bytes_written
            + self.value_bytes_written
    }
}

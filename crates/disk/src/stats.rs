//! What a disk did, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a disk did since it was made. Reads and writes that failed count, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Reads asked for, alone or in a batch.
    pub reads: u64,
    /// Bytes that these took from the system: whole blocks where access is direct.
    pub bytes_read: u64,
    /// Batches of reads.
    pub batches: u64,
    /// Writes asked for.
    pub writes: u64,
    /// Bytes in them.
    pub bytes_written: u64,
    /// Syncs of files and of directories.
    pub syncs: u64,
}

/// The counters behind [`DiskStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    batches: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    /// Counts reads of so many bytes in all.
    pub(crate) fn add_reads(&self, reads: u64, bytes: u64) {
        self.reads.fetch_add(reads, Relaxed);
        self.bytes_read.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add_batch(&self) {
        self.batches.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Relaxed);
        self.bytes_written.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn add_sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> DiskStats {
        DiskStats {
            reads: self.reads.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            batches: self.batches.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
        }
    }
}

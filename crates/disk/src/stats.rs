//! Counters of disk operations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of a disk since its creation. Failed reads and writes count, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Number of reads, single, in batches or through queues.
    pub reads: u64,
    /// Bytes read from the system: whole blocks if access is direct.
    pub bytes_read: u64,
    /// Number of batches of reads.
    pub batches: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Number of syncs of files and directories.
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
    /// Counts reads with their total number of bytes.
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

//! Counters of an index.

use std::sync::atomic::{AtomicU64, Ordering};

/// Reads and writes of an index so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    index_reads: AtomicU64,
    data_reads: AtomicU64,
    written: AtomicU64,
}

impl Counters {
    pub(crate) fn count_index_read(&self) {
        self.index_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_data_read(&self) {
        self.data_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn index_reads(&self) -> u64 {
        self.index_reads.load(Ordering::Relaxed)
    }

    pub(crate) fn data_reads(&self) -> u64 {
        self.data_reads.load(Ordering::Relaxed)
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

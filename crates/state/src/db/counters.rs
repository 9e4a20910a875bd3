//! Counters and latencies of an open database.

use crate::db::handle::Db;
use cambium_snapshot::{CounterValues, Latency};

impl Db {
    /// Counts of the engine's work since the database was opened.
    pub fn counters(&self) -> CounterValues {
        let inner = &self.inner;
        let values = inner.store.values.as_ref();
        let disk = inner.store.disk.stats();
        CounterValues {
            page_reads_buffered: inner.store.pages.segments.reads_buffered(),
            pages_read_together: inner.store.pages.segments.read_together(),
            pages_unreadable: inner.store.pages.unreadable() as u64,
            block_index_reads: inner.journal.blocks.index().reads(),
            page_bytes_written: inner.store.pages.segments.bytes_written(),
            log_bytes_written: inner.journal.log.bytes_written(),
            block_index_bytes_written: inner.journal.blocks.index().bytes_written(),
            code_bytes_written: inner.store.codes.bytes_written(),
            value_bytes_written: values.map_or(0, |values| values.segments.bytes_written()),
            disk_reads: disk.reads,
            disk_bytes_read: disk.bytes_read,
            disk_batches: disk.batches,
            disk_writes: disk.writes,
            disk_bytes_written: disk.bytes_written,
            disk_syncs: disk.syncs,
            ..inner.store.counters.values()
        }
    }

    /// How long blocks waited to be sealed since the database was opened. Blocks that did not wait
    /// are not counted. Blocks wait when they arrive faster than they can be merged.
    pub fn seal_waits(&self) -> Latency {
        self.inner.store.counters.seal_waits.latency()
    }

    /// How long commits took since the database was opened, including the time that they waited.
    pub fn commit_latency(&self) -> Latency {
        self.inner.store.counters.commit_latency.latency()
    }
}

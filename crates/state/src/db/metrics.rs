//! The figures of an open database, for systems that collect them.

use crate::db::{handle::Db, stats::Stats};
use cambium_primitives::BlockId;
use cambium_snapshot::{CounterValues, Latency, StateError};

/// Receives the figures of a database, each under a name of its own: see [`Db::report`].
///
/// A page for Prometheus:
///
/// ```
/// use cambium_state::{Db, Latency, Metrics, StateError};
/// use std::fmt::Write;
///
/// struct Page(String);
///
/// impl Page {
///     fn family(&mut self, name: &str, kind: &str, help: &str) {
///         let _ = writeln!(self.0, "# HELP cambium_{name} {help}\n# TYPE cambium_{name} {kind}");
///     }
/// }
///
/// impl Metrics for Page {
///     fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
///         self.family(&format!("{name}_total"), "counter", help);
///         let _ = writeln!(self.0, "cambium_{name}_total {value}");
///     }
///
///     fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
///         self.family(name, "gauge", help);
///         let _ = writeln!(self.0, "cambium_{name} {value}");
///     }
///
///     fn latency(&mut self, name: &'static str, help: &'static str, latency: &Latency) {
///         self.family(&format!("{name}_ns"), "summary", help);
///         let Latency { count, p50_ns, p99_ns, p999_ns, max_ns } = *latency;
///         for (quantile, ns) in [("0.5", p50_ns), ("0.99", p99_ns), ("0.999", p999_ns), ("1", max_ns)] {
///             let _ = writeln!(self.0, "cambium_{name}_ns{{quantile=\"{quantile}\"}} {ns}");
///         }
///         let _ = writeln!(self.0, "cambium_{name}_ns_count {count}");
///     }
/// }
///
/// fn page(db: &Db) -> Result<String, StateError> {
///     let mut page = Page(String::new());
///     db.report(&mut page)?;
///     Ok(page.0)
/// }
/// ```
///
/// For the crate `metrics`, `counter` is `metrics::counter!(name).absolute(value)`, and `gauge` is
/// `metrics::gauge!(name).set(value as f64)`.
pub trait Metrics {
    /// A total since the database was opened.
    fn counter(&mut self, name: &'static str, help: &'static str, value: u64);

    /// A current value.
    fn gauge(&mut self, name: &'static str, help: &'static str, value: u64);

    /// The distribution of a duration since the database was opened.
    fn latency(&mut self, name: &'static str, help: &'static str, latency: &Latency);
}

/// Name of the one counter that is a current value.
const UNREADABLE: &str = "pages_unreadable";

impl Db {
    /// Passes all figures to `metrics`: [`Db::counters`], [`Db::stats`], [`Db::commit_latency`] and
    /// [`Db::seal_waits`]. Names with `bytes` are bytes, those that end in `_ns` nanoseconds, those that end in
    /// `_block` block numbers, and all others count. The figures are counted in any case, so a database without a
    /// collector loses none. A call takes microseconds, and reads nothing from the disk.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn report(&self, metrics: &mut dyn Metrics) -> Result<(), StateError> {
        let counters = self.counters().named();
        for ((name, value), help) in counters.into_iter().zip(CounterValues::help()) {
            match name {
                UNREADABLE => metrics.gauge(name, help.trim(), value),
                _ => metrics.counter(name, help.trim(), value),
            }
        }
        let finality = self.finality();
        let number = |block: Option<BlockId>| block.map_or(0, |it| it.number);
        let help = "The newest safe block; 0 if there is none.";
        metrics.gauge("safe_block", help, number(finality.safe));
        let help = "The newest finalized block; 0 if there is none.";
        metrics.gauge("finalized_block", help, number(finality.finalized));
        self.stats()?.report(metrics);
        let help = "Duration of commits, including the time that they waited.";
        metrics.latency("commit", help, &self.commit_latency());
        let help = "Time that blocks waited to be sealed, because merges were behind; without those that \
                    did not wait.";
        metrics.latency("seal_wait", help, &self.seal_waits());
        Ok(())
    }
}

impl Stats {
    fn report(&self, metrics: &mut dyn Metrics) {
        // All fields by name, so that a new one is not forgotten.
        let Self {
            head,
            snapshot,
            kept_from,
            layers,
            overlay_bytes,
            delta_bytes,
            index_bytes,
            index_bytes_on_disk,
            pages,
            value_cache_bytes,
            code_cache_bytes,
            page_cache_bytes,
            restored_states,
            pinned_bytes,
            held_snapshots,
            orphan_blocks,
            merging,
            unreadable_pages: _,
            segments,
            segment_bytes,
            segment_live_bytes,
            reader_held_bytes,
            segments_by_live: _,
            codes,
            values,
            disk: _,
        } = self;
        let (merging_bytes, merging_parts) =
            merging.map_or((0, 0), |it| (it.bytes, it.parts_done as usize));
        let blocks = [
            (
                "head_block",
                "The newest block of the canonical chain.",
                head.number,
            ),
            (
                "snapshot_block",
                "The newest block whose state is in pages.",
                snapshot.number,
            ),
            (
                "kept_from_block",
                "The oldest block that can be the head again.",
                *kept_from,
            ),
        ];
        let counts = [
            (
                "layers",
                "Blocks above the snapshot, or above the state being merged.",
                layers,
            ),
            (
                "overlay_bytes",
                "Memory of the values of these blocks.",
                overlay_bytes,
            ),
            (
                "delta_bytes",
                "Memory of the tries of these blocks.",
                delta_bytes,
            ),
            ("index_bytes", "Memory of the index.", index_bytes),
            (
                "value_cache_bytes",
                "Memory of the value cache.",
                value_cache_bytes,
            ),
            (
                "restored_states",
                "Old states that views hold.",
                restored_states,
            ),
            (
                "pinned_bytes",
                "Memory that only views still hold.",
                pinned_bytes,
            ),
            (
                "held_snapshots",
                "Earlier snapshots that views hold.",
                held_snapshots,
            ),
            (
                "orphan_blocks",
                "Blocks of the log that wait for an ancestor whose record was lost.",
                orphan_blocks,
            ),
            (
                "merging_bytes",
                "Memory of the layers being merged; 0 if there is no merge.",
                &merging_bytes,
            ),
            (
                "merging_parts",
                "Shards of the 256 that the merge under way has finished.",
                &merging_parts,
            ),
            ("segments", "Segment files.", segments),
            ("codes", "Contract codes.", codes),
            (
                "value_segments",
                "Segment files of long values.",
                &values.segments,
            ),
        ];
        let counts = counts.map(|(name, help, value)| (name, help, *value as u64));
        let sizes = [
            (
                "index_disk_bytes",
                "Size of the parts of the index that are not in memory.",
                *index_bytes_on_disk,
            ),
            ("pages", "Pages in the index.", *pages),
            (
                "code_cache_bytes",
                "Memory of the code cache.",
                *code_cache_bytes,
            ),
            (
                "page_cache_bytes",
                "Memory of the page cache.",
                *page_cache_bytes,
            ),
            ("segment_bytes", "Size of all segments.", *segment_bytes),
            (
                "segment_live_bytes",
                "Size of the pages in use.",
                *segment_live_bytes,
            ),
            (
                "reader_held_bytes",
                "Size of removed segments that are kept for readers.",
                *reader_held_bytes,
            ),
            (
                "value_segment_bytes",
                "Size of the segments of long values.",
                values.bytes,
            ),
            (
                "value_live_bytes",
                "Size of the long values that the state refers to.",
                values.live_bytes,
            ),
        ];
        for (name, help, value) in blocks.into_iter().chain(counts).chain(sizes) {
            metrics.gauge(name, help, value);
        }
    }
}

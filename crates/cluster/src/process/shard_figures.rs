//! What the process of a shard counts and shows of itself, for collectors.

use super::figures::RecordFigures;
use crate::shard::{ApplyError, ShardStats};
use cambium_metrics::{Count, LabelledMetrics, Tally};
use cambium_snapshot::Histogram;

/// What the process has counted.
pub(super) struct ShardFigures {
    pub(super) records: RecordFigures,
    pub(super) refused: Tally,
    pub(super) fetched: Count,
    pub(super) snapshots: Histogram,
    /// Damage that opening the folder has found.
    journal_damage: u64,
    snapshots_damaged: u64,
}

impl ShardFigures {
    pub(super) fn new(journal_damage: u64, snapshots_damaged: u64) -> Self {
        Self {
            records: RecordFigures::new(),
            refused: Tally::new(&ApplyError::REFUSALS),
            fetched: Count::default(),
            snapshots: Histogram::default(),
            journal_damage,
            snapshots_damaged,
        }
    }

    /// Passes what was counted, but for the records.
    pub(super) fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.latency(
            "shard_snapshot_write",
            "Time in which snapshots were written.",
            &self.snapshots.latency(),
        );
        metrics.counters([
            (
                "shard_snapshots_damaged",
                "Damaged snapshots that were set aside when the folder was opened.",
                self.snapshots_damaged,
            ),
            (
                "shard_blocks_fetched",
                "Blocks that the stream did not have, or not in order, and peers had.",
                self.fetched.get(),
            ),
            (
                "journal_damaged_parts",
                "Damaged parts that were cut out of the journal when the folder was opened.",
                self.journal_damage,
            ),
        ]);
        let help = "Updates that are false, by reason.";
        metrics.tally("shard_updates_refused", help, "reason", &self.refused);
    }
}

/// Passes the state that a shard has, and how it is read.
pub(super) fn report(stats: &ShardStats, metrics: &mut dyn LabelledMetrics) {
    metrics.gauges([
        (
            "shard_newest_block",
            "The highest block of which the shard has the state.",
            stats.newest.number,
        ),
        (
            "shard_newest_timestamp_seconds",
            "Timestamp of that block, in seconds since 1970.",
            stats.newest_timestamp,
        ),
        (
            "shard_oldest_block",
            "The oldest block of which the shard has the state: the newest final one, or that of a snapshot that is written.",
            stats.oldest.number,
        ),
        (
            "shard_versions",
            "Number of blocks of which the shard has the state.",
            stats.versions as u64,
        ),
        (
            "shard_live_bytes",
            "Bytes of all versions and codes, as the limit counts them.",
            stats.live_bytes as u64,
        ),
        (
            "shard_memory_bytes",
            "Bytes of all versions and codes, with memory that was freed and is used again.",
            stats.memory_bytes as u64,
        ),
        ("shard_nodes", "Trie nodes of all versions.", stats.nodes as u64),
        (
            "shard_codes",
            "Contract codes of all versions.",
            stats.codes as u64,
        ),
    ]);
    metrics.counters([
        (
            "shard_updates",
            "Updates applied, or known already, by this state; it starts anew with a state from elsewhere.",
            stats.updates,
        ),
        (
            "shard_reads",
            "Requests that were answered with a node bag.",
            stats.reads,
        ),
        (
            "shard_read_keys",
            "Accounts and slots that these requests asked for.",
            stats.keys,
        ),
        (
            "shard_read_bytes",
            "Bytes of nodes and codes that they were answered with, before they are made compact.",
            stats.bag_bytes,
        ),
    ]);
}

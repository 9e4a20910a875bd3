//! What the process of a builder counts and shows of itself, for collectors.

use crate::{
    builder::{BuildTimings, Built, LeftOut},
    replication::PublisherFigures,
};
use alloy_consensus::Header;
use cambium_metrics::{Count, LabelledMetrics, MetricsHost, Tally};
use cambium_snapshot::Histogram;
use std::{sync::Arc, time::Duration};

/// Submissions that wait, and how many may.
pub(super) struct Room {
    pub(super) submissions: usize,
    pub(super) submissions_max: usize,
    pub(super) bytes: usize,
    pub(super) bytes_max: usize,
}

impl Room {
    pub(super) const fn is_full(&self) -> bool {
        self.submissions >= self.submissions_max || self.bytes >= self.bytes_max
    }
}

/// What a builder has counted, and shows while it builds.
#[derive(Debug)]
pub(super) struct BuilderFigures {
    published: Arc<PublisherFigures>,
    head: Count,
    head_timestamp: Count,
    pub(super) finalized: Count,
    pub(super) unpublished: Count,
    pub(super) kept: Count,
    /// Blocks by which the head is ahead of the shard that is farthest behind.
    pub(super) ahead: Count,
    paused: Count,
    pauses: Count,
    blocks: Count,
    transactions: Count,
    gas: Count,
    revised: Count,
    fetched: Count,
    pub(super) submissions: Tally,
    left_out: Tally,
    pub(super) failures: Tally,
    senders: Histogram,
    revise: Histogram,
    execute: Histogram,
    witness: Histogram,
    finish: Histogram,
}

pub(super) const TAKEN: &str = "taken";
pub(super) const REFUSED: &str = "refused";
pub(super) const BUILD: &str = "build";
pub(super) const PUBLISH: &str = "publish";

impl BuilderFigures {
    pub(super) fn new(published: Arc<PublisherFigures>, head: &Header) -> Self {
        Self {
            published,
            head: Count::new(head.number),
            head_timestamp: Count::new(head.timestamp),
            finalized: Count::new(head.number),
            unpublished: Count::default(),
            kept: Count::default(),
            ahead: Count::default(),
            paused: Count::default(),
            pauses: Count::default(),
            blocks: Count::default(),
            transactions: Count::default(),
            gas: Count::default(),
            revised: Count::default(),
            fetched: Count::default(),
            submissions: Tally::new(&[TAKEN, REFUSED]),
            left_out: Tally::new(&LeftOut::NAMES),
            failures: Tally::new(&[BUILD, PUBLISH]),
            senders: Histogram::default(),
            revise: Histogram::default(),
            execute: Histogram::default(),
            witness: Histogram::default(),
            finish: Histogram::default(),
        }
    }

    pub(super) fn head(&self) -> u64 {
        self.head.get()
    }

    /// Shows whether the builder pauses, and counts that it begins to.
    pub(super) fn pause(&self, pauses: bool) {
        if pauses && self.paused.get() == 0 {
            self.pauses.add(1);
        }
        self.paused.set(pauses.into());
    }

    pub(super) fn built(&self, built: &Built) {
        self.head.set(built.id.number);
        self.head_timestamp.set(built.block.header.timestamp);
        self.blocks.add(1);
        self.transactions
            .add(built.block.body.transactions.len() as u64);
        self.gas.add(built.gas_used);
        self.revised.add(built.revised as u64);
        self.fetched.add(built.fetched as u64);
        for (_, reason) in &built.left_out {
            self.left_out.add(reason.name());
        }
        for (_, histogram, time) in self.parts(&built.timings) {
            histogram.add(time);
        }
    }

    /// The parts of building a block, with their histograms and times.
    fn parts(&self, timings: &BuildTimings) -> [(&'static str, &Histogram, Duration); 5] {
        [
            ("senders", &self.senders, timings.senders),
            ("revise", &self.revise, timings.revise),
            ("execute", &self.execute, timings.execute),
            ("witness", &self.witness, timings.witness),
            ("finish", &self.finish, timings.finish),
        ]
    }

    /// Passes what was counted, and what waits.
    pub(super) fn report(&self, room: &Room, metrics: &mut dyn LabelledMetrics) {
        metrics.gauges([
            (
                "builder_head_block",
                "The block on which the next one is built.",
                self.head.get(),
            ),
            (
                "builder_head_timestamp_seconds",
                "Timestamp of that block, in seconds since 1970.",
                self.head_timestamp.get(),
            ),
            (
                "builder_finalized_block",
                "The newest block that the builder has made final.",
                self.finalized.get(),
            ),
            (
                "builder_waiting_submissions",
                "Submissions that wait for a block.",
                room.submissions as u64,
            ),
            (
                "builder_waiting_submissions_max",
                "Most submissions that may wait. Further ones are refused.",
                room.submissions_max as u64,
            ),
            (
                "builder_waiting_bytes",
                "Bytes of nodes and codes of the submissions that wait.",
                room.bytes as u64,
            ),
            (
                "builder_waiting_bytes_max",
                "Most of these bytes.",
                room.bytes_max as u64,
            ),
            (
                "builder_unpublished_blocks",
                "Blocks that were built, and that the stream has not acknowledged.",
                self.unpublished.get(),
            ),
            (
                "builder_kept_blocks",
                "Blocks that are kept with their witnesses.",
                self.kept.get(),
            ),
            (
                "builder_ahead_blocks",
                "Blocks by which the head is ahead of the shard that is farthest behind, by its best replica.",
                self.ahead.get(),
            ),
            (
                "builder_paused",
                "1 while no block is built because a shard is too far behind.",
                self.paused.get(),
            ),
        ]);
        metrics.counters([
            ("builder_blocks", "Blocks built.", self.blocks.get()),
            (
                "builder_transactions",
                "Transactions in these blocks.",
                self.transactions.get(),
            ),
            (
                "builder_pauses",
                "Times that the builder has begun to wait for a shard.",
                self.pauses.get(),
            ),
            ("builder_gas", "Gas used by these blocks.", self.gas.get()),
            (
                "builder_bags_revised",
                "Bags that were made on another block than the one on which they were used.",
                self.revised.get(),
            ),
            (
                "builder_paths_fetched",
                "Accounts and slots whose nodes were read from shards, since neither the builder nor a bag had them all.",
                self.fetched.get(),
            ),
        ]);
        let help = "Submissions, by whether there was room for them.";
        metrics.tally("builder_submissions", help, "outcome", &self.submissions);
        let help = "Submissions that are in no block, by reason.";
        metrics.tally("builder_left_out", help, "reason", &self.left_out);
        let help = "Attempts at a block that have failed, by step.";
        metrics.tally("builder_failures", help, "step", &self.failures);
        for (part, histogram, _) in self.parts(&BuildTimings::default()) {
            metrics.labels(&[("part", part)]);
            metrics.latency(
                "builder_build",
                "Time of the parts of building a block.",
                &histogram.latency(),
            );
        }
        metrics.labels(&[]);
        self.published.report(metrics);
    }
}

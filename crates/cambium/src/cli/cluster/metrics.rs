//! What commands count by themselves, for collectors.

use cambium_cluster::{Count, LabelledMetrics, MetricsHost, StreamEnd, Tally};

/// What the feed of a database has published.
#[derive(Debug, Default)]
pub(super) struct FeedFigures {
    pub(super) blocks: Count,
    pub(super) published: Count,
    pub(super) head: Count,
}

impl MetricsHost for FeedFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.counters([("feed_blocks", "Blocks published.", self.blocks.get())]);
        metrics.gauges([
            (
                "feed_published_block",
                "The newest block that the stream has.",
                self.published.get(),
            ),
            (
                "feed_head_block",
                "The head of the database, when it was looked last.",
                self.head.get(),
            ),
        ]);
    }

    fn ready(&self) -> Result<(), String> {
        /// Blocks behind the head of the database from which on the feed is not ready.
        const BEHIND_MAX: u64 = 64;
        match self.head.get().saturating_sub(self.published.get()) {
            0..=BEHIND_MAX => Ok(()),
            behind => Err(format!(
                "{behind} blocks of the database are not published yet"
            )),
        }
    }
}

/// Why a client drops a transaction.
pub(super) mod dropped {
    pub(in super::super) const SIGNATURE: &str = "an invalid signature";
    pub(in super::super) const INVALID: &str = "invalid";
    pub(in super::super) const REVERTS: &str = "reverts";
    pub(in super::super) const UNREADABLE: &str = "the state can't be read";
    pub(in super::super) const OTHER: &str = "other reasons";
}

/// What a client has submitted.
#[derive(Debug)]
pub(super) struct ClientFigures {
    pub(super) submitted: Count,
    pub(super) bytes: Count,
    pub(super) dropped: Tally,
}

impl ClientFigures {
    pub(super) fn new() -> Self {
        use dropped::{INVALID, OTHER, REVERTS, SIGNATURE, UNREADABLE};
        Self {
            submitted: Count::default(),
            bytes: Count::default(),
            dropped: Tally::new(&[SIGNATURE, INVALID, REVERTS, UNREADABLE, OTHER]),
        }
    }
}

impl MetricsHost for ClientFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.counters([
            (
                "client_submissions",
                "Submissions that the builder has taken.",
                self.submitted.get(),
            ),
            (
                "client_submission_bytes",
                "Bytes of nodes and codes of all that was submitted.",
                self.bytes.get(),
            ),
        ]);
        let help = "Transactions that were not submitted, by reason.";
        metrics.tally("client_dropped", help, "reason", &self.dropped);
    }
}

/// What became of a block at a validator.
pub(super) mod checked {
    pub(in super::super) const AGREED: &str = "agreed";
    pub(in super::super) const UNSEEN: &str = "without_witness";
    pub(in super::super) const DISAGREED: &str = "disagreed";
}

/// What a validator has executed.
#[derive(Debug)]
pub(super) struct ValidatorFigures {
    pub(super) end: StreamEnd,
    pub(super) blocks: Tally,
    pub(super) newest: Count,
    pub(super) transactions: Count,
    pub(super) gas: Count,
}

impl ValidatorFigures {
    pub(super) fn new() -> Self {
        use checked::{AGREED, DISAGREED, UNSEEN};
        Self {
            end: StreamEnd::default(),
            blocks: Tally::new(&[AGREED, UNSEEN, DISAGREED]),
            newest: Count::default(),
            transactions: Count::default(),
            gas: Count::default(),
        }
    }
}

impl MetricsHost for ValidatorFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        let help = "Blocks in the stream, by whether their execution agrees with them.";
        metrics.tally("validator_blocks", help, "outcome", &self.blocks);
        metrics.gauge(
            "validator_newest_block",
            "The last block that was executed and agrees; 0 before the first one.",
            self.newest.get(),
        );
        metrics.counters([
            (
                "validator_transactions",
                "Transactions of blocks that agree.",
                self.transactions.get(),
            ),
            ("validator_gas", "Gas of blocks that agree.", self.gas.get()),
        ]);
        self.end.report(metrics);
    }

    fn ready(&self) -> Result<(), String> {
        self.end.ready()
    }
}

//! Figures for collectors: the address that `--metrics` names, and what commands count by themselves.

use super::super::{error::Failure, output::Output};
use cambium_cluster::{
    Count, LabelledMetrics, MetricsHost, MetricsLimits, MetricsRegistry, MetricsServer, StreamEnd,
    Tally,
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle, time::timeout};

/// Longest time for the server to end.
const END: Duration = Duration::from_secs(1);

/// Serves the figures of a process, if an address is given, until the result is dropped.
pub(super) struct Serving<'r> {
    runtime: &'r Runtime,
    registry: MetricsRegistry,
    /// Ends the server; `None` without one.
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl<'r> Serving<'r> {
    /// Begins to serve what a process is: its figures follow with [`Self::add`].
    pub(super) fn new(
        address: Option<SocketAddr>,
        role: &'static str,
        runtime: &'r Runtime,
        out: &Output,
    ) -> Result<Self, Failure> {
        let registry = MetricsRegistry::new(role);
        let mut serving = Self {
            runtime,
            registry: registry.clone(),
            server: None,
        };
        let Some(address) = address else {
            return Ok(serving);
        };
        let listening = runtime.block_on(MetricsServer::listen(address));
        let listening = listening.map_err(|error| {
            Failure::cluster(format!(
                "--metrics: {address} can't be listened at: {error}"
            ))
        })?;
        let own = listening.address();
        if !own.ip().is_loopback() {
            out.note(format_args!(
                "--metrics: {own} is not the loopback: without encryption and without a password, anyone who reaches it reads the \
                 figures of this process"
            ));
        }
        out.note(format_args!("the figures are at http://{own}/metrics"));
        let (end, ended) = oneshot::channel::<()>();
        let task = runtime.spawn(listening.run(registry, MetricsLimits::default(), async {
            let _ = ended.await;
        }));
        serving.server = Some((end, task));
        Ok(serving)
    }

    /// Adds a part of the process.
    pub(super) fn add(&self, host: Arc<dyn MetricsHost>) {
        self.registry.add(host);
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if let Some((end, task)) = self.server.take() {
            let _ = end.send(());
            // A page that is being made ends by itself.
            let _ = self.runtime.block_on(async { timeout(END, task).await });
        }
    }
}

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

//! What others see of an import while it runs: its figures, and the chain over JSON-RPC.

#[cfg(all(feature = "cluster", feature = "serve"))]
use super::args::cluster::FollowArgs;
use super::{args::import::ImportArgs, beside::Serving, error::Failure, output::Output};
use cambium::{Db, Node, chain::ImportProgress};
use cambium_metrics::{Count, LabelledMetrics, MetricsHost};
#[cfg(feature = "serve")]
use cambium_rpc::Methods;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// An import that is watched. What it serves ends with it.
pub(crate) struct Watched {
    pub(crate) figures: Arc<ImportFigures>,
    #[cfg_attr(
        not(feature = "cluster"),
        allow(dead_code, reason = "serves while it lives")
    )]
    pub(crate) serving: Serving,
    #[cfg(feature = "serve")]
    #[allow(dead_code, reason = "serves while it lives")]
    server: Option<super::beside::Beside>,
    /// Last, so that the others have ended.
    #[allow(dead_code, reason = "what is above runs on it")]
    runtime: Runtime,
}

impl Watched {
    /// Begins to serve what was asked for; `None` if nothing was.
    pub(crate) fn begin(
        args: &ImportArgs,
        node: &Arc<Node>,
        out: &Output,
    ) -> Result<Option<Self>, Failure> {
        #[cfg(feature = "serve")]
        let is_served = args.serve.is_some();
        #[cfg(not(feature = "serve"))]
        let is_served = false;
        if args.metrics.metrics.is_none() && !is_served {
            return Ok(None);
        }
        let runtime = Builder::new_multi_thread()
            .thread_name("cambium-net")
            .enable_all()
            .build()
            .map_err(Failure::serve)?;
        let serving = Serving::new(args.metrics.metrics, "import", &runtime, out)?;
        let figures = Arc::new(ImportFigures::of(node.db()));
        serving.add(Arc::clone(&figures) as _);
        #[cfg(feature = "serve")]
        let server = match args.serve {
            Some(address) => {
                let (server, service) = {
                    let methods = Methods::of_chain().with_explorer(serving.registry());
                    #[cfg(feature = "cluster")]
                    let methods = {
                        let FollowArgs {
                            follow, on, tls, ..
                        } = &args.following;
                        super::cluster::show(methods, follow, on, tls, runtime.handle())?
                    };
                    super::serve::beside(node, address, methods, &runtime, out)?
                };
                serving.add(service);
                Some(server)
            }
            None => None,
        };
        Ok(Some(Self {
            figures,
            serving,
            #[cfg(feature = "serve")]
            server,
            runtime,
        }))
    }
}

/// The figures of an import, and of its database until others pass these.
pub(crate) struct ImportFigures {
    db: Mutex<Option<Db>>,
    blocks: Count,
    transactions: Count,
    gas: Count,
    skipped: Count,
    listed: Count,
    applied: Count,
}

impl ImportFigures {
    fn of(db: &Db) -> Self {
        Self {
            db: Mutex::new(Some(db.clone())),
            blocks: Count::default(),
            transactions: Count::default(),
            gas: Count::default(),
            skipped: Count::default(),
            listed: Count::default(),
            applied: Count::default(),
        }
    }

    pub(crate) fn update(&self, now: &ImportProgress) {
        self.blocks.set(now.blocks);
        self.transactions.set(now.transactions);
        self.gas.set(now.gas);
        self.skipped.set(now.skipped);
        self.listed.set(now.listed);
        self.applied.set(now.applied);
    }

    /// Passes the figures of the database no more.
    #[cfg(feature = "cluster")]
    pub(crate) fn leave_database(&self) {
        *self.db.lock() = None;
    }
}

impl MetricsHost for ImportFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.counters([
            (
                "import_blocks",
                "Blocks that the import has committed.",
                self.blocks.get(),
            ),
            (
                "import_blocks_skipped",
                "Blocks of the files that the database had.",
                self.skipped.get(),
            ),
            (
                "import_blocks_listed",
                "Blocks that came with access lists.",
                self.listed.get(),
            ),
            (
                "import_blocks_applied",
                "Blocks whose access lists were applied instead of executing them.",
                self.applied.get(),
            ),
            (
                "import_transactions",
                "Transactions of the committed blocks.",
                self.transactions.get(),
            ),
            (
                "import_gas",
                "Gas used in the committed blocks.",
                self.gas.get(),
            ),
        ]);
        if let Some(db) = &*self.db.lock() {
            // It has no errors today, and without its figures the others are there.
            let _ = db.report(metrics);
        }
    }
}

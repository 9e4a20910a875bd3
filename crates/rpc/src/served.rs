//! What is served: the chain, by its node, and the limits.

use crate::{builder::BuildOptions, limits::Limits, polled::Filters, pool::Pool};
use alloy_primitives::B256;
use cambium_metrics::{Count, LabelledMetrics, MetricsHost};
use cambium_node::Node;
use cambium_primitives::BlockId;
use cambium_state::{Db, StateError};
use parking_lot::{Mutex, RwLock};
use std::{
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

/// Time between two looks at what the writer has done.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time by which a subscription is ahead of the node.
const AHEAD: Duration = Duration::from_secs(2);

/// A chain that is served. Each call has the node as it was when the call began.
pub struct Served {
    node: RwLock<Arc<Node>>,
    /// What the server allows.
    pub limits: Limits,
    /// The tip that was found by the head with this hash.
    pub(crate) tip: Mutex<Option<(B256, u128)>>,
    pub(crate) filters: Filters,
    pool: Option<Arc<Pool>>,
    /// Why the writer can't be followed; `None` if it is.
    trouble: Mutex<Option<String>>,
    follow_errors: Count,
    pub(crate) building: BuildOptions,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served(at {})", self.node().head())
    }
}

impl Served {
    /// The chain of a node.
    pub fn new(node: Arc<Node>, limits: Limits) -> Self {
        Self {
            node: RwLock::new(node),
            limits,
            tip: Mutex::default(),
            filters: Filters::default(),
            pool: None,
            trouble: Mutex::default(),
            follow_errors: Count::default(),
            building: BuildOptions::default(),
        }
    }

    /// Takes transactions that wait for a block. Without a pool they are refused.
    #[must_use]
    pub fn with_pool(self, pool: Arc<Pool>) -> Self {
        let pool = Some(pool);
        Self { pool, ..self }
    }

    /// Sets how blocks are built.
    #[must_use]
    pub fn with_building(self, building: BuildOptions) -> Self {
        Self { building, ..self }
    }

    /// The pool, if there is one.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_deref()
    }

    /// The node.
    pub fn node(&self) -> Arc<Node> {
        Arc::clone(&self.node.read())
    }

    /// The node, once it has a block that a subscription has seen: that may be ahead of it by a look at what the writer has done.
    pub(crate) fn node_with(&self, block: BlockId) -> Arc<Node> {
        let end = Instant::now() + AHEAD;
        loop {
            let node = self.node();
            let is_there = !node.db().is_read_only() || node.db().has(block).unwrap_or(true);
            if is_there || Instant::now() >= end {
                return node;
            }
            thread::sleep(LOOK / 4);
        }
    }

    /// Follows the process that writes to the database, until the result is dropped. A node that writes itself is at its newest block
    /// already.
    pub fn follow_writer(self: &Arc<Self>, report: impl Fn(&StateError) + Send + 'static) {
        let db = self.node().db().clone();
        if !db.is_read_only() {
            return;
        }
        let served = Arc::downgrade(self);
        let follow = move || follow(&served, db, &report);
        let named = thread::Builder::new().name("cambium-follow".to_owned());
        if let Err(error) = named.spawn(follow) {
            tracing::error!(%error, "the database is not followed: there is no thread for it");
        }
    }
}

/// The figures of the database ([`Db::report`]) and of the pool, and whether the process that writes is followed.
impl MetricsHost for Served {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        let node = self.node();
        // It has no errors today, and without its figures the others are there.
        let _ = node.db().report(metrics);
        metrics.counters([(
            "follow_errors",
            "Looks at what the writing process has done that failed; 0 in a process that writes itself.",
            self.follow_errors.get(),
        )]);
        if let Some(pool) = &self.pool {
            pool.report(metrics);
        }
    }

    fn ready(&self) -> Result<(), String> {
        match &*self.trouble.lock() {
            None => Ok(()),
            Some(trouble) => Err(format!("the writer can't be followed: {trouble}")),
        }
    }
}

/// Moves the node with the writer. An error is reported once, and tried again.
fn follow(served: &Weak<Served>, mut db: Db, report: &dyn Fn(&StateError)) {
    let mut at = (db.head(), db.finality());
    let mut was_wrong = false;
    loop {
        thread::sleep(LOOK);
        let Some(served) = served.upgrade() else {
            return;
        };
        match db.catch_up() {
            Ok(_) => {
                if was_wrong {
                    *served.trouble.lock() = None;
                }
                was_wrong = false;
            }
            Err(error) => {
                served.follow_errors.add(1);
                if !was_wrong {
                    *served.trouble.lock() = Some(error.to_string());
                    report(&error);
                }
                was_wrong = true;
                continue;
            }
        }
        let now = (db.head(), db.finality());
        if now != at {
            at = now;
            let node = served.node().over(db.clone());
            *served.node.write() = Arc::new(node);
        }
    }
}

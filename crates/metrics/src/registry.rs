//! Everything that a process shows.

use super::{labelled::LabelledMetrics, own::Own, page::MetricsPage};
use parking_lot::RwLock;
use std::{
    fmt,
    sync::{Arc, Weak},
};

/// A part of a process that has figures.
pub trait MetricsHost: Send + Sync + 'static {
    /// Passes its figures. It is called for each page, beside the work of the process, and must not wait for that: neither for a disk nor
    /// for the network.
    fn report(&self, metrics: &mut dyn LabelledMetrics);

    /// Whether it does what it is for.
    ///
    /// # Errors
    ///
    /// Why not, in one line.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The figures of a process, by all of its parts. Clones are the same registry.
///
/// ```
/// use cambium_metrics::{LabelledMetrics, MetricsHost, MetricsRegistry, Tally};
/// use std::sync::Arc;
///
/// /// Counts what a node of one's own has answered.
/// struct Answers(Tally);
///
/// impl MetricsHost for Answers {
///     fn report(&self, metrics: &mut dyn LabelledMetrics) {
///         metrics.tally("answers", "Requests answered.", "outcome", &self.0);
///     }
/// }
///
/// let registry = MetricsRegistry::new("node");
/// let answers = Arc::new(Answers(Tally::new(&["ok", "failed"])));
/// registry.add(answers.clone());
/// answers.0.add("ok");
/// assert!(registry.page().contains("\ncambium_answers_total{outcome=\"ok\"} 1\n"));
/// assert_eq!(registry.ready(), Ok(()));
/// ```
#[derive(Clone)]
pub struct MetricsRegistry {
    own: Arc<Own>,
    hosts: Arc<RwLock<Vec<Arc<dyn MetricsHost>>>>,
}

impl fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.hosts.read().len();
        f.debug_struct("MetricsRegistry")
            .field("own", &self.own)
            .field("hosts", &hosts)
            .finish()
    }
}

impl MetricsRegistry {
    /// The registry of a process, with its memory, descriptors and uptime. `role` says what the process is.
    pub fn new(role: &'static str) -> Self {
        Self {
            own: Arc::new(Own::new(role)),
            hosts: Arc::default(),
        }
    }

    /// What the process is.
    pub fn role(&self) -> &'static str {
        self.own.role()
    }

    /// The registry for one of its own parts, which does not keep it.
    pub fn downgrade(&self) -> WeakRegistry {
        WeakRegistry {
            own: Arc::clone(&self.own),
            hosts: Arc::downgrade(&self.hosts),
        }
    }

    /// Adds a part. Names of figures have to be other ones than those of other parts.
    pub fn add(&self, host: Arc<dyn MetricsHost>) {
        self.hosts.write().push(host);
    }

    fn hosts(&self) -> Vec<Arc<dyn MetricsHost>> {
        self.hosts.read().clone()
    }

    /// Passes the figures of all parts, those of the process itself first.
    pub fn report(&self, metrics: &mut dyn LabelledMetrics) {
        self.own.report(metrics);
        for host in self.hosts() {
            host.report(metrics);
        }
    }

    /// All figures as a page.
    pub fn page(&self) -> String {
        let mut page = MetricsPage::default();
        self.report(&mut page);
        page.to_string()
    }

    /// Whether all parts are ready.
    ///
    /// # Errors
    ///
    /// Why the first one is not that isn't, or that there is none yet.
    pub fn ready(&self) -> Result<(), String> {
        let hosts = self.hosts();
        if hosts.is_empty() {
            return Err("the process is starting".to_owned());
        }
        hosts.iter().try_for_each(|host| host.ready())
    }
}

/// A [`MetricsRegistry`] that does not keep its parts.
#[derive(Clone)]
pub struct WeakRegistry {
    own: Arc<Own>,
    hosts: Weak<RwLock<Vec<Arc<dyn MetricsHost>>>>,
}

impl fmt::Debug for WeakRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakRegistry")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl WeakRegistry {
    /// The registry, if it is still there.
    pub fn upgrade(&self) -> Option<MetricsRegistry> {
        Some(MetricsRegistry {
            own: Arc::clone(&self.own),
            hosts: self.hosts.upgrade()?,
        })
    }
}

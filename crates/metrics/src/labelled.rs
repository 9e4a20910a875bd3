//! Figures with labels.

use super::tally::Tally;
use cambium_state::Metrics;

/// Receives figures of which several have one name, and differ in labels. Names, kinds and units are those of [`Metrics`].
pub trait LabelledMetrics: Metrics {
    /// Sets the labels of the figures that follow, in place of earlier ones: names with values.
    fn labels(&mut self, labels: &[(&'static str, &str)]);
}

impl dyn LabelledMetrics + '_ {
    /// Passes the counters of a tally, each with its name as the value of `label`.
    pub fn tally(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        of: &Tally,
    ) {
        for (value, count) in of.counts() {
            self.labels(&[(label, value)]);
            self.counter(name, help, count);
        }
        self.labels(&[]);
    }

    /// Passes several counters: name, help and value of each.
    pub fn counters<const N: usize>(&mut self, figures: [(&'static str, &'static str, u64); N]) {
        for (name, help, value) in figures {
            self.counter(name, help, value);
        }
    }

    /// Passes several gauges: name, help and value of each.
    pub fn gauges<const N: usize>(&mut self, figures: [(&'static str, &'static str, u64); N]) {
        for (name, help, value) in figures {
            self.gauge(name, help, value);
        }
    }
}

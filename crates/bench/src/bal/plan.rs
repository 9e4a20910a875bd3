//! Measured cases and their workloads.

use cambium_workload::WorkloadParams;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Parameters of a run.
pub(crate) struct Plan {
    pub(crate) data_dir: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) readers: usize,
    pub(crate) quick: bool,
}

impl Plan {
    /// Number of executions of each executor in a round, for a block that takes a few milliseconds.
    pub(crate) const fn turns_a_round(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }
}

/// A workload.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) params: WorkloadParams,
}

/// Converts a figure to JSON.
pub(crate) fn figure(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

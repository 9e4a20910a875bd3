//! What is to be measured, and on which workloads.

use cambium_chain::WorkloadParams;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What is to be done.
pub(crate) struct Plan {
    pub(crate) data_dir: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) readers: usize,
    pub(crate) quick: bool,
}

impl Plan {
    /// Turns in a round that each executor has at a block of a few milliseconds.
    pub(crate) const fn turns_a_round(&self) -> usize {
        if self.quick { 2 } else { 5 }
    }
}

/// One workload.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) params: WorkloadParams,
}

/// A figure of a result, as JSON has it.
pub(crate) fn figure(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

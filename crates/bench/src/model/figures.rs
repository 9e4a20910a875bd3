//! A state, a machine, and the figures of a batch.

use serde::Serialize;

/// A state, and what changes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Accounts and slots of the state.
    pub(super) keys: f64,
    /// Keys that a batch reads and changes.
    pub(super) changes: f64,
}

/// What a state is predicted for, or was measured on: memory, cores and device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The engine's budget, in bytes.
    pub(super) memory_bytes: f64,
    pub(super) cores: f64,
    /// Random reads of a block a second, with 128 in flight.
    pub(super) reads_per_second: f64,
}

/// What is predicted of a batch, or was measured of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) accounts_a_page: f64,
    pub(super) index_bytes: f64,
    /// Of what is not index.
    pub(super) cached_share: f64,
    pub(super) reads_a_change: f64,
    pub(super) bytes_written_a_change: f64,
    pub(super) hashes_a_change: f64,
    pub(super) processor_us_a_change: f64,
    pub(super) batch_ms: f64,
}

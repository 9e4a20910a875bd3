//! One batch on a store: read, execute, commit.

use super::{
    stores::{Failure, Setup, Store, Write},
    workload::digest,
};
use crate::system::Io;
use alloy_primitives::B256;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Figures of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BatchFigures {
    pub(crate) number: u64,
    /// Whether the batch is measured, not part of a warm-up.
    pub(crate) measured: bool,
    pub(crate) transfers: usize,
    pub(crate) keys: usize,
    pub(crate) read_ms: f64,
    pub(crate) execute_ms: f64,
    /// Time of the commit, including the root and the witness, if there is one.
    pub(crate) commit_ms: f64,
    pub(crate) root_ms: Option<f64>,
    pub(crate) witness_ms: Option<f64>,
    /// Size of the witness, if one was made.
    pub(crate) witness_bytes: Option<u64>,
    pub(crate) read_io: Io,
    pub(crate) commit_io: Io,
    /// Device reads by the store's own counter.
    pub(crate) own_device_reads: Option<u64>,
    /// Digest of all values read.
    pub(crate) digest: u64,
    pub(crate) root: Option<B256>,
}

impl BatchFigures {
    /// Returns the time from the first read until the batch is durable.
    pub(crate) fn total_ms(&self) -> f64 {
        self.read_ms + self.execute_ms + self.commit_ms
    }
}

pub(crate) fn milliseconds(start: Instant) -> f64 {
    1e3 * start.elapsed().as_secs_f64()
}

/// Runs one batch: read, execute, commit.
pub(crate) fn run_batch(
    store: &mut dyn Store,
    setup: &Setup,
    number: u64,
    witness: bool,
) -> Result<BatchFigures, Failure> {
    let batch = setup.workload.batch(number);
    let own_before = store.device_reads();
    let before = Io::now(&setup.dir);
    let start = Instant::now();
    let old = store.read(&batch.keys, witness)?;
    let read_ms = milliseconds(start);
    let read = Io::now(&setup.dir);
    let start = Instant::now();
    let new = batch.execute(&old)?;
    let execute_ms = milliseconds(start);
    let start = Instant::now();
    let committed = store.commit(&Write {
        keys: &batch.keys,
        new: &new,
        witness,
    })?;
    let commit_ms = milliseconds(start);
    let after = Io::now(&setup.dir);
    let own_after = store.device_reads();
    let made = committed.witness.as_ref();
    Ok(BatchFigures {
        number: batch.number,
        measured: true,
        transfers: batch.transfers(),
        keys: batch.keys.len(),
        read_ms,
        execute_ms,
        commit_ms,
        root_ms: committed.root_time.map(|time| 1e3 * time.as_secs_f64()),
        witness_ms: made
            .and_then(|made| made.time)
            .map(|time| 1e3 * time.as_secs_f64()),
        witness_bytes: made.map(|made| made.bytes),
        read_io: read.since(&before),
        commit_io: after.since(&read),
        own_device_reads: own_after
            .zip(own_before)
            .map(|(after, before)| after - before),
        digest: digest(&batch.keys, &old),
        root: committed.root,
    })
}

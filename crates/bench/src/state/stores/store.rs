//! The interface of a store under test.

use crate::state::workload::Workload;
use alloy_primitives::B256;
use cambium_primitives::Account;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{error::Error, path::PathBuf, time::Duration};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Location and limits of a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) dir: PathBuf,
    pub(crate) workload: Workload,
    /// Memory of the process in bytes, including page cache.
    pub(crate) memory_bytes: u64,
    /// Blocks of an interval of a store with the commitment `layered`, where one is measured.
    pub(crate) merge_interval: Option<u64>,
    /// Number of threads that read from a store without batched reads, if it is not the default.
    pub(crate) read_threads: Option<usize>,
}

/// An open store.
pub(crate) trait Store {
    /// Returns the values of `keys`, in order. `witness`: whether the commit will make a witness of
    /// them.
    fn read(&mut self, keys: &[B256], witness: bool) -> Result<Vec<Option<Account>>, Failure>;

    /// Writes the changes of a batch, which survives a power loss once this returns.
    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure>;

    /// Finishes deferred work, so that all costs of earlier writes are counted.
    fn settle(&mut self) -> Result<(), Failure>;

    /// Returns a description of the store's configuration.
    fn configuration(&self) -> String;

    /// Returns the device reads so far by the store's own counter, if it has one.
    fn device_reads(&self) -> Option<u64> {
        None
    }

    /// Returns the store's own figures.
    fn figures(&mut self) -> Result<Map<String, Value>, Failure> {
        Ok(Map::new())
    }
}

/// The changes of a batch.
pub(crate) struct Write<'a> {
    pub(crate) keys: &'a [B256],
    pub(crate) new: &'a [Account],
    /// Whether to make a witness of everything read and changed, if the store can.
    pub(crate) witness: bool,
}

/// Result of a commit.
#[derive(Default)]
pub(crate) struct Committed {
    /// New root, if the store has one.
    pub(crate) root: Option<B256>,
    /// Time spent computing the root, if it can be measured separately.
    pub(crate) root_time: Option<Duration>,
    pub(crate) witness: Option<WitnessMade>,
}

/// A witness made by a commit.
pub(crate) struct WitnessMade {
    /// Time spent making it, if it can be measured separately.
    pub(crate) time: Option<Duration>,
    pub(crate) bytes: u64,
}

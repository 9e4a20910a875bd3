//! What the workload asks of a store.

use crate::state::workload::Workload;
use alloy_primitives::B256;
use cambium_primitives::Account;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{error::Error, path::PathBuf, time::Duration};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Where a store is, and what it may take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) dir: PathBuf,
    pub(crate) workload: Workload,
    /// All memory of the process, page cache included.
    pub(crate) memory_bytes: u64,
}

/// An open store.
pub(crate) trait Store {
    /// The values of `keys`, in their order. `witness`: the commit will want a witness of them.
    fn read(&mut self, keys: &[B256], witness: bool) -> Result<Vec<Option<Account>>, Failure>;

    /// Writes what a batch did. When it returns, the batch survives power loss.
    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure>;

    /// Finishes all that was left for later: what was written so far is then all that it costs.
    fn settle(&mut self) -> Result<(), Failure>;

    /// What was chosen of the store's options, in words.
    fn configuration(&self) -> String;

    /// Reads from the device so far, by the store's own count, if it has one.
    fn device_reads(&self) -> Option<u64> {
        None
    }

    /// What the store says of itself.
    fn figures(&mut self) -> Result<Map<String, Value>, Failure> {
        Ok(Map::new())
    }
}

/// What a batch did.
pub(crate) struct Write<'a> {
    pub(crate) keys: &'a [B256],
    pub(crate) new: &'a [Account],
    /// Whether to make a witness of all that was read and is changed, where the store can.
    pub(crate) witness: bool,
}

/// What a commit gave.
#[derive(Default)]
pub(crate) struct Committed {
    /// The new root, of a store that has one.
    pub(crate) root: Option<B256>,
    /// The part of the commit that computed the root, where it can be told apart.
    pub(crate) root_time: Option<Duration>,
    pub(crate) witness: Option<WitnessMade>,
}

/// A witness that a commit made.
pub(crate) struct WitnessMade {
    /// The part of the commit that made it, where it can be told apart.
    pub(crate) time: Option<Duration>,
    pub(crate) bytes: u64,
}

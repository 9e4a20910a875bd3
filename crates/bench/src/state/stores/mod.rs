//! The stores that the workload runs over, behind one interface.
//!
//! Each is set up as its own documentation recommends for speed with durable commits; what was chosen
//! is in [`Store::configuration`], and goes into the report.

mod cambium;

use super::workload::Workload;
use alloy_primitives::B256;
use cambium_primitives::Account;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{error::Error, fmt, path::PathBuf, time::Duration};

pub(crate) use cambium::CambiumStore;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Cambium,
}

impl Kind {
    /// Bytes on the disk for each account, once loaded and while loading: to refuse in time.
    pub(crate) const fn bytes_an_account(self) -> u64 {
        match self {
            Self::Cambium => 250,
        }
    }

    /// Whether its root is Ethereum's.
    pub(crate) const fn is_exact(self) -> bool {
        matches!(self, Self::Cambium)
    }

    /// Makes a store of the workload's first state.
    pub(crate) fn load(self, setup: &Setup) -> Result<(), Failure> {
        match self {
            Self::Cambium => cambium::load(setup),
        }
    }

    /// Opens what [`Kind::load`] made.
    pub(crate) fn open(self, setup: &Setup) -> Result<Box<dyn Store>, Failure> {
        match self {
            Self::Cambium => Ok(Box::new(CambiumStore::open(setup)?)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("?", |value| value.get_name()))
    }
}

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

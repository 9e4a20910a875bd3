//! The stores that the workload runs over, behind one interface.
//!
//! Each is set up as its own documentation recommends for speed with durable commits; what was
//! chosen is in [`Store::configuration`], and goes into the report.

#[cfg(feature = "bytes")]
mod bytes;
mod cambium;
#[cfg(feature = "firewood")]
mod firewood;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "mdbx")]
pub(crate) mod mdbx;
#[cfg(feature = "nomt")]
mod nomt;
#[cfg(feature = "qmdb")]
mod qmdb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;

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
    Nomt,
    Qmdb,
    Firewood,
    Rocksdb,
    Mdbx,
    Fjall,
}

impl Kind {
    /// Whether it can run: a peer is a feature of this crate.
    pub(crate) const fn is_built(self) -> bool {
        match self {
            Self::Cambium => true,
            Self::Nomt => cfg!(feature = "nomt"),
            Self::Qmdb => cfg!(feature = "qmdb"),
            Self::Firewood => cfg!(feature = "firewood"),
            Self::Rocksdb => cfg!(feature = "rocksdb"),
            Self::Mdbx => cfg!(feature = "mdbx"),
            Self::Fjall => cfg!(feature = "fjall"),
        }
    }

    /// Bytes on the disk for each account, with what loading and some dozen batches need besides:
    /// to refuse in time.
    pub(crate) const fn bytes_an_account(self) -> u64 {
        match self {
            Self::Cambium => 300,
            Self::Nomt => 500,
            Self::Qmdb => 500,
            Self::Firewood => 700,
            Self::Rocksdb => 200,
            Self::Mdbx => 350,
            Self::Fjall => 250,
        }
    }

    /// Whether its root is Ethereum's.
    pub(crate) const fn is_exact(self) -> bool {
        matches!(self, Self::Cambium | Self::Firewood)
    }

    /// Makes a store of the workload's first state.
    pub(crate) fn load(self, setup: &Setup) -> Result<(), Failure> {
        match self {
            Self::Cambium => cambium::load(setup),
            #[cfg(feature = "nomt")]
            Self::Nomt => nomt::load(setup),
            #[cfg(feature = "qmdb")]
            Self::Qmdb => qmdb::load(setup),
            #[cfg(feature = "firewood")]
            Self::Firewood => firewood::load(setup),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => rocksdb::load(setup),
            #[cfg(feature = "mdbx")]
            Self::Mdbx => mdbx::load(setup),
            #[cfg(feature = "fjall")]
            Self::Fjall => fjall::load(setup),
            #[allow(unreachable_patterns)]
            missing => Err(format!("built without {missing}").into()),
        }
    }

    /// Opens what [`Kind::load`] made.
    pub(crate) fn open(self, setup: &Setup) -> Result<Box<dyn Store>, Failure> {
        Ok(match self {
            Self::Cambium => Box::new(CambiumStore::open(setup)?),
            #[cfg(feature = "nomt")]
            Self::Nomt => Box::new(nomt::NomtStore::open(setup)?),
            #[cfg(feature = "qmdb")]
            Self::Qmdb => Box::new(qmdb::QmdbStore::open(setup)?),
            #[cfg(feature = "firewood")]
            Self::Firewood => Box::new(firewood::FirewoodStore::open(setup)?),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Box::new(rocksdb::RocksStore::open(setup)?),
            #[cfg(feature = "mdbx")]
            Self::Mdbx => Box::new(mdbx::MdbxStore::open(setup)?),
            #[cfg(feature = "fjall")]
            Self::Fjall => Box::new(fjall::FjallStore::open(setup)?),
            #[allow(unreachable_patterns)]
            missing => return Err(format!("built without {missing}").into()),
        })
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

//! The kinds of stores, and how each is loaded and opened.

#[cfg(feature = "firewood")]
use super::firewood;
#[cfg(feature = "fjall")]
use super::fjall;
#[cfg(feature = "mdbx")]
use super::mdbx;
#[cfg(feature = "nomt")]
use super::nomt;
#[cfg(feature = "qmdb")]
use super::qmdb;
use super::{
    cambium::{self, CambiumStore},
    entries::{self, EntryStore},
    store::{Failure, Setup, Store},
};
#[cfg(feature = "rocksdb")]
use super::{rocksdb, rocksdb_mpt};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a store: Cambium's own for accounts, under `mpt` and `layered`, and for entries under a
/// binary trie; and peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Cambium,
    Layered,
    Binary,
    Nomt,
    Qmdb,
    Firewood,
    Rocksdb,
    RocksdbMpt,
    Mdbx,
    Fjall,
}

impl Kind {
    /// Returns whether the store is built in: each peer is a feature of this crate.
    pub(crate) const fn is_built(self) -> bool {
        match self {
            Self::Cambium | Self::Layered | Self::Binary => true,
            Self::Nomt => cfg!(feature = "nomt"),
            Self::Qmdb => cfg!(feature = "qmdb"),
            Self::Firewood => cfg!(feature = "firewood"),
            Self::Rocksdb | Self::RocksdbMpt => cfg!(feature = "rocksdb"),
            Self::Mdbx => cfg!(feature = "mdbx"),
            Self::Fjall => cfg!(feature = "fjall"),
        }
    }

    /// Returns the bytes on disk per account, including what loading and some dozen batches need in
    /// addition, for a check of the free space.
    pub(crate) const fn bytes_an_account(self) -> u64 {
        match self {
            Self::Cambium | Self::Layered | Self::Binary => 300,
            Self::Nomt => 500,
            Self::Qmdb => 500,
            Self::Firewood => 700,
            Self::Rocksdb => 200,
            Self::RocksdbMpt => 900,
            Self::Mdbx => 350,
            Self::Fjall => 250,
        }
    }

    /// Returns whether its root is Ethereum's.
    pub(crate) const fn is_exact(self) -> bool {
        matches!(self, Self::Cambium | Self::Firewood | Self::RocksdbMpt)
    }

    /// Returns whether the store has no batched reads, so that the benchmark reads by threads of its own.
    pub(crate) const fn reads_by_threads(self) -> bool {
        !matches!(
            self,
            Self::Cambium | Self::Layered | Self::Binary | Self::Qmdb
        )
    }

    /// Creates a store with the workload's first state.
    pub(crate) fn load(self, setup: &Setup) -> Result<(), Failure> {
        match self {
            Self::Cambium => cambium::load(setup, None),
            Self::Layered => cambium::load(setup, setup.merge_interval),
            Self::Binary => entries::load(setup),
            #[cfg(feature = "nomt")]
            Self::Nomt => nomt::load(setup),
            #[cfg(feature = "qmdb")]
            Self::Qmdb => qmdb::load(setup),
            #[cfg(feature = "firewood")]
            Self::Firewood => firewood::load(setup),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => rocksdb::load(setup),
            #[cfg(feature = "rocksdb")]
            Self::RocksdbMpt => rocksdb_mpt::load(setup),
            #[cfg(feature = "mdbx")]
            Self::Mdbx => mdbx::load(setup),
            #[cfg(feature = "fjall")]
            Self::Fjall => fjall::load(setup),
            #[allow(unreachable_patterns)]
            missing => Err(format!("built without {missing}").into()),
        }
    }

    /// Opens a store that [`Kind::load`] created.
    pub(crate) fn open(self, setup: &Setup) -> Result<Box<dyn Store>, Failure> {
        #[cfg(feature = "bytes")]
        if let Some(threads) = setup.read_threads {
            super::bytes::choose_read_threads(threads);
        }
        Ok(match self {
            Self::Cambium | Self::Layered => Box::new(CambiumStore::open(setup)?),
            Self::Binary => Box::new(EntryStore::open(setup)?),
            #[cfg(feature = "nomt")]
            Self::Nomt => Box::new(nomt::NomtStore::open(setup)?),
            #[cfg(feature = "qmdb")]
            Self::Qmdb => Box::new(qmdb::QmdbStore::open(setup)?),
            #[cfg(feature = "firewood")]
            Self::Firewood => Box::new(firewood::FirewoodStore::open(setup)?),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Box::new(rocksdb::RocksStore::open(setup)?),
            #[cfg(feature = "rocksdb")]
            Self::RocksdbMpt => Box::new(rocksdb_mpt::RocksMptStore::open(setup)?),
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

/// Returns Cambium's own stores, and the peers in the list.
pub(crate) fn kinds(peers: &str, own: &[Kind], bench: &str) -> Result<Vec<Kind>, String> {
    let mut kinds = own.to_vec();
    match peers {
        "none" => {}
        // Firewood runs only if it is named, because its licence makes using it a decision.
        "all" => kinds.extend([
            Kind::Nomt,
            Kind::Qmdb,
            Kind::Rocksdb,
            Kind::RocksdbMpt,
            Kind::Mdbx,
            Kind::Fjall,
        ]),
        list => {
            for name in list.split(',') {
                kinds.push(Kind::from_str(name, true)?);
            }
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.iter().find(|kind| !kind.is_built()) {
        Some(kind) => Err(format!(
            "built without {kind}: `./bench {bench} --peers {kind}` builds it in"
        )),
        None => Ok(kinds),
    }
}

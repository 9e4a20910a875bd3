//! Sources of old states: Cambium's histories, and peers.

#[cfg(feature = "leveldb")]
use super::leveldb::LevelDb;
#[cfg(feature = "mdbx")]
use super::mdbx::Mdbx;
use super::{
    histories::Histories,
    plan::{Failure, Plan},
    states::OldStates,
};
use cambium_history::WholeNodes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What keeps old states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Values.
    Flat,
    /// Values and nodes, one entry of a branch out of eight whole.
    Archive,
    /// Values and nodes, every entry whole.
    Whole,
    /// All nodes by their hashes in LevelDB, as geth's hash scheme keeps them
    Leveldb,
    /// MDBX with the tables of op-reth's history of proofs
    Mdbx,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Archive => "archive",
            Self::Whole => "archive, whole nodes",
            Self::Leveldb => "leveldb",
            Self::Mdbx => "mdbx",
        }
    }

    /// Which entries of nodes of a history are whole, if it has nodes.
    pub(super) fn nodes(self) -> Option<WholeNodes> {
        match self {
            Self::Flat | Self::Leveldb | Self::Mdbx => None,
            Self::Archive => Some(WholeNodes::default()),
            Self::Whole => Some(WholeNodes::ALL),
        }
    }

    /// Opens what was made, to read, or to import blocks as well.
    pub(super) fn open(self, plan: &Plan, to_import: bool) -> Result<Box<dyn OldStates>, Failure> {
        match self {
            Self::Flat | Self::Archive | Self::Whole => {
                let has_nodes = self != Self::Flat;
                Ok(Box::new(Histories::open(plan, has_nodes, to_import)?))
            }
            #[cfg(feature = "leveldb")]
            Self::Leveldb => Ok(Box::new(LevelDb::open(plan)?)),
            #[cfg(not(feature = "leveldb"))]
            Self::Leveldb => Err("this program was built without LevelDB".into()),
            #[cfg(feature = "mdbx")]
            Self::Mdbx => Ok(Box::new(Mdbx::open(plan)?)),
            #[cfg(not(feature = "mdbx"))]
            Self::Mdbx => Err("this program was built without MDBX".into()),
        }
    }
}

//! What old states are read from: Cambium's histories, and a peer.

#[cfg(feature = "leveldb")]
use super::leveldb::LevelDb;
use super::plan::{Failure, Plan, path};
use alloy_primitives::B256;
use cambium_history::{History, HistoryView, WholeNodes};
use cambium_primitives::Path as AccountPath;
use cambium_state::{Db, Options, StdDisk};
use cambium_trie::{Lookup, ProofTargets};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Archive => "archive",
            Self::Whole => "archive, whole nodes",
            Self::Leveldb => "leveldb",
        }
    }

    /// Which entries of nodes of a history are whole, if it has nodes.
    pub(super) fn nodes(self) -> Option<WholeNodes> {
        match self {
            Self::Flat | Self::Leveldb => None,
            Self::Archive => Some(WholeNodes::default()),
            Self::Whole => Some(WholeNodes::ALL),
        }
    }

    /// Opens what was made.
    pub(super) fn open(self, plan: &Plan) -> Result<Box<dyn OldStates>, Failure> {
        match self {
            Self::Flat | Self::Archive | Self::Whole => {
                Ok(Box::new(Histories::open(plan, self != Self::Flat)?))
            }
            #[cfg(feature = "leveldb")]
            Self::Leveldb => Ok(Box::new(LevelDb::open(plan)?)),
            #[cfg(not(feature = "leveldb"))]
            Self::Leveldb => Err("this program was built without LevelDB".into()),
        }
    }
}

/// What a read found.
pub(super) struct Found {
    pub(super) nonce: Option<u64>,
    /// The state root that the nodes lead to, if there are any.
    pub(super) root: Option<B256>,
    /// Number of nodes that were read.
    pub(super) nodes: u64,
}

/// Reads accounts at old blocks.
pub(super) trait OldStates: Sync {
    /// Reads an account after a block, through the trie if there is one. `root` is the state root.
    fn read(&self, index: u64, number: u64, root: B256) -> Result<Found, Failure>;

    /// Device reads for pages of the history, and waits for them.
    fn history_reads(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A database and its history.
struct Histories {
    db: Db,
    history: History,
    has_nodes: bool,
    /// What all views share stays as long as there is one.
    _view: HistoryView,
}

impl Histories {
    fn open(plan: &Plan, has_nodes: bool) -> Result<Self, Failure> {
        let disk = Arc::new(StdDisk::new(plan.database_dir()));
        let options = Options {
            memory_bytes: plan.memory,
            ..Options::default()
        };
        let (db, _) = Db::open(disk.clone(), options)?;
        let history = History::open_read_only(disk, &db, plan.history_options())?;
        let view = history.view_at(&db, 0)?;
        if has_nodes {
            view.extract(&ProofTargets::new(vec![(path(0), vec![])]))?;
        }
        Ok(Self {
            db,
            history,
            has_nodes,
            _view: view,
        })
    }
}

impl OldStates for Histories {
    fn read(&self, index: u64, number: u64, _: B256) -> Result<Found, Failure> {
        let view = self.history.view_at(&self.db, number)?;
        if !self.has_nodes {
            let account = view.account(&path(index))?;
            return Ok(Found {
                nonce: account.map(|account| account.nonce),
                root: None,
                nodes: 0,
            });
        }
        let proof = view.extract(&ProofTargets::new(vec![(path(index), vec![])]))?;
        let nonce = match proof.lookup(&AccountPath::account(&path(index))) {
            Lookup::Account(account) => Some(account.nonce),
            _ => None,
        };
        Ok(Found {
            nonce,
            root: proof.state_root(),
            nodes: proof.witness_nodes().len() as u64,
        })
    }

    fn history_reads(&self) -> (u64, u64) {
        let stats = self.history.stats();
        (stats.reads, stats.waits)
    }
}

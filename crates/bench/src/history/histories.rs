//! Cambium's histories.

use super::{
    made::commit,
    plan::{Failure, Plan, path},
    states::{Found, OldStates},
};
use alloy_primitives::B256;
use cambium_history::{History, HistoryFollower, HistoryOptions, StateAt};
use cambium_primitives::Path as AccountPath;
use cambium_state::{Db, Options, StdDisk};
use cambium_trie::{Lookup, ProofTargets};
use std::{process, sync::Arc};

/// Memory of the trie from which the nodes of imported blocks are made, in bytes. The cache of pages has
/// less by as much meanwhile: a process may use no more memory while it imports.
const IMPORT_TRIE_BYTES: u64 = 16 << 20;

/// A database and its history.
pub(super) struct Histories {
    db: Db,
    history: History,
    has_nodes: bool,
    /// Follows the blocks that are imported, if there are any.
    _follower: Option<HistoryFollower>,
    /// Keeps the state that all views share.
    _view: StateAt,
}

impl Histories {
    pub(super) fn open(plan: &Plan, has_nodes: bool, to_import: bool) -> Result<Self, Failure> {
        let disk = Arc::new(StdDisk::new(plan.database_dir()));
        let options = Options {
            memory_bytes: plan.memory,
            ..Options::default()
        };
        let (db, _) = Db::open(disk.clone(), options)?;
        let mut options = HistoryOptions {
            trie_bytes: IMPORT_TRIE_BYTES,
            ..plan.history_options()
        };
        if to_import {
            options.cache_bytes = options.cache_bytes.saturating_sub(IMPORT_TRIE_BYTES);
        }
        let history = match to_import {
            false => History::open_read_only(disk, &db, options)?,
            true => History::open(disk, &db, options)?,
        };
        let follower = to_import.then(|| HistoryFollower::start(history.clone(), db.clone()));
        let view = history.state_at(&db, 0)?;
        if has_nodes {
            view.extract(&ProofTargets::new(vec![(path(0), vec![])]))?;
        }
        Ok(Self {
            db,
            history,
            has_nodes,
            _follower: follower,
            _view: view,
        })
    }
}

impl OldStates for Histories {
    fn import(&self, indices: &[u64]) -> Result<(), Failure> {
        // Another process has imported blocks of the same content, and taken them back.
        commit(&self.db, indices, &format!("by {}", process::id()))?;
        Ok(())
    }

    fn read(&self, index: u64, number: u64, _: B256) -> Result<Found, Failure> {
        let view = self.history.state_at(&self.db, number)?;
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

//! Cambium's histories.

use super::{
    plan::{Failure, Plan, path},
    states::{Found, OldStates},
};
use alloy_primitives::B256;
use cambium_history::{History, HistoryView};
use cambium_primitives::Path as AccountPath;
use cambium_state::{Db, Options, StdDisk};
use cambium_trie::{Lookup, ProofTargets};
use std::sync::Arc;

/// A database and its history.
pub(super) struct Histories {
    db: Db,
    history: History,
    has_nodes: bool,
    /// What all views share stays as long as there is one.
    _view: HistoryView,
}

impl Histories {
    pub(super) fn open(plan: &Plan, has_nodes: bool) -> Result<Self, Failure> {
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

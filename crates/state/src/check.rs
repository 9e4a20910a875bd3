//! Checking a database: everything is read and hashed again, from the leaves up.

use crate::{
    base::Snapshot,
    db::Db,
    error::StateError,
    forest::{hash, shard_prefix},
    pages::{ReadFor, decode_leaf},
};
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{KECCAK_EMPTY, Path};
use cambium_trie::{LeafValue, Link, NodeView, PartialTrie, SHARDS};
use std::collections::HashSet;

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckProgress {
    /// So many of the 256 parts of the snapshot are checked, with so many leaves.
    State {
        /// Parts done.
        parts: usize,
        /// Leaves seen.
        leaves: u64,
    },
    /// So many codes are checked, of so many.
    Codes {
        /// Codes done.
        done: usize,
        /// All of them.
        of: usize,
    },
    /// So many blocks of the log are checked, of so many.
    Blocks {
        /// Blocks done.
        done: u64,
        /// All of them.
        of: u64,
    },
}

/// What a check found. The database is sound if `damage` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Accounts in the snapshot.
    pub accounts: u64,
    /// Slots in the snapshot.
    pub slots: u64,
    /// Pages read.
    pub pages: u64,
    /// Codes hashed.
    pub codes: u64,
    /// Canonical blocks read from the log.
    pub blocks: u64,
    /// All that is wrong, in words that name the file or the path.
    pub damage: Vec<String>,
}

impl Db {
    /// Reads every page, code and block, hashes the state from its leaves, and compares the
    /// roots: of the snapshot, and through the blocks above it of the head. Damage is reported,
    /// not repaired. Goes through the whole database; blocks can be committed meanwhile.
    pub fn check(
        &self,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<CheckReport, StateError> {
        let snapshot = self.inner.current.read().base.snapshot.clone();
        let mut report = CheckReport::default();
        let mut codes_used = HashSet::new();
        let mut shards = Vec::with_capacity(SHARDS);
        for shard in 0..SHARDS {
            match rebuild(&snapshot, shard, &mut report, &mut codes_used) {
                Ok(mut trie) => {
                    hash(&mut [&mut trie], &self.inner.counters);
                    let root = |trie: &PartialTrie| Some(trie.as_stub(trie.root())?.node);
                    if root(&trie) != root(snapshot.index.top(shard)) {
                        let prefix = shard_prefix(shard);
                        let what = "the leaves hash to another root than the index has";
                        report.damage.push(format!("state below {prefix}: {what}"));
                    }
                    shards.push(trie);
                }
                Err(error) => report.damage.push(error.to_string()),
            }
            let leaves = report.accounts + report.slots;
            progress(CheckProgress::State {
                parts: shard + 1,
                leaves,
            });
        }
        if shards.len() == SHARDS {
            let all: Vec<_> = shards.iter().collect();
            let root = cambium_trie::crown(&all)
                .ok()
                .and_then(|crown| crown.state_root());
            if root != Some(snapshot.state_root) {
                let (block, expected) = (snapshot.block, snapshot.state_root);
                let got = root.unwrap_or_default();
                report.damage.push(
                    StateError::WrongRoot {
                        block,
                        got,
                        expected,
                    }
                    .to_string(),
                );
            }
        }
        drop(shards);
        self.check_head(&mut report);
        self.check_codes(&codes_used, &mut report, progress);
        self.check_blocks(&mut report, progress);
        Ok(report)
    }

    /// The head's root, from the snapshot and the changes of the blocks since.
    fn check_head(&self, report: &mut CheckReport) {
        let root = self.view().and_then(|view| {
            let trie = view.extract(&Default::default())?;
            Ok((
                view.block(),
                trie.state_root().unwrap_or_default(),
                view.state_root(),
            ))
        });
        match root {
            Ok((_, got, expected)) if got == expected => {}
            Ok((block, got, expected)) => {
                report.damage.push(
                    StateError::WrongRoot {
                        block,
                        got,
                        expected,
                    }
                    .to_string(),
                );
            }
            Err(error) => report.damage.push(error.to_string()),
        }
    }

    fn check_codes(
        &self,
        used: &HashSet<B256>,
        report: &mut CheckReport,
        progress: &mut dyn FnMut(CheckProgress),
    ) {
        let mut hashes: HashSet<B256> = self.inner.codes.hashes().into_iter().collect();
        hashes.extend(used);
        let of = hashes.len();
        for (done, hash) in hashes.into_iter().enumerate() {
            match self.inner.codes.get(&hash) {
                Ok(Some(code)) if keccak256(&code) == hash => report.codes += 1,
                Ok(Some(_)) => report
                    .damage
                    .push(format!("code {hash}: its bytes hash to another")),
                Ok(None) => report
                    .damage
                    .push(StateError::MissingCode(hash).to_string()),
                Err(error) => report.damage.push(error.to_string()),
            }
            progress(CheckProgress::Codes { done: done + 1, of });
        }
    }

    fn check_blocks(&self, report: &mut CheckReport, progress: &mut dyn FnMut(CheckProgress)) {
        let (head, genesis) = (self.head(), self.genesis());
        let mut parent = None;
        for number in genesis.number..=head.number {
            match self.check_block(number, parent) {
                Ok(hash) => {
                    report.blocks += 1;
                    parent = Some(hash);
                }
                Err(damage) => {
                    report.damage.push(damage);
                    parent = None;
                }
            }
            let (done, of) = (
                number - genesis.number + 1,
                head.number - genesis.number + 1,
            );
            progress(CheckProgress::Blocks { done, of });
        }
    }

    fn check_block(&self, number: u64, parent: Option<B256>) -> Result<B256, String> {
        let entry = self.inner.blocks.canonical(number);
        let Some(entry) = entry.map_err(|error| error.to_string())? else {
            return Err(format!("block {number} is not in the block index"));
        };
        let record = self.inner.record_at(entry.position);
        let record = record.map_err(|error| StateError::beyond_repair(error).to_string())?;
        if record.meta.id.number != number || record.meta.id.hash != entry.hash {
            return Err(format!(
                "the block index has another block {number} than the log"
            ));
        }
        if parent.is_some_and(|parent| parent != record.meta.parent) {
            return Err(format!(
                "block {number} does not follow the block before it"
            ));
        }
        Ok(record.meta.id.hash)
    }
}

/// One shard of the snapshot, from its leaves alone.
fn rebuild(
    snapshot: &Snapshot,
    shard: usize,
    report: &mut CheckReport,
    codes: &mut HashSet<B256>,
) -> Result<PartialTrie, StateError> {
    let (index, prefix) = (snapshot.index.whole(shard)?, shard_prefix(shard));
    let mut leaves = Vec::new();
    let mut todo: Vec<(Link, Path)> = vec![(index.root(), prefix)];
    while let Some((link, at)) = todo.pop() {
        match index.visit(link) {
            NodeView::Empty => {}
            NodeView::Stub(stub) => {
                let page = snapshot.pages.read_uncached(stub, &at, ReadFor::Check)?;
                report.pages += 1;
                for (path, bytes) in page.leaves() {
                    leaves.push((path, decode_leaf(&path, bytes)?));
                }
            }
            NodeView::Branch { children } => {
                let nibbles = children
                    .iter()
                    .zip(0u8..)
                    .filter(|(child, _)| !child.is_empty());
                todo.extend(nibbles.map(|(child, nibble)| (*child, at.child(nibble))));
            }
            NodeView::Extension { path, child } => todo.push((child, at.join(&path))),
            NodeView::Account {
                key,
                account,
                storage,
                ..
            } => {
                leaves.push((Path::account(&key), LeafValue::Account(account)));
                todo.push((storage, Path::account(&key)));
            }
            NodeView::Slot { path, value, .. } => {
                leaves.push((at.join(&path), LeafValue::Slot(value)));
            }
        }
    }
    leaves.sort_unstable_by_key(|(path, _)| *path);
    for (_, leaf) in &leaves {
        match leaf {
            LeafValue::Account(account) => {
                report.accounts += 1;
                if account.code_hash != KECCAK_EMPTY {
                    codes.insert(account.code_hash);
                }
            }
            LeafValue::Slot(_) => report.slots += 1,
            // Pages hold whole subtries: an account in one has its storage beside it.
            LeafValue::Storage(_) => {}
        }
    }
    let mut trie = PartialTrie::new(prefix);
    let root = trie.graft_leaves(&prefix, leaves.into_iter(), std::iter::empty())?;
    trie.set_root(root);
    Ok(trie)
}

//! Builds one shard of an initial state from its sorted leaves, with bounded memory.
//!
//! The trie grows to the right. When it has enough leaves, it is hashed and merged into the shard's
//! pages, and all subtries that no later leaf can change are blinded. Only the path to the newest
//! leaf stays expanded.

use super::sort::LeafSink;
use crate::{
    base::{counters::Counters, error::StateError, hashing::hash_tries, layout::shard_prefix},
    dirty::HeldPages,
    merge::{MergedShard, PageSizes, merge_shard},
    pages::Pages,
};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, AccountDiff, AccountUpdate, EntryValue, Path};
use cambium_store::Codes;
use cambium_trie::{Commitment, NoResolve, NodeView, PartialTrie, TrieError, UpdateError};
use std::sync::Arc;

/// Number of leaves that are applied to the trie together.
const GROUP_LEAVES: usize = 1024;

/// Builds the trie of one shard and, unless only its root is needed, its pages.
pub(super) struct ShardBuilder<'a> {
    trie: PartialTrie,
    /// Where pages are written, and how large they become, or `None` if only the root is needed.
    pages: Option<(&'a Pages, PageSizes)>,
    /// The code file that must contain the code of each account.
    codes: Option<&'a Codes>,
    /// Index of the shard over the pages written so far.
    merged: MergedShard,
    counters: &'a Counters,
    /// Leaves to be applied to the trie next, sorted.
    group: Vec<AccountDiff>,
    /// Number of leaves in `group`.
    group_leaves: usize,
    /// Path of the newest leaf.
    newest: Option<(B256, Option<B256>)>,
    /// Number of leaves in the trie since it was last collapsed.
    leaves: usize,
    /// Number of leaves at which the trie is merged and collapsed.
    leaves_max: usize,
    /// Called with the number of leaves that were applied to the trie.
    progress: &'a dyn Fn(usize),
}

impl<'a> ShardBuilder<'a> {
    /// Creates an empty shard whose trie has at most about `leaves_max` leaves at a time.
    pub(super) fn new(
        shard: usize,
        commitment: Commitment,
        pages: Option<(&'a Pages, PageSizes)>,
        counters: &'a Counters,
        leaves_max: usize,
        progress: &'a dyn Fn(usize),
    ) -> Self {
        let empty = PartialTrie::new(shard_prefix(shard)).committed_by(commitment);
        Self {
            trie: empty.clone(),
            pages,
            codes: None,
            merged: MergedShard::unchanged(Arc::new(empty)),
            counters,
            group: Vec::new(),
            group_leaves: 0,
            newest: None,
            leaves: 0,
            leaves_max,
            progress,
        }
    }

    /// Rejects accounts whose code is not in `codes`.
    pub(super) fn with_codes(self, codes: Option<&'a Codes>) -> Self {
        Self { codes, ..self }
    }

    /// Returns the hashed root node over blinded children, and the index of the shard, which is
    /// empty if no pages were written.
    pub(super) fn finish(mut self) -> Result<(PartialTrie, MergedShard), StateError> {
        self.put_group()?;
        self.flush()?;
        let mut root = PartialTrie::new(*self.trie.base());
        root = root.committed_by(self.trie.commitment());
        let link = root.graft_node(&self.trie, self.trie.root())?;
        root.set_root(link);
        Ok((root, self.merged))
    }

    /// Checks that the next leaf follows the newest one, and counts it.
    fn advance(&mut self, account: &B256, slot: Option<B256>) -> Result<(), StateError> {
        if self.group_leaves >= GROUP_LEAVES {
            self.put_group()?;
        }
        let next = (*account, slot);
        let path = || match &slot {
            Some(slot) => Path::slot(account, slot),
            None => Path::account(account),
        };
        match &self.newest {
            Some(newest) if *newest >= next => {
                return Err(TrieError::Unsorted { path: path() }.into());
            }
            Some((owner, _)) if owner == account => {}
            _ if slot.is_some() => return Err(TrieError::Orphan { path: path() }.into()),
            _ => {}
        }
        self.newest = Some(next);
        self.group_leaves += 1;
        Ok(())
    }

    fn put_group(&mut self) -> Result<(), StateError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let put = self.trie.apply(&self.group, &mut NoResolve);
        put.map_err(|error| match error {
            UpdateError::Trie(error) => StateError::from(error),
            UpdateError::Resolve(missing) => StateError::Broken {
                path: missing.path,
                what: "a node left of the newest leaf",
            },
        })?;
        self.leaves += self.group_leaves;
        (self.progress)(self.group_leaves);
        self.group.clear();
        self.group_leaves = 0;
        if self.leaves >= self.leaves_max {
            self.flush()?;
            self.collapse_finished()?;
        }
        Ok(())
    }

    /// Hashes the trie, and merges it into the shard's pages.
    fn flush(&mut self) -> Result<(), StateError> {
        if self.leaves == 0 {
            return Ok(());
        }
        hash_tries(&mut [&mut self.trie], self.counters);
        if let Some((pages, sizes)) = self.pages {
            let (index, held) = (&self.merged.index, HeldPages::default());
            let merged = merge_shard(index, &self.trie, &held, pages, sizes)?;
            for addr in &merged.dead {
                pages.segments.mark_dead(*addr);
            }
            self.counters.pages_written.add(merged.pages);
            self.counters.pages_dead.add(merged.dead.len() as u64);
            self.merged = merged;
        }
        Ok(())
    }

    /// Blinds all subtries that no later leaf can change.
    fn collapse_finished(&mut self) -> Result<(), StateError> {
        if let Some((account, slot)) = self.newest {
            let newest = match slot {
                Some(slot) => Path::slot(&account, &slot),
                None => Path::account(&account),
            };
            for path in expanded_siblings(&self.trie, &newest) {
                self.trie.replace_by_stub(&path, None)?;
            }
        }
        self.leaves = 0;
        Ok(())
    }
}

impl LeafSink for ShardBuilder<'_> {
    fn account(&mut self, path: B256, account: Account) -> Result<(), StateError> {
        self.advance(&path, None)?;
        let code_hash = account.code_hash;
        let is_missing =
            |codes: &Codes| code_hash != KECCAK256_EMPTY && !codes.contains(&code_hash);
        if self.codes.is_some_and(is_missing) {
            let account = path;
            return Err(StateError::UnknownCode { account, code_hash });
        }
        self.group.push(AccountDiff {
            path,
            account: AccountUpdate::Put(account),
            wipe: false,
            slots: Vec::new(),
        });
        Ok(())
    }

    fn entry(&mut self, key: B256, value: EntryValue) -> Result<(), StateError> {
        self.advance(&key, None)?;
        self.group.push(AccountDiff {
            path: key,
            account: AccountUpdate::Entry(value),
            wipe: false,
            slots: Vec::new(),
        });
        Ok(())
    }

    fn slot(&mut self, account: &B256, slot: B256, value: U256) -> Result<(), StateError> {
        self.advance(account, Some(slot))?;
        if let Some(change) = self.group.last_mut()
            && change.path == *account
        {
            change.slots.push((slot, value));
            return Ok(());
        }
        self.group.push(AccountDiff {
            path: *account,
            account: AccountUpdate::Keep,
            wipe: false,
            slots: vec![(slot, value)],
        });
        Ok(())
    }
}

/// Returns the paths of the expanded subtries beside the path to `leaf`.
fn expanded_siblings(trie: &PartialTrie, leaf: &Path) -> Vec<Path> {
    let mut found = Vec::new();
    let (mut link, mut at) = (trie.root(), *trie.base());
    while at.len() < leaf.len() {
        match trie.visit(link) {
            NodeView::Branch { children } => {
                let on = leaf.nibble(at.len());
                for (nibble, child) in (0u8..).zip(children) {
                    // An account's leaf at depth 64 is never blinded.
                    let there = !child.is_empty() && !child.is_stub();
                    if nibble != on && there && at.len() + 1 != ACCOUNT_NIBBLES {
                        found.push(at.child(nibble));
                    }
                }
                (link, at) = (children[usize::from(on)], at.child(on));
            }
            NodeView::Extension { path, child } => (link, at) = (child, at.join(&path)),
            NodeView::Account { key, storage, .. } => (link, at) = (storage, Path::account(&key)),
            NodeView::Slot { .. }
            | NodeView::Entry { .. }
            | NodeView::Stub(_)
            | NodeView::Empty => break,
        }
    }
    found
}

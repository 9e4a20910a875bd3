//! The newest state in memory, from which the changes of each block are made. They are not measured: op-reth gets them
//! from the node.

use super::{
    entries::{encode_account, encode_node},
    walk::{State, add_account, first_path, walk},
};
use crate::history::plan::{Failure, Plan, account, path};
use alloy_primitives::B256;
use alloy_trie::{BranchNodeCompact, HashBuilder, Nibbles};
use cambium_primitives::Account;
use std::collections::BTreeMap;

pub(super) struct Newest {
    nodes: BTreeMap<Nibbles, BranchNodeCompact>,
    accounts: BTreeMap<B256, Account>,
    root: B256,
}

/// The accounts that a block changes, as they are after it, sorted by path.
pub(super) fn changed_accounts(number: u64, indices: &[u64]) -> Vec<(B256, Account)> {
    let changed = indices.iter().map(|index| (path(*index), account(number)));
    let mut changed: Vec<_> = changed.collect();
    changed.sort_unstable_by_key(|(path, _)| *path);
    changed
}

impl Newest {
    /// The first state of a plan.
    pub(super) fn first(plan: &Plan) -> Self {
        let accounts = (0..plan.accounts).map(|index| (path(index), account(0)));
        let accounts: BTreeMap<_, _> = accounts.collect();
        let mut builder = HashBuilder::default().with_updates(true);
        for (path, account) in &accounts {
            add_account(&mut builder, path, account);
        }
        let root = builder.root();
        Self {
            nodes: nodes_of(builder),
            accounts,
            root,
        }
    }

    pub(super) const fn root(&self) -> B256 {
        self.root
    }

    /// All branches as the tables have them, sorted.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Nibbles, Vec<u8>)> {
        let nodes = self.nodes.iter();
        nodes.map(|(path, node)| (*path, encode_node(node)))
    }

    /// All accounts as the tables have them, sorted.
    pub(super) fn accounts(&self) -> impl Iterator<Item = (B256, Vec<u8>)> {
        let accounts = self.accounts.iter();
        accounts.map(|(path, account)| (*path, encode_account(account)))
    }

    /// Adds a block. Returns the branches that it changes, as the tables have them, sorted.
    pub(super) fn add(
        &mut self,
        number: u64,
        changed: &[(B256, Account)],
    ) -> Result<Vec<(Nibbles, Vec<u8>)>, Failure> {
        self.accounts.extend(changed.iter().copied());
        let paths = changed.iter().map(|(path, _)| Nibbles::unpack(path));
        let paths: Vec<_> = paths.collect();
        let mut builder = HashBuilder::default().with_updates(true);
        let opened = walk(self, &paths, &mut builder)?;
        self.root = builder.root();
        let made = nodes_of(builder);
        if let Some(path) = opened.iter().find(|path| !made.contains_key(*path)) {
            return Err(format!("block {number}: the branch at {path:?} is gone").into());
        }
        // A branch that was opened and is unchanged is not written.
        let is_new = |(path, node): &(Nibbles, _)| self.nodes.get(path) != Some(node);
        let made: Vec<_> = made.into_iter().filter(is_new).collect();
        let encoded = made.iter().map(|(path, node)| (*path, encode_node(node)));
        let encoded = encoded.collect();
        self.nodes.extend(made);
        Ok(encoded)
    }
}

/// The branches that are kept, of those that were made.
fn nodes_of(builder: HashBuilder) -> BTreeMap<Nibbles, BranchNodeCompact> {
    let (_, made) = builder.split();
    made.into_iter()
        .filter(|(path, _)| !path.is_empty())
        .collect()
}

impl State for Newest {
    fn first_node(
        &self,
        prefix: &Nibbles,
    ) -> Result<Option<(Nibbles, BranchNodeCompact)>, Failure> {
        let first = self.nodes.range(prefix..).next();
        let found = first.filter(|(path, _)| path.starts_with(prefix));
        Ok(found.map(|(path, node)| (*path, node.clone())))
    }

    fn each_account(
        &self,
        prefix: &Nibbles,
        visit: &mut dyn FnMut(&B256, &Account),
    ) -> Result<(), Failure> {
        let below = self.accounts.range(first_path(prefix)..);
        let below = below.take_while(|(path, _)| Nibbles::unpack(path).starts_with(prefix));
        below.for_each(|(path, account)| visit(path, account));
        Ok(())
    }
}

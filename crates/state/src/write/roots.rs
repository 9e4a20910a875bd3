//! State roots of sessions: their changes are applied to the tries above the base.

use crate::tries::delta::as_bad_changes;
use crate::{
    engine::parts::Engine,
    layers::tree::Layer,
    options::LeafKind,
    tries::delta::LockedDelta,
    values::check_lengths,
    view::{known::KnownValues, state::View},
    write::reverts::{Touched, entry_reverts},
};
use alloy_primitives::B256;
use cambium_primitives::{AccountDiff, AccountUpdate, Changes};
use cambium_snapshot::{Key, StateError};
use cambium_trie::{EntryProof, PartialTrie, ProofTargets};
use std::{sync::Arc, time::Instant};

/// The outcome of applying all changes of a session.
pub(crate) struct StagedRoot {
    pub(crate) root: B256,
    pub(crate) reverts: Changes,
    /// References for the log, if there are some.
    pub(crate) references: Option<Vec<u8>>,
}

impl Engine {
    /// Rejects changes of another kind of leaf than the database has.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongLeaf`].
    pub(crate) fn check_leaves(&self, changes: &Changes) -> Result<(), StateError> {
        let is_wrong = |change: &&AccountDiff| match (&change.account, self.options.leaves) {
            (AccountUpdate::Entry(_), LeafKind::Accounts)
            | (AccountUpdate::Put(_) | AccountUpdate::Keep, LeafKind::Entries) => true,
            (AccountUpdate::Delete, _)
            | (AccountUpdate::Entry(_), LeafKind::Entries)
            | (AccountUpdate::Put(_) | AccountUpdate::Keep, LeafKind::Accounts) => false,
        };
        match changes.accounts().iter().find(is_wrong) {
            None => check_lengths(changes),
            Some(change) => Err(StateError::WrongLeaf {
                path: change.path,
                leaves: match self.options.leaves {
                    LeafKind::Accounts => "accounts",
                    LeafKind::Entries => "entries",
                },
            }),
        }
    }

    /// Applies `changes` of a session to the tries, on top of its parent's state and of the changes
    /// that it applied before. `all` are both together, which are applied if the tries have lost
    /// the earlier ones.
    pub(crate) fn apply_uncommitted(
        self: &Arc<Self>,
        view: &View,
        owner: u64,
        changes: &Changes,
        all: &Changes,
        reverts: Changes,
    ) -> Result<B256, StateError> {
        self.health.check()?;
        if let Some(layered) = &self.layered {
            return self.layered_root(layered, view, owner, all, &reverts);
        }
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.store.counters.roots.add(1);
        if delta.has_uncommitted_of(owner) {
            return delta
                .apply_uncommitted(owner, changes, reverts)
                .map_err(as_bad_changes);
        }
        self.layers.move_to(&mut delta, view.block())?;
        delta
            .apply_uncommitted(owner, all, reverts)
            .map_err(as_bad_changes)
    }

    /// Applies all changes of a session to the tries, on top of the state of `view`, of which it has
    /// read `known`. `storage_roots` that were given with the changes are compared with
    /// those of the tries, which have the roots of contracts whose storage is not kept from there.
    pub(crate) fn stage(
        self: &Arc<Self>,
        view: &View,
        owner: u64,
        changes: &Changes,
        known: &KnownValues,
        storage_roots: &[(B256, B256)],
    ) -> Result<StagedRoot, StateError> {
        self.health.check()?;
        if let Some(layered) = &self.layered {
            let reverts = view.reverts_of_block(changes, known)?;
            let root = self.layered_root(layered, view, owner, changes, &reverts)?;
            let references = None;
            return Ok(StagedRoot {
                root,
                reverts,
                references,
            });
        }
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.layers.move_to(&mut delta, view.block())?;
        let start = Instant::now();
        let touched = Touched::by(changes);
        let reverts = match self.options.leaves {
            LeafKind::Entries => entry_reverts(changes, delta.read(&touched.entries())?),
            LeafKind::Accounts => {
                let accounts = delta.read(&touched.accounts)?;
                view.reverts_from(changes, accounts, delta.read(&touched.slots)?)?
            }
        };
        let taken = start.elapsed().as_nanos() as u64;
        self.store.counters.revert_ns.add(taken);
        self.store.counters.roots.add(1);
        let root = delta.apply_uncommitted(owner, changes, reverts.clone());
        let root = root.map_err(as_bad_changes)?;
        delta.check_storage_roots(changes, storage_roots)?;
        let parent = delta.at();
        let references = self.references_after(&mut delta, parent, changes);
        Ok(StagedRoot {
            root,
            reverts,
            references,
        })
    }

    /// Computes the state root after a sealed block, from the changes of its layer, and returns it with references for the
    /// log, if there are some.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if the block was dropped.
    pub(crate) fn root_of(
        self: &Arc<Self>,
        layer: &Layer,
    ) -> Result<(B256, Option<Vec<u8>>), StateError> {
        self.health.check()?;
        self.catch_up()?;
        let mut delta = self.layers.delta.lock();
        if self.is_overgrown(delta.memory_bytes()) {
            delta.reset();
        }
        // Its layer may have been replaced, and stays where it is while the delta is locked.
        let (at, parent, path) = {
            let current = self.layers.current.read();
            let found = match layer.is_dropped() {
                true => None,
                false => current.tree.by_hash(&layer.block.hash),
            };
            let found = found.ok_or(StateError::UnknownBlock(layer.block.hash))?;
            (
                found.id,
                found.parent,
                delta.path_to(&current.tree, found.parent),
            )
        };
        delta.move_along(&path, parent)?;
        let touched = Touched::by(&layer.changes);
        match self.options.leaves {
            LeafKind::Entries => drop(delta.read(&touched.entries())?),
            LeafKind::Accounts => {
                delta.read(&touched.accounts)?;
                delta.read(&touched.slots)?;
            }
        }
        self.store.counters.roots.add(1);
        let root = delta.move_up(&layer.changes, at).map_err(as_bad_changes)?;
        Ok((
            root,
            self.references_after(&mut delta, parent, &layer.changes),
        ))
    }

    /// Reads leaves of the state of `view`, sorted by their paths, and loads the nodes on the paths
    /// to them.
    pub(crate) fn read<K: Key>(
        self: &Arc<Self>,
        view: &View,
        keys: &[K],
    ) -> Result<Vec<K::Value>, StateError> {
        self.health.check()?;
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.layers.move_to(&mut delta, view.block())?;
        delta.read(keys)
    }

    /// Extracts a partial trie from the state of `view`: see
    /// [`Delta::extract_for_changes`](crate::tries::delta::Delta::extract_for_changes).
    pub(crate) fn extract(
        self: &Arc<Self>,
        view: &View,
        keys: &ProofTargets,
        changes: &Changes,
    ) -> Result<Option<PartialTrie>, StateError> {
        self.health.check()?;
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.layers.move_to(&mut delta, view.block())?;
        let part = delta.extract_for_changes(keys, changes);
        part.map_err(as_bad_changes)
    }

    /// Proves entries of the state of `view` by their sorted keys: see
    /// [`Delta::prove_entries`](crate::tries::delta::Delta::prove_entries).
    pub(crate) fn prove_entries(
        self: &Arc<Self>,
        view: &View,
        keys: &[B256],
    ) -> Result<Option<EntryProof>, StateError> {
        self.health.check()?;
        self.catch_up()?;
        let mut delta = self.delta_above(view)?;
        self.layers.move_to(&mut delta, view.block())?;
        delta.prove_entries(keys)
    }

    /// Locks the delta, and makes sure that the block of `view` has a layer while it is locked.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if the block was dropped; a later block of the same hash is
    /// another one.
    pub(crate) fn delta_above(&self, view: &View) -> Result<LockedDelta<'_>, StateError> {
        let parent = view.block();
        loop {
            view.check_alive()?;
            self.layer_of(parent)?;
            let mut delta = self.layers.delta.lock();
            view.check_alive()?;
            if self.is_overgrown(delta.memory_bytes()) {
                delta.reset();
            }
            // The base may have moved in between.
            if self
                .layers
                .current
                .read()
                .tree
                .by_hash(&parent.hash)
                .is_some()
            {
                return Ok(delta);
            }
        }
    }

    /// Whether tries of that size are to be dropped. Nodes that blocks loaded which were never
    /// sealed would stay in memory if there is nothing to merge; dropped nodes are loaded again.
    pub(crate) fn is_overgrown(&self, bytes: usize) -> bool {
        let max = self.merging.limit.get();
        bytes > 2 * max || (bytes > max && !self.layers.can_merge())
    }
}

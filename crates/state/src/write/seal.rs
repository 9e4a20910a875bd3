//! Sealing: a staged block gets its number and hash, and a layer; dropping it removes the layer.

use crate::{
    engine::{layers::Current, parts::Engine},
    layered::parts::{Layered, LockedUppers},
    layers::{
        overlay::size_of_changes,
        tree::{Layer, Tree},
    },
    log::records::BlockMeta,
    view::state::View,
};
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::StateError;
use std::sync::Arc;

/// Where the state root of a staged block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootIs {
    /// It was computed from the tries.
    Computed,
    /// The caller claims it: it is verified before the block is committed.
    Claimed,
}

impl Engine {
    /// Adds a layer once there is memory for it. Before anything is kept, this checks the block's
    /// number, its parent's hash, and that its hash is new. `owner` is the session whose changes the tries have; `None` if the root is only claimed.
    pub(crate) fn seal(
        self: &Arc<Self>,
        view: &View,
        owner: Option<u64>,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Result<Arc<Layer>, StateError> {
        self.health.check()?;
        self.journal.check_writable("sealed")?;
        let (id, parent) = (meta.id, view.block());
        if meta.parent != parent.hash || parent.number.checked_add(1) != Some(id.number) {
            return Err(StateError::NotAChild {
                block: id,
                claimed: meta.parent,
                parent,
            });
        }
        self.check_new(id)?;
        self.check_ancestors(parent, id)?;
        // Where no root was computed, nothing has merged yet what replay left.
        self.catch_up()?;
        self.wait_for_room(size_of_changes(&changes))?;
        let Some(owner) = owner else {
            return self.seal_claimed(view, meta, changes, reverts);
        };
        if let Some(layered) = &self.layered {
            return self.seal_layered(layered, view, owner, meta, changes, reverts);
        }
        let mut delta = self.delta_above(view)?;
        self.check_new(id)?;
        let mut current = self.layers.current.write();
        self.check_still_new(id, &current)?;
        let parent = current.tree.by_hash(&parent.hash).cloned();
        let parent = parent.expect("the delta is above the parent");
        let layer = current.add(&parent, meta, changes, reverts);
        delta.adopt(owner, layer.id);
        Ok(layer)
    }

    /// Adds a layer of a block whose root is not computed yet. It does not wait for the tries, which may be at work on
    /// the root of a block below.
    fn seal_claimed(
        &self,
        view: &View,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Result<Arc<Layer>, StateError> {
        let (id, parent) = (meta.id, view.block());
        loop {
            view.check_alive()?;
            self.layer_of(parent)?;
            // Another caller may have committed it while this one waited for memory.
            self.check_new(id)?;
            let mut current = self.layers.current.write();
            self.check_still_new(id, &current)?;
            // The base may have moved in between.
            if let Some(parent) = current.tree.by_hash(&parent.hash).cloned() {
                return Ok(current.add(&parent, meta, changes, reverts));
            }
        }
    }

    /// Adds a layer of a block whose root was computed from upper tries. It does not wait for the
    /// tries above the base, which may be at work on the root of a snapshot.
    fn seal_layered(
        &self,
        layered: &Layered,
        view: &View,
        owner: u64,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Result<Arc<Layer>, StateError> {
        let (id, parent) = (meta.id, view.block());
        let mut uppers = layered.lock();
        loop {
            view.check_alive()?;
            self.layer_of(parent)?;
            // While the upper tries are locked, none is dropped.
            self.check_new(id)?;
            let mut current = self.layers.current.write();
            self.check_still_new(id, &current)?;
            // The base may have moved in between.
            if let Some(parent) = current.tree.by_hash(&parent.hash).cloned() {
                let layer = current.add(&parent, meta, changes, reverts);
                uppers.adopt(owner, parent.block.hash, id.hash);
                return Ok(layer);
            }
        }
    }

    /// Rejects a block that is sealed, or committed and still known.
    fn check_new(&self, id: BlockId) -> Result<(), StateError> {
        let is_there = id.hash == self.journal.genesis.hash
            || self.find(&id.hash).is_some()
            || self.journal.blocks.position_of(id)?.is_some();
        match is_there {
            true => Err(StateError::BlockExists(id)),
            false => Ok(()),
        }
    }

    /// Rejects a block that another caller has sealed or committed since [`Self::check_new`].
    fn check_still_new(&self, id: BlockId, current: &Current) -> Result<(), StateError> {
        let is_there = current.tree.by_hash(&id.hash).is_some()
            || self.journal.blocks.recent(&id.hash).is_some();
        match is_there {
            true => Err(StateError::BlockExists(id)),
            false => Ok(()),
        }
    }

    /// Rejects a block with the hash of one of its near ancestors. Only the block index may know
    /// these if the head was far above them.
    fn check_ancestors(&self, parent: BlockId, id: BlockId) -> Result<(), StateError> {
        let heights = self.options.unfinalized_blocks as u64;
        let mut below = parent;
        {
            // Blocks with a layer were found by their hash already.
            let current = self.layers.current.read();
            for _ in 0..=heights {
                let Some(layer) = current.tree.by_hash(&below.hash) else {
                    break;
                };
                let Some(number) = below.number.checked_sub(1) else {
                    return Ok(());
                };
                below = BlockId::new(number, layer.parent_hash);
            }
        }
        let heights = heights.saturating_sub(parent.number - below.number);
        match self
            .journal
            .blocks
            .is_near_ancestor(&id.hash, below, heights)?
        {
            true => Err(StateError::BlockExists(id)),
            false => Ok(()),
        }
    }

    /// Frees the branches that do not descend from the finalized block, if there is one.
    pub(crate) fn free_branches(&self) -> Result<(), StateError> {
        let Some(finalized) = self.journal.finality.lock().finalized else {
            return Ok(());
        };
        // Usually there are none, and the tries need not be locked.
        let tree = self.layers.current.read().tree.clone();
        if self.beside(finalized, &tree)?.is_empty() {
            return self.journal.blocks.forget_branches(finalized);
        }
        let uppers = self.layered.as_ref().map(Layered::lock);
        let mut delta = self.layers.delta.lock();
        let mut current = self.layers.current.write();
        let tree = &current.tree;
        let lost = self.beside(finalized, tree)?;
        tracing::info!(blocks = lost.len(), %finalized, "freeing branches beside the finalized block");
        if lost.iter().any(|layer| layer.id == delta.at()) {
            let head = tree.head().id;
            let path = delta.path_to(tree, head);
            // After an error the tries are at the base.
            let _ = delta.move_along(&path, head);
        }
        if let Some(values) = &self.store.values {
            for layer in &lost {
                values.keep_for(&layer.changes, &layer.reverts, layer.block.number);
            }
        }
        self.take_out(&mut current, uppers, &lost, |_| 1);
        drop(current);
        self.journal.blocks.forget_branches(finalized)
    }

    /// The layers of blocks that can't be committed, or built upon, now that `finalized` is: parents before
    /// their children.
    fn beside(&self, finalized: BlockId, tree: &Tree) -> Result<Vec<Arc<Layer>>, StateError> {
        let mut lost = Vec::new();
        for layer in tree.above_root() {
            let known = self.newest_committed(layer.block, tree)?;
            // A sealed block on an ancestor of the finalized block does not descend from the latter.
            let is_sealed = known != layer.block;
            let is_on_same_branch = self.journal.blocks.is_on_same_branch(known, finalized)?;
            if !is_on_same_branch || is_sealed && known.number < finalized.number {
                lost.push(layer);
            }
        }
        lost.sort_by_key(|layer| layer.block.number);
        Ok(lost)
    }

    /// The block, or its newest ancestor that is committed, if those above have layers.
    fn newest_committed(&self, mut block: BlockId, tree: &Tree) -> Result<BlockId, StateError> {
        while self.journal.blocks.position_of(block)?.is_none()
            && let Some(layer) = tree.by_hash(&block.hash)
        {
            block = BlockId::new(block.number.saturating_sub(1), layer.parent_hash);
        }
        Ok(block)
    }

    /// Fails with [`StateError::NotOnFinalized`] if a block on `parent` could not be committed.
    pub(crate) fn check_buildable(&self, parent: BlockId) -> Result<(), StateError> {
        if self.journal.finality.lock().finalized.is_none() {
            return Ok(());
        }
        // Blocks without a layer are looked up on disk at most: nothing is copied.
        let known = self.newest_committed(parent, &self.layers.current.read().tree)?;
        self.check_finalized(known)
    }

    /// Removes a block that was sealed and not committed, and all blocks on it.
    pub(crate) fn drop_sealed(&self, layer: &Arc<Layer>) {
        let uppers = self.layered.as_ref().map(Layered::lock);
        let mut delta = self.layers.delta.lock();
        let mut current = self.layers.current.write();
        let tree = &current.tree;
        // A merge may have replaced its layer, or a dropped block below may have removed it.
        let found = match layer.is_dropped() {
            true => None,
            false => tree
                .get(layer.id)
                .or_else(|| tree.by_hash(&layer.block.hash)),
        };
        let (found, parent) = match found {
            Some(found) if found.block == layer.block => (found.id, found.parent),
            _ => return,
        };
        if self.journal.blocks.recent(&layer.block.hash).is_some() {
            return;
        }
        let lost = tree.descendants(found);
        if lost.contains(&delta.at()) {
            let path = delta.path_to(tree, parent);
            // After an error the tries are at the base.
            let _ = delta.move_along(&path, parent);
        }
        let lost: Vec<_> = lost
            .iter()
            .filter_map(|id| tree.get(*id).cloned())
            .collect();
        // References in `lost`, and in the `Sealed` that is being dropped.
        let held = |lost: &Arc<Layer>| 1 + usize::from(Arc::ptr_eq(lost, layer));
        self.take_out(&mut current, uppers, &lost, held);
    }

    /// Takes layers out of the tree: parents before their children in `lost`, with everything that is
    /// built on them. The caller holds `held` references to each.
    fn take_out(
        &self,
        current: &mut Current,
        mut uppers: Option<LockedUppers<'_>>,
        lost: &[Arc<Layer>],
        held: impl Fn(&Arc<Layer>) -> usize,
    ) {
        if lost.is_empty() {
            return;
        }
        let Current { tree, overlay, .. } = current;
        for layer in lost.iter().rev() {
            tree.remove(layer.id);
        }
        let mut others = 0;
        for layer in lost {
            layer.mark_dropped();
            if let Some(uppers) = &mut uppers {
                uppers.forget(layer.block.hash);
            }
            others += Arc::strong_count(layer).saturating_sub(held(layer));
        }
        match others {
            0 => lost.iter().for_each(|layer| layer.take_out_of(overlay)),
            // A view may hold them, and must not change.
            _ => {
                let old = std::mem::replace(overlay, Arc::new(tree.overlay()));
                self.layers.note_pinned(&old);
            }
        }
    }
}

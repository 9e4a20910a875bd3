//! Sealing: a staged block gets its number and hash, and a layer; dropping it removes the layer.

use crate::{
    engine::{layers::Current, parts::Engine},
    layered::parts::Layered,
    layers::{overlay::size_of_changes, tree::Layer},
    log::records::{BlockMeta, check_record},
    view::state::View,
};
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::StateError;
use std::sync::Arc;

impl Engine {
    /// Adds a layer once there is memory for it. Before anything is kept, this checks the block's
    /// number, its parent's hash, and that its hash is new. `record` is the size of its record in
    /// the log, in bytes.
    pub(crate) fn seal(
        self: &Arc<Self>,
        view: &View,
        owner: u64,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
        record: usize,
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
        check_record("record of a block", record)?;
        self.check_new(id)?;
        self.check_ancestors(parent, id)?;
        self.wait_for_room(size_of_changes(&changes))?;
        if let Some(layered) = &self.layered {
            return self.seal_layered(layered, view, owner, meta, changes, reverts);
        }
        let mut delta = self.delta_above(view)?;
        // While the delta is locked, only layers of known blocks are added.
        self.check_new(id)?;
        let mut current = self.layers.current.write();
        let parent = current.tree.by_hash(&parent.hash).cloned();
        let parent = parent.expect("the delta is above the parent");
        let layer = current.add(&parent, meta, changes, reverts);
        delta.adopt(owner, layer.id);
        Ok(layer)
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
            // While the upper tries are locked, only layers of known blocks are added, and none is
            // dropped.
            self.check_new(id)?;
            let mut current = self.layers.current.write();
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

    /// Removes a block that was sealed and not committed, and all blocks on it.
    pub(crate) fn drop_sealed(&self, layer: &Arc<Layer>) {
        let mut uppers = self.layered.as_ref().map(Layered::lock);
        let mut delta = self.layers.delta.lock();
        let mut current = self.layers.current.write();
        let Current { tree, overlay, .. } = &mut *current;
        // A merge may have replaced its layer, or a dropped block below may have removed it.
        let found = match layer.is_dropped() {
            true => None,
            false => tree
                .get(layer.id)
                .or_else(|| tree.by_hash(&layer.block.hash)),
        };
        let found = match found {
            Some(found) if found.block == layer.block => found.clone(),
            _ => return,
        };
        if self.journal.blocks.recent(&layer.block.hash).is_some() {
            return;
        }
        let lost = tree.descendants(found.id);
        if lost.contains(&delta.at()) {
            let path = delta.path_to(tree, found.parent);
            // After an error the tries are at the base.
            let _ = delta.move_along(&path, found.parent);
        }
        let mut gone = Vec::with_capacity(lost.len());
        for id in lost.into_iter().rev() {
            gone.extend(tree.get(id).cloned());
            tree.remove(id);
        }
        drop(found);
        let mut held = 0;
        for lost in &gone {
            lost.mark_dropped();
            if let Some(uppers) = &mut uppers {
                uppers.forget(lost.block.hash);
            }
            // References in `gone`, and in the `Sealed` that is being dropped.
            let expected = 1 + usize::from(Arc::ptr_eq(lost, layer));
            held += Arc::strong_count(lost).saturating_sub(expected);
        }
        match held {
            0 => gone.iter().for_each(|layer| layer.take_out_of(overlay)),
            // A view may hold them, and must not change.
            _ => {
                let old = std::mem::replace(overlay, Arc::new(tree.overlay()));
                self.layers.note_pinned(&old);
            }
        }
    }
}

//! Restoring states that have no layer: blocks below the base, and branches that are not in memory.
//!
//! ```text
//!   97 -- 98 -- 99 -- 100 (the base)         100 (the base)
//!          \                          ->       \
//!           99' -- 100'                         98 -- 99' -- 100'
//!                                               ^ a restored layer, by the reverts of 100 and 99
//! ```
//!
//! Changes and reverts are read from the log. A *view* of such a state owns it, as one layer above
//! the base, and drops it with itself. A block to *build upon*, or to make the head, becomes layers
//! of the tree, as in the picture. Both are limited in memory. To make a block the head whose
//! layers would exceed the limit, the head goes down in steps, each merged before the next.

use crate::engine::layers::Current;
use crate::engine::past_states::PastState;
use crate::log::kept::Kept;
use crate::{
    engine::parts::Engine,
    layers::{
        overlay::{AncestorSet, LayerId, Overlay, size_of_changes},
        tree::{Fold, Layer, Tree},
    },
    log::{
        blocks::{FoundBlock, RecentBlock},
        records::BlockMeta,
    },
    tries::base::Base,
    view::state::View,
};
use cambium_primitives::BlockNumber;
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::{StateError, restored_bytes_max, restored_bytes_reserved};
use parking_lot::Mutex;
use std::sync::{Arc, atomic::AtomicUsize};

/// Whether values that are stored apart from their leaves are read from a restored state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LongValueUse {
    Read,
    None,
}

/// A restored layer: the state of an ancestor of the base.
struct RestoredLayer {
    target: BlockMeta,
    base: BlockId,
    /// From the base's state to the target's.
    changes: Changes,
    reverts: Changes,
}

/// The branch of a block that is not in the tree: the newest ancestor that is in the tree or below
/// the base, and the blocks above that one, newest first.
pub(crate) struct Branch {
    pub(crate) fork: BlockId,
    side: Vec<RecentBlock>,
}

/// The memory that a restored state may take. Each change set is deducted as it is read.
pub(crate) struct Allowance {
    block: BlockId,
    distance: u64,
    pub(crate) left: usize,
    bytes_max: usize,
}

impl Allowance {
    /// Deducts the memory of `changes`.
    ///
    /// # Errors
    ///
    /// [`StateError::TooFar`] if too little is left.
    pub(crate) fn take(&mut self, changes: &Changes) -> Result<(), StateError> {
        let left = self.left.checked_sub(size_of_changes(changes));
        self.left = left.ok_or(StateError::TooFar {
            block: self.block,
            distance: self.distance,
            bytes_max: self.bytes_max as u64,
        })?;
        Ok(())
    }
}

impl Engine {
    /// A view of a layer of `current`.
    pub(crate) fn view_at(self: &Arc<Self>, current: &Current, layer: Arc<Layer>) -> View {
        View {
            inner: self.clone(),
            base: current.base.clone(),
            overlay: current.overlay.clone(),
            layer,
            past: None,
            pin: None,
        }
    }

    /// The memory, in bytes, that restoring `block` may take, given the current base.
    pub(crate) fn allowance(&self, block: BlockId, base: BlockId) -> Allowance {
        let all = restored_bytes_max(self.options.memory_bytes) as usize;
        let left = all.saturating_sub(self.past.bytes());
        Allowance {
            block,
            distance: base.number.abs_diff(block.number),
            left,
            bytes_max: left,
        }
    }

    /// As [`Engine::allowance`], for a view. Views of old blocks leave some of it to blocks on which others can be
    /// built.
    fn view_allowance(&self, block: BlockId, base: BlockId) -> Allowance {
        let mut allowance = self.allowance(block, base);
        let head = self.layers.current.read().tree.head().block.number;
        let is_old = block
            .number
            .saturating_add(self.options.unfinalized_blocks as u64)
            <= head;
        if is_old && !self.journal.is_read_only() {
            let reserved = restored_bytes_reserved(self.options.memory_bytes) as usize;
            allowance.left = allowance.left.saturating_sub(reserved);
            allowance.bytes_max = allowance.left;
        }
        allowance
    }

    /// The layer of a block, which is restored if it is not in memory.
    ///
    /// # Errors
    ///
    /// [`StateError::TooFar`] if that takes too much memory, and [`StateError::UnknownBlock`].
    pub(crate) fn layer_of(&self, id: BlockId) -> Result<Arc<Layer>, StateError> {
        self.restore_layer(id, false)
    }

    /// Does the same as [`Engine::layer_of`], without a limit of memory if `ignore_budget`.
    pub(crate) fn restore_layer(
        &self,
        id: BlockId,
        ignore_budget: bool,
    ) -> Result<Arc<Layer>, StateError> {
        let mut restored = None;
        loop {
            let tree = {
                let current = self.layers.current.read();
                if let Some(layer) = current.tree.by_hash(&id.hash) {
                    return Ok(layer.clone());
                }
                current.tree.clone()
            };
            let root = tree.root();
            let Branch { fork, side } = self.branch_of(&tree, id)?;
            let mut allowance = self.allowance(id, root.block);
            if ignore_budget {
                allowance.left = usize::MAX;
            }
            if tree.by_hash(&fork.hash).is_none() {
                restored = self.restore_ancestor(fork, root.block, restored, &mut allowance)?;
            }
            let mut records = Vec::with_capacity(side.len());
            for block in side.iter().rev() {
                let record = self.journal.record_of(block.id, block.position)?;
                allowance.take(&record.changes)?;
                records.push(record);
            }
            let mut current = self.layers.current.write();
            // The base may have moved meanwhile. Then only the rest of the way has to be read.
            if !Arc::ptr_eq(current.tree.root(), root) {
                continue;
            }
            let mut parent = match (current.tree.by_hash(&fork.hash).cloned(), restored) {
                (Some(layer), _) => layer,
                (None, Some(restored)) => {
                    current.add(root, &restored.target, restored.changes, restored.reverts)
                }
                // Its layer was dropped meanwhile and has to be restored as well.
                (None, None) if tree.by_hash(&fork.hash).is_some() => {
                    restored = None;
                    continue;
                }
                (None, None) => return Err(StateError::UnknownBlock(id.hash)),
            };
            for record in records {
                parent = match current.tree.by_hash(&record.meta.id.hash).cloned() {
                    Some(layer) => layer,
                    None => current.add(&parent, &record.meta, record.changes, record.reverts),
                };
            }
            return Ok(parent);
        }
    }

    /// The branch of `id` above `tree` or the ancestors of the base. Layers that are added to the
    /// tree meanwhile do not count, so the caller finds the fork in `tree`.
    pub(crate) fn branch_of(&self, tree: &Tree, id: BlockId) -> Result<Branch, StateError> {
        let unknown = || StateError::UnknownBlock(id.hash);
        let (mut fork, mut side) = (id, Vec::new());
        while tree.by_hash(&fork.hash).is_none() {
            let block = match self.journal.blocks.find(fork)?.ok_or_else(unknown)? {
                FoundBlock::BaseAncestor => break,
                FoundBlock::Recent(block) => block,
            };
            let below = fork.number.checked_sub(1).ok_or_else(unknown)?;
            fork = BlockId::new(below, block.parent);
            side.push(block);
        }
        Ok(Branch { fork, side })
    }

    /// The layer that restores `target`, an ancestor of `base`. `known` may be such a layer above
    /// an older base. `None` if `target` is not an ancestor, for example because the base has
    /// moved.
    fn restore_ancestor(
        &self,
        target: BlockId,
        base: BlockId,
        known: Option<RestoredLayer>,
        allowance: &mut Allowance,
    ) -> Result<Option<RestoredLayer>, StateError> {
        let known = known
            .filter(|restored| restored.target.id == target && restored.base.number <= base.number);
        let restored = match known {
            Some(restored) => restored,
            None => {
                let entry = self.journal.blocks.base_ancestor(target.number)?;
                let Some(entry) = entry.filter(|entry| entry.hash == target.hash) else {
                    return Ok(None);
                };
                RestoredLayer {
                    target: self.journal.meta_of(target, entry.position)?,
                    base: target,
                    changes: Changes::default(),
                    reverts: Changes::default(),
                }
            }
        };
        let (mut down, mut up) = (Fold::forwards(), Fold::backwards());
        let mut expected = base.hash;
        for number in (restored.base.number + 1..=base.number).rev() {
            let entry = self.journal.blocks.base_ancestor(number)?;
            let Some(entry) = entry.filter(|entry| entry.hash == expected) else {
                return Ok(None);
            };
            let id = BlockId::new(number, entry.hash);
            let record = self.journal.record_of(id, entry.position)?;
            expected = record.meta.parent;
            allowance.take(&record.reverts)?;
            down.push(record.reverts);
            up.push(record.changes);
        }
        Ok((expected == restored.base.hash).then(|| RestoredLayer {
            base,
            changes: down.finish().then(restored.changes),
            reverts: restored.reverts.then(up.finish()),
            ..restored
        }))
    }

    /// The newest block of the branch of `id` that is in `tree` or an ancestor of the base.
    pub(crate) fn fork_of(&self, tree: &Tree, id: BlockId) -> Result<BlockId, StateError> {
        Ok(self.branch_of(tree, id)?.fork)
    }

    /// The state after that block.
    pub(crate) fn view_of(self: &Arc<Self>, id: BlockId) -> Result<View, StateError> {
        self.restored_view(id, LongValueUse::Read)
    }

    /// The state after that block, for its trie alone: long values of it may be gone. So the snapshot
    /// of the `layered` commitment may be below the blocks that are kept.
    pub(crate) fn trie_view_of(self: &Arc<Self>, id: BlockId) -> Result<View, StateError> {
        self.restored_view(id, LongValueUse::None)
    }

    fn restored_view(
        self: &Arc<Self>,
        id: BlockId,
        long_values: LongValueUse,
    ) -> Result<View, StateError> {
        {
            let current = self.layers.current.read();
            if let Some(layer) = current.tree.by_hash(&id.hash) {
                return match layer.block == id {
                    true => Ok(self.view_at(&current, layer.clone())),
                    false => Err(StateError::UnknownBlock(id.hash)),
                };
            }
        }
        let known = self.past.get(&id.hash);
        if let Some(state) = known.filter(|state| state.layer.block == id) {
            return Ok(self.past_view(state));
        }
        loop {
            let (base, above) = {
                let current = self.layers.current.read();
                (current.base.clone(), current.tree.clone())
            };
            let root = above.root().block;
            let Branch { fork, side } = self.branch_of(&above, id)?;
            let mut allowance = self.view_allowance(id, root);
            let mut fold = Fold::forwards();
            let mut has_values = true;
            match above.by_hash(&fork.hash) {
                Some(layer) => {
                    let up: Vec<_> = above.chain(layer.id).cloned().collect();
                    for layer in up.iter().rev().skip(1) {
                        allowance.take(&layer.changes)?;
                        fold.push(layer.changes.clone());
                    }
                }
                None => {
                    if let Err(error) = self.check_values_kept(fork) {
                        has_values = false;
                        if long_values == LongValueUse::Read {
                            return Err(error);
                        }
                    }
                    if !self.fold_down(fork, root, &mut fold, &mut allowance)? {
                        // Either the base has moved meanwhile, or the block is not an ancestor of
                        // it.
                        if self.layers.current.read().tree.root().id == above.root().id {
                            return Err(StateError::UnknownBlock(id.hash));
                        }
                        continue;
                    }
                }
            }
            for block in side.iter().rev() {
                let record = self.journal.record_of(block.id, block.position)?;
                allowance.take(&record.changes)?;
                fold.push(record.changes);
            }
            let Some(position) = self.journal.blocks.position_of(id)? else {
                return Err(StateError::UnknownBlock(id.hash));
            };
            let meta = self.journal.meta_of(id, position)?;
            let state = self.past_state(base, meta, &fold.finish());
            // Callers that find it there may read values.
            if has_values {
                self.past.put(&state);
            }
            return Ok(self.past_view(state));
        }
    }

    /// Fails with [`StateError::NotKept`] if values may be gone to which reverts down to `fork` refer.
    /// Unlike the log, which has a few hundred blocks more, values go with the blocks that are kept.
    fn check_values_kept(&self, fork: BlockId) -> Result<(), StateError> {
        match self.store.values.is_some() && fork.number < self.journal.kept().number {
            true => Err(self.journal.not_kept()),
            false => Ok(()),
        }
    }

    /// Folds the reverts from `base` down to its ancestor `target`. False if `target` is not an
    /// ancestor.
    fn fold_down(
        &self,
        target: BlockId,
        base: BlockId,
        fold: &mut Fold,
        allowance: &mut Allowance,
    ) -> Result<bool, StateError> {
        let mut expected = base.hash;
        for number in (target.number + 1..=base.number).rev() {
            let entry = self.journal.blocks.base_ancestor(number)?;
            let Some(entry) = entry.filter(|entry| entry.hash == expected) else {
                return Ok(false);
            };
            let id = BlockId::new(number, entry.hash);
            let record = self.journal.record_of(id, entry.position)?;
            expected = record.meta.parent;
            allowance.take(&record.reverts)?;
            fold.push(record.reverts);
        }
        Ok(expected == target.hash)
    }

    /// The state of a block as one layer above `base`.
    fn past_state(&self, base: Arc<Base>, meta: BlockMeta, changes: &Changes) -> Arc<PastState> {
        let id = LayerId(1);
        let overlay = Overlay::new();
        overlay.insert(id, changes, 0);
        let bytes = overlay.bytes();
        let state = PastState {
            base,
            overlay: Arc::new(overlay),
            layer: Arc::new(Layer {
                id,
                parent: LayerId(0),
                ancestors: AncestorSet {
                    newest: id,
                    others: Arc::new([]),
                },
                block: meta.id,
                parent_hash: meta.parent,
                state_root: meta.state_root,
                changes: Changes::default(),
                reverts: Changes::default(),
                dropped: Arc::default(),
                leaves_since_references: AtomicUsize::new(0),
            }),
            prover: Mutex::new(None),
            bytes: AtomicUsize::new(0),
            registry: self.past.clone(),
        };
        state.count(bytes);
        Arc::new(state)
    }

    /// A view of a restored state.
    fn past_view(self: &Arc<Self>, state: Arc<PastState>) -> View {
        View {
            inner: self.clone(),
            base: state.base.clone(),
            overlay: state.overlay.clone(),
            layer: state.layer.clone(),
            past: Some(state),
            pin: None,
        }
    }

    /// Fails with [`StateError::NotKept`] if making the block the head, or committing it, needs
    /// reverts that the log does not keep. The caller has locked `writer`.
    pub(crate) fn check_kept(&self, id: BlockId) -> Result<(), StateError> {
        let kept = self.journal.kept();
        if kept == Kept::ALL {
            return Ok(());
        }
        let restored = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            let layer = tree.by_hash(&id.hash);
            // Of the blocks in memory, only those above a restored layer below the root need the
            // log.
            layer.map(|layer| {
                tree.chain(layer.id)
                    .find(|layer| tree.is_restored(layer))
                    .cloned()
            })
        };
        let fork = match restored {
            Some(None) => return Ok(()),
            Some(Some(restored)) => self.fork_of_restored(&restored)?,
            None => {
                let tree = self.layers.current.read().tree.clone();
                self.fork_of(&tree, id)?.number
            }
        };
        match fork < kept.number {
            true => Err(self.journal.not_kept()),
            false => Ok(()),
        }
    }

    /// Number of the canonical block that a restored layer stands for, or on which its block is
    /// built.
    fn fork_of_restored(&self, restored: &Layer) -> Result<BlockNumber, StateError> {
        let BlockId { number, hash } = restored.block;
        let canonical = self.journal.blocks.base_ancestor(number)?;
        Ok(match canonical.is_some_and(|entry| entry.hash == hash) {
            true => number,
            false => number.saturating_sub(1),
        })
    }
}

//! States that no layer has: of blocks below the base, and of branches that are not in memory.
//!
//! ```text
//!   97 -- 98 -- 99 -- 100 (the base)         100 (the base)
//!          \                          ->       \
//!           99' -- 100'                         98 -- 99' -- 100'
//!                                               ^ a jump, by the ways back of 100 and 99
//! ```
//!
//! They are brought back from the log. A *view* of such a state has it for itself, as one layer
//! above the base, and takes it along when it goes. What is to be *built upon*, or made the head,
//! becomes layers of the tree, as above. Both have a limit of memory; the head gets past it by
//! going down in steps, each merged before the next.

use crate::{
    base::Base,
    blocks::{FoundBlock, RecentBlock},
    commit::describe,
    db::{Holds, Inner},
    delta::Delta,
    overlay::{LayerId, Lineage, Overlay, size_of_changes},
    records::{BlockMeta, BlockRecord},
    tree::{Fold, Layer, Tree},
    view::View,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::{StateError, past_bytes, retried};
use cambium_store::{BlockLog, Checkpoint, LogPosition, Record, StoreError};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The state after an old block, which views share: one layer above a base.
pub(crate) struct PastState {
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) layer: Arc<Layer>,
    /// Its tries, if somebody has asked for a proof.
    pub(crate) prover: Mutex<Option<Delta>>,
    /// What its values take, and its tries.
    bytes: AtomicUsize,
    registry: Arc<PastStates>,
}

impl PastState {
    /// Counts what the tries take now; they go if all old states would take more than `bytes_max`.
    pub(crate) fn count_prover(&self, prover: &mut Option<Delta>, bytes_max: usize) {
        let values = self.overlay.bytes();
        let tries = prover.as_ref().map_or(0, Delta::memory_bytes);
        self.count(values + tries);
        if self.registry.bytes() > bytes_max {
            *prover = None;
            self.count(values);
        }
    }

    fn count(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.registry.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.registry.bytes.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for PastState {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// The old states that views hold, and what they take.
#[derive(Default)]
pub(crate) struct PastStates {
    by_hash: Mutex<HashMap<B256, Weak<PastState>>>,
    bytes: AtomicUsize,
}

impl PastStates {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let states = self.by_hash.lock();
        states.values().filter(|one| one.strong_count() > 0).count()
    }

    fn get(&self, hash: &B256) -> Option<Arc<PastState>> {
        self.by_hash.lock().get(hash)?.upgrade()
    }

    fn put(&self, state: &Arc<PastState>) {
        let mut states = self.by_hash.lock();
        states.retain(|_, one| one.strong_count() > 0);
        states.insert(state.layer.block.hash, Arc::downgrade(state));
    }
}

/// The way from a base to one of its ancestors.
struct Jump {
    target: BlockMeta,
    base: BlockId,
    /// From the base's state to the target's.
    changes: Changes,
    reverts: Changes,
}

/// Where a block's branch leaves what is in the tree or below the base, and the blocks from there
/// on, the newest first.
struct Branch {
    fork: BlockId,
    side: Vec<RecentBlock>,
}

/// Adds up what is brought back, and refuses what is too much.
struct Allowance {
    block: BlockId,
    distance: u64,
    left: usize,
    bytes_max: usize,
}

impl Allowance {
    fn take(&mut self, changes: &Changes) -> Result<(), StateError> {
        let left = self.left.checked_sub(size_of_changes(changes));
        self.left = left.ok_or(StateError::TooFar {
            block: self.block,
            distance: self.distance,
            bytes_max: self.bytes_max as u64,
        })?;
        Ok(())
    }
}

impl Inner {
    /// What may be brought back of a block so far from `base`.
    fn allowance(&self, block: BlockId, base: BlockId) -> Allowance {
        let all = past_bytes(self.options.memory_bytes) as usize;
        let left = all.saturating_sub(self.past.bytes());
        Allowance {
            block,
            distance: base.number.abs_diff(block.number),
            left,
            bytes_max: left,
        }
    }

    /// A layer of that block: one that is there, or is brought back to be built upon or made the
    /// head. An error if that takes too much memory.
    pub(crate) fn layer_of(&self, id: BlockId) -> Result<Arc<Layer>, StateError> {
        self.bring_back(id, false)
    }

    /// As above; with any memory that it takes, if `at_any_price`.
    fn bring_back(&self, id: BlockId, at_any_price: bool) -> Result<Arc<Layer>, StateError> {
        let mut jump = None;
        loop {
            let tree = {
                let current = self.current.read();
                if let Some(layer) = current.tree.by_hash(&id.hash) {
                    return Ok(layer.clone());
                }
                current.tree.clone()
            };
            let root = tree.root();
            let Branch { fork, side } = self.branch_of(&tree, id)?;
            let mut allowance = self.allowance(id, root.block);
            if at_any_price {
                allowance.left = usize::MAX;
            }
            if tree.by_hash(&fork.hash).is_none() {
                jump = self.jump_to(fork, root.block, jump, &mut allowance)?;
            }
            let mut records = Vec::with_capacity(side.len());
            for block in side.iter().rev() {
                let record = self.record_at(block.position)?;
                allowance.take(&record.changes)?;
                records.push(record);
            }
            let mut current = self.current.write();
            // The base may have moved while all this was read: only the rest of the way is to be
            // read then.
            if !Arc::ptr_eq(current.tree.root(), root) {
                continue;
            }
            let mut parent = match (current.tree.by_hash(&fork.hash).cloned(), jump) {
                (Some(layer), _) => layer,
                (None, Some(jump)) => current.add(root, &jump.target, jump.changes, jump.reverts),
                // Its layer was let go of meanwhile: it is to be brought back as well.
                (None, None) if tree.by_hash(&fork.hash).is_some() => {
                    jump = None;
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

    /// Where the branch of `id` leaves `tree`, or the ancestors of the base. What is added to the
    /// tree meanwhile is none of it, so the caller finds there what is found here.
    fn branch_of(&self, tree: &Tree, id: BlockId) -> Result<Branch, StateError> {
        let unknown = || StateError::UnknownBlock(id.hash);
        let (mut fork, mut side) = (id, Vec::new());
        while tree.by_hash(&fork.hash).is_none() {
            let block = match self.blocks.find(fork)?.ok_or_else(unknown)? {
                FoundBlock::BaseAncestor => break,
                FoundBlock::Recent(block) => block,
            };
            let below = fork.number.checked_sub(1).ok_or_else(unknown)?;
            fork = BlockId::new(below, block.parent);
            side.push(block);
        }
        Ok(Branch { fork, side })
    }

    /// The way from `base` to its ancestor `target`, of which `known` may be the last part. `None`
    /// if they are not of one chain, as when the base moves meanwhile.
    fn jump_to(
        &self,
        target: BlockId,
        base: BlockId,
        known: Option<Jump>,
        allowance: &mut Allowance,
    ) -> Result<Option<Jump>, StateError> {
        let known =
            known.filter(|jump| jump.target.id == target && jump.base.number <= base.number);
        let jump = match known {
            Some(jump) => jump,
            None => {
                let Some(entry) = self.blocks.base_ancestor(target.number)? else {
                    return Ok(None);
                };
                Jump {
                    target: self.meta_at(entry.position)?,
                    base: target,
                    changes: Changes::default(),
                    reverts: Changes::default(),
                }
            }
        };
        let (mut down, mut up) = (Fold::forwards(), Fold::backwards());
        let mut expected = base.hash;
        for number in (jump.base.number + 1..=base.number).rev() {
            let entry = self.blocks.base_ancestor(number)?;
            let Some(entry) = entry.filter(|entry| entry.hash == expected) else {
                return Ok(None);
            };
            let record = self.record_at(entry.position)?;
            expected = record.meta.parent;
            allowance.take(&record.reverts)?;
            down.push(record.reverts);
            up.push(record.changes);
        }
        Ok((expected == jump.base.hash).then(|| Jump {
            base,
            changes: down.finish().then(jump.changes),
            reverts: jump.reverts.then(up.finish()),
            ..jump
        }))
    }

    /// Where the branch of `id` leaves `tree`, or the ancestors of the base.
    pub(crate) fn fork_of(&self, tree: &Tree, id: BlockId) -> Result<BlockId, StateError> {
        Ok(self.branch_of(tree, id)?.fork)
    }

    /// Whether the process that writes has removed a file of the log that this one reads: it has
    /// written a checkpoint before, or else the file is lost.
    pub(crate) fn was_removed(&self, position: LogPosition) -> Result<bool, StateError> {
        match &self.holds {
            Holds::Writer(_) => Ok(false),
            Holds::Reader(reading) => {
                let is_gone = !BlockLog::is_there(reading.disk(), position)?;
                Ok(is_gone && Checkpoint::newest(reading.disk())? > Some(reading.sequence()))
            }
        }
    }

    fn read_log(&self, position: LogPosition) -> Result<Record, StateError> {
        self.log.read(position).map_err(|error| match error {
            StoreError::NotKept { .. } => self.not_kept(),
            // Whoever writes does not keep it any more.
            _ if self.was_removed(position).unwrap_or(false) => {
                let what = describe(position);
                StoreError::ReaderBehind { what }.into()
            }
            error => error.into(),
        })
    }

    /// The block whose record is at `position`.
    pub(crate) fn record_at(&self, position: LogPosition) -> Result<BlockRecord, StateError> {
        let record = self.read_log(position)?;
        BlockRecord::decode(&record.payload).map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })
    }

    /// As [`Inner::record_at`], without its changes.
    pub(crate) fn meta_at(&self, position: LogPosition) -> Result<BlockMeta, StateError> {
        let record = self.read_log(position)?;
        BlockRecord::decode_meta(&record.payload).map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })
    }

    /// Number and hash of a block by its hash, if it is in memory: sealed, or of one of the newest
    /// heights.
    pub(crate) fn find(&self, hash: &B256) -> Option<BlockId> {
        if let Some(layer) = self.current.read().tree.by_hash(hash) {
            return Some(layer.block);
        }
        self.blocks.recent(hash).map(|block| block.id)
    }

    /// The state after that block.
    pub(crate) fn view_of(self: &Arc<Self>, id: BlockId) -> Result<View, StateError> {
        {
            let current = self.current.read();
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
                let current = self.current.read();
                (current.base.clone(), current.tree.clone())
            };
            let root = above.root().block;
            let Branch { fork, side } = self.branch_of(&above, id)?;
            let mut allowance = self.allowance(id, root);
            let mut fold = Fold::forwards();
            match above.by_hash(&fork.hash) {
                Some(layer) => {
                    let up: Vec<_> = above.chain(layer.id).cloned().collect();
                    for layer in up.iter().rev().skip(1) {
                        allowance.take(&layer.changes)?;
                        fold.push(layer.changes.clone());
                    }
                }
                None => {
                    if !self.fold_down(fork, root, &mut fold, &mut allowance)? {
                        // The base has moved meanwhile, or the block is none of its ancestors.
                        if self.current.read().tree.root().id == above.root().id {
                            return Err(StateError::UnknownBlock(id.hash));
                        }
                        continue;
                    }
                }
            }
            for block in side.iter().rev() {
                let record = self.record_at(block.position)?;
                allowance.take(&record.changes)?;
                fold.push(record.changes);
            }
            let Some(position) = self.blocks.position_of(id)? else {
                return Err(StateError::UnknownBlock(id.hash));
            };
            let meta = self.meta_at(position)?;
            if meta.id != id {
                return Err(StateError::UnknownBlock(id.hash));
            }
            let state = self.past_state(base, meta, &fold.finish());
            self.past.put(&state);
            return Ok(self.past_view(state));
        }
    }

    /// Folds the ways back from `base` to its ancestor `target`. False if they are not of one chain.
    fn fold_down(
        &self,
        target: BlockId,
        base: BlockId,
        fold: &mut Fold,
        allowance: &mut Allowance,
    ) -> Result<bool, StateError> {
        let mut expected = base.hash;
        for number in (target.number + 1..=base.number).rev() {
            let entry = self.blocks.base_ancestor(number)?;
            let Some(entry) = entry.filter(|entry| entry.hash == expected) else {
                return Ok(false);
            };
            let record = self.record_at(entry.position)?;
            expected = record.meta.parent;
            allowance.take(&record.reverts)?;
            fold.push(record.reverts);
        }
        Ok(expected == target.hash)
    }

    /// One layer above `base`.
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
                lineage: Lineage {
                    newest: id,
                    others: Arc::new([]),
                },
                block: meta.id,
                parent_hash: meta.parent,
                state_root: meta.state_root,
                changes: Changes::default(),
                reverts: Changes::default(),
                given_up: Arc::default(),
            }),
            prover: Mutex::new(None),
            bytes: AtomicUsize::new(0),
            registry: self.past.clone(),
        };
        state.count(bytes);
        Arc::new(state)
    }

    fn past_view(self: &Arc<Self>, state: Arc<PastState>) -> View {
        View {
            inner: self.clone(),
            base: state.base.clone(),
            overlay: state.overlay.clone(),
            layer: state.layer.clone(),
            past: Some(state),
        }
    }

    /// Takes the head, which is `id` by the log, to that block, whose branch leaves the base's so far
    /// below it that what lies between does not fit into its memory. It is gone down in steps, each
    /// of which is in pages before the next.
    pub(crate) fn descend_to(self: &Arc<Self>, id: BlockId) -> Result<(), StateError> {
        // Whatever is merged meanwhile, and by whom.
        *self.head_to_be.lock() = Some(id);
        loop {
            let step = retried(|| self.step_down(id))?;
            retried(|| self.bring_back(step, true))?;
            let writer = self.writer.lock();
            match retried(|| self.follow_head(step)) {
                Ok(()) if step == id => {
                    *self.head_to_be.lock() = None;
                    return Ok(());
                }
                Ok(()) => {
                    drop(writer);
                    self.merge_now(0)?;
                }
                // The base has moved in between.
                Err(StateError::UnknownBlock(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next block on the way down to `id`, or `id` itself if nothing is between.
    fn step_down(&self, id: BlockId) -> Result<BlockId, StateError> {
        match self.layer_of(id) {
            Ok(_) => Ok(id),
            Err(StateError::TooFar { .. }) => {
                let tree = self.current.read().tree.clone();
                let Branch { fork, .. } = self.branch_of(&tree, id)?;
                match tree.by_hash(&fork.hash) {
                    Some(_) => Ok(id),
                    None => self.step_towards(fork),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The lowest ancestor of the base, down to `target`, which is one, that can be brought back at once. One
    /// block at least, however large it is.
    fn step_towards(&self, target: BlockId) -> Result<BlockId, StateError> {
        let root = self.current.read().tree.root().block;
        let mut allowance = self.allowance(target, root);
        // Half of it, since there must be room for the layers as well.
        allowance.left /= 2;
        let mut step = root;
        while step.number > target.number {
            let entry = self.blocks.base_ancestor(step.number)?;
            let entry = entry.filter(|entry| entry.hash == step.hash);
            let entry = entry.ok_or(StateError::UnknownBlock(step.hash))?;
            let record = self.record_at(entry.position)?;
            let fits = allowance.take(&record.reverts).is_ok();
            if !fits && step != root {
                break;
            }
            step = BlockId::new(step.number - 1, record.meta.parent);
            if !fits {
                break;
            }
        }
        Ok(step)
    }
}

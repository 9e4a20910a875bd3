//! Committing: everything that appends blocks to the log, makes them durable and moves the head.
//!
//! Every check comes before the first append. `Ok` means that the blocks are durable, and nothing
//! after the sync can change that. After a disk error some blocks may be durable and others not:
//! the engine rejects further work, and the next opening follows the log.

use crate::{
    engine::parts::Engine,
    layers::tree::Layer,
    log::{
        blocks::{Chain, RecentBlock},
        records::{BlockRecord, KIND_BLOCK},
        references::{KIND_REFERENCES, encode_block},
    },
    write::sealed::Sealed,
};
use cambium_primitives::BlockId;
use cambium_snapshot::StateError;
use cambium_store::LogPosition;
use std::{sync::Arc, time::Instant};

/// The way from the current head to a new one.
pub(crate) enum HeadMove {
    /// The new head descends from the current head.
    Up,
    /// The new head's chain up to a committed block, and the blocks above it that are being
    /// committed.
    Along(Chain, Vec<BlockId>),
}

impl Engine {
    /// Appends blocks to the log with one sync. If `head`, the last of them becomes the head.
    pub(crate) fn commit(
        self: &Arc<Self>,
        mut sealed: Vec<Sealed>,
        head: bool,
    ) -> Result<(), StateError> {
        if let Some(other) = sealed.iter().find(|sealed| !sealed.is_of(self)) {
            return Err(StateError::OtherDatabase(other.id()));
        }
        self.health.check()?;
        self.journal.check_writable("committed")?;
        let Some(newest) = sealed.last().map(Sealed::id) else {
            return Ok(());
        };
        let start = Instant::now();
        sealed.iter_mut().try_for_each(Sealed::verify)?;
        let blocks = sealed.len();
        let _span = tracing::debug_span!("commit", %newest, blocks, head).entered();
        if let Some(values) = &self.store.values {
            // Records refer to durable values only. Other commits need not wait for this.
            self.health.poison(values.segments.sync())?;
        }
        let moving = self.journal.head_moves.lock();
        let writer = self.journal.writer.lock();
        self.health.check()?;
        let mut group = Vec::with_capacity(sealed.len());
        for block in &sealed {
            block.check_alive()?;
            let id = block.id();
            let layer = self.layer_of(id)?;
            if !group.contains(&layer.parent_hash) {
                if !self.has_committed_parent(&layer)? {
                    return Err(StateError::ParentNotCommitted(id));
                }
                self.check_kept(id)?;
                self.check_finalized(match block.is_durable() {
                    true => id,
                    false => BlockId::new(id.number.saturating_sub(1), layer.parent_hash),
                })?;
            }
            group.push(id.hash);
        }
        let head_move = match head {
            true => Some(self.plan_head(&sealed)?),
            false => None,
        };
        let mut leading = match head {
            true => way_to_last(&sealed, newest).1,
            false => Vec::new(),
        };
        let mut committed = Vec::with_capacity(sealed.len());
        for block in &mut sealed {
            let (id, parent) = (block.id(), block.parent());
            let Some(record) = block.record() else {
                continue;
            };
            // Power may be lost after any record: only those become the head that lead to the last one.
            let leads = leading.pop_if(|next| *next == id).is_some();
            BlockRecord::set_head(record, leads);
            let position = self
                .health
                .poison(self.journal.log.append(KIND_BLOCK, &[record]))?;
            if let Some(references) = block.references() {
                let parts = [&encode_block(id)[..], references];
                let appended = self.journal.log.append(KIND_REFERENCES, &parts);
                self.health.poison(appended)?;
                self.store.counters.reference_records.add(1);
            }
            committed.push(RecentBlock {
                id,
                parent,
                position,
            });
        }
        self.sync_log()?;
        sealed.iter_mut().for_each(Sealed::is_committed);
        self.store
            .counters
            .blocks_committed
            .add(committed.len() as u64);
        for block in &committed {
            self.journal.blocks.insert(*block);
        }
        if let Some(head_move) = head_move {
            self.move_head_to(newest, head_move, &committed);
        }
        self.store
            .counters
            .commit_ns
            .add(start.elapsed().as_nanos() as u64);
        drop((writer, moving));
        self.merge_if_due();
        self.prepare_log_if_due();
        self.store.counters.commit_latency.add(start.elapsed());
        Ok(())
    }

    /// Whether the parent of the layer's block is committed.
    fn has_committed_parent(&self, layer: &Layer) -> Result<bool, StateError> {
        self.journal
            .blocks
            .is_parent_known(layer.block.number, &layer.parent_hash)
    }

    /// Syncs the log; a failure poisons the engine. Returns the end of the log.
    pub(crate) fn sync_log(&self) -> Result<LogPosition, StateError> {
        self.store.counters.log_syncs.add(1);
        self.health.poison(self.journal.log.sync())
    }

    /// Plans the move of the head to the last block, once all are committed.
    fn plan_head(&self, sealed: &[Sealed]) -> Result<HeadMove, StateError> {
        let is_up = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            let mut parent = tree.head().block.hash;
            sealed.iter().all(|block| {
                let layer = tree.by_hash(&block.id().hash);
                let is_next = layer
                    .is_some_and(|layer| layer.parent_hash == parent && !tree.is_restored(layer));
                parent = block.id().hash;
                is_next
            })
        };
        if is_up {
            return Ok(HeadMove::Up);
        }
        let Some(newest) = sealed.last() else {
            return Ok(HeadMove::Up);
        };
        let (below, on_top) = way_to_last(sealed, newest.id());
        Ok(HeadMove::Along(
            self.journal.blocks.chain_of(below)?,
            on_top,
        ))
    }

    /// Makes a block with a layer the head, in memory. The log already names it as the head.
    ///
    /// # Panics
    ///
    /// If the block has no layer.
    pub(crate) fn move_head_to(&self, id: BlockId, head_move: HeadMove, committed: &[RecentBlock]) {
        let mut current = self.layers.current.write();
        let layer = current.tree.by_hash(&id.hash).map(|layer| layer.id);
        // Layers of committed blocks go only when the base moves, which the caller's lock prevents.
        current.tree.set_head(layer.expect("the head has a layer"));
        match head_move {
            HeadMove::Up => {
                for block in committed {
                    self.journal.blocks.push_head(block.id);
                }
            }
            HeadMove::Along(mut chain, on_top) => {
                let on_top = committed
                    .iter()
                    .filter(|block| on_top.contains(&block.id))
                    .map(|block| (block.id.number, block.entry()));
                chain.extend(on_top);
                if let Some(changed) = self.journal.blocks.set_head(chain) {
                    self.journal.keep_from_fork(changed);
                    self.journal.forget_changed(changed);
                }
            }
        }
        drop(current);
        self.news.announce();
    }

    /// Makes a block with a layer the head in memory, as the log names it.
    pub(crate) fn follow_head(&self, id: BlockId) -> Result<(), StateError> {
        {
            let current = &mut *self.layers.current.write();
            let tree = &mut current.tree;
            let Some(layer) = tree.by_hash(&id.hash).cloned() else {
                return Err(StateError::UnknownBlock(id.hash));
            };
            // A replay would otherwise walk the whole chain for each block.
            if layer.parent_hash == tree.head().block.hash && !tree.is_restored(&layer) {
                tree.set_head(layer.id);
                self.journal.blocks.push_head(id);
                self.news.announce();
                return Ok(());
            }
        }
        let chain = self.journal.blocks.chain_of(id)?;
        self.move_head_to(id, HeadMove::Along(chain, Vec::new()), &[]);
        Ok(())
    }
}

/// The blocks of a group that lead to `last` and are not durable yet, from that one down, and the block below them.
/// Others may be on other branches.
fn way_to_last(sealed: &[Sealed], last: BlockId) -> (BlockId, Vec<BlockId>) {
    let (mut next, mut way) = (last, Vec::new());
    for block in sealed.iter().rev().filter(|block| !block.is_durable()) {
        if block.id() == next {
            way.push(next);
            next = BlockId::new(next.number.saturating_sub(1), block.parent());
        }
    }
    (next, way)
}

impl Sealed {
    /// Makes the block durable and the head. When this returns, the block survives power loss.
    ///
    /// # Errors
    ///
    /// [`StateError::ParentNotCommitted`] if its parent is only sealed,
    /// [`StateError::UnknownBlock`] if it was dropped together with a block below it, and
    /// [`StateError::NotKept`] if reaching it needs removed blocks.
    pub fn commit(self) -> Result<Committed, StateError> {
        let id = self.id();
        self.inner.clone().commit(vec![self], true)?;
        Ok(Committed { id })
    }

    /// Makes the block durable as part of a side branch: the head stays where it is.
    ///
    /// # Errors
    ///
    /// See [`Sealed::commit`].
    pub fn commit_side_branch(self) -> Result<Committed, StateError> {
        let id = self.id();
        self.inner.clone().commit(vec![self], false)?;
        Ok(Committed { id })
    }
}

/// A durable block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    id: BlockId,
}

impl Committed {
    /// Number and hash of the block.
    pub const fn id(&self) -> BlockId {
        self.id
    }
}

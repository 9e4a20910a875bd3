//! Making blocks durable, and moving the head: everything that appends to the block log.
//!
//! What can be refused is refused before anything is appended. What is returned is true of the
//! blocks: `Ok` says that they are durable, and nothing that comes after their sync can take that
//! back. After an error of the disk some may be durable, and some not: the engine takes no more
//! until it is opened again, and is then at what the log says.

use crate::{
    blocks::{Chain, RecentBlock},
    db::Inner,
    records::{BlockRecord, KIND_BLOCK, KIND_HEAD, encode_new_head},
    session::Sealed,
    tree::Layer,
};
use cambium_primitives::BlockId;
use cambium_snapshot::StateError;
use cambium_store::{LogPosition, StoreError};
use std::{sync::Arc, time::Instant};

/// How the chain leads to a new head.
enum HeadMove {
    /// It is a descendant of the head.
    Up,
    /// The chain up to a block, and those above it that are being committed: these alone lead on to
    /// the head.
    Along(Chain, Vec<BlockId>),
}

impl Inner {
    /// Appends blocks to the log with one sync; if `head`, the last of them is the head then.
    pub(crate) fn commit(
        self: &Arc<Self>,
        mut sealed: Vec<Sealed>,
        head: bool,
    ) -> Result<(), StateError> {
        if let Some(other) = sealed.iter().find(|sealed| !sealed.is_of(self)) {
            return Err(StateError::OtherDatabase(other.id()));
        }
        self.check_sound()?;
        self.check_writable("committed")?;
        let Some(newest) = sealed.last().map(Sealed::id) else {
            return Ok(());
        };
        let start = Instant::now();
        let moving = self.head_moves.lock();
        let writer = self.writer.lock();
        self.check_sound()?;
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
            }
            group.push(id.hash);
        }
        let head_move = match head {
            true => Some(self.plan_head(&sealed)?),
            false => None,
        };
        let mut committed = Vec::with_capacity(sealed.len());
        for block in &mut sealed {
            let (id, parent) = (block.id(), block.parent());
            let Some(record) = block.record() else {
                continue;
            };
            BlockRecord::set_head(record, head);
            let position = self.poison(self.log.append(KIND_BLOCK, &[record]))?;
            committed.push(RecentBlock {
                id,
                parent,
                position,
            });
        }
        self.sync_log()?;
        sealed.iter_mut().for_each(Sealed::is_committed);
        self.counters.blocks_committed.add(committed.len() as u64);
        for block in &committed {
            self.blocks.insert(*block);
        }
        if let Some(head_move) = head_move {
            self.move_head_to(newest, head_move, &committed);
        }
        self.counters
            .commit_ns
            .add(start.elapsed().as_nanos() as u64);
        drop((writer, moving));
        self.merge_if_due();
        self.counters.commit_latency.add(start.elapsed());
        Ok(())
    }

    fn has_committed_parent(&self, layer: &Layer) -> Result<bool, StateError> {
        self.blocks
            .is_parent_known(layer.block.number, &layer.parent_hash)
    }

    fn sync_log(&self) -> Result<LogPosition, StateError> {
        self.counters.log_syncs.add(1);
        self.poison(self.log.sync())
    }

    /// What it takes to make the last of some blocks the head once they are committed.
    fn plan_head(&self, sealed: &[Sealed]) -> Result<HeadMove, StateError> {
        let is_up = {
            let current = self.current.read();
            let tree = &current.tree;
            let mut parent = tree.head().block.hash;
            sealed.iter().all(|block| {
                let layer = tree.by_hash(&block.id().hash);
                let is_next =
                    layer.is_some_and(|layer| layer.parent_hash == parent && !tree.is_jump(layer));
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
        // Others of the group may be of other branches.
        let (mut next, mut on_top) = (newest.id(), Vec::new());
        for block in sealed.iter().rev().filter(|block| !block.is_durable()) {
            if block.id() == next {
                on_top.push(next);
                next = BlockId::new(next.number.saturating_sub(1), block.parent());
            }
        }
        Ok(HeadMove::Along(self.blocks.chain_of(next)?, on_top))
    }

    /// Makes a block that has a layer the head, in memory. The log says so already.
    fn move_head_to(&self, id: BlockId, head_move: HeadMove, committed: &[RecentBlock]) {
        let mut current = self.current.write();
        let layer = current.tree.by_hash(&id.hash).map(|layer| layer.id);
        // Layers of committed blocks go when the base moves, which the caller's lock prevents.
        current.tree.set_head(layer.expect("the head has a layer"));
        match head_move {
            HeadMove::Up => {
                for block in committed {
                    self.blocks.push_head(block.id);
                }
            }
            HeadMove::Along(mut chain, on_top) => {
                let on_top = committed
                    .iter()
                    .filter(|block| on_top.contains(&block.id))
                    .map(|block| (block.id.number, block.entry()));
                chain.extend(on_top);
                self.blocks.set_head(chain);
            }
        }
    }

    /// Makes a committed block the head. One that is far below the base is come to in steps: see
    /// [`Inner::descend_to`].
    pub(crate) fn set_head(self: &Arc<Self>, id: BlockId) -> Result<BlockId, StateError> {
        self.check_sound()?;
        self.check_writable("made the head")?;
        let moving = self.head_moves.lock();
        let writer = self.writer.lock();
        self.check_sound()?;
        if self.blocks.position_of(id)?.is_none() {
            return Err(StateError::UnknownBlock(id.hash));
        }
        // Once the log says so there is no way back.
        self.check_kept(id)?;
        let is_far = match self.layer_of(id) {
            Ok(_) => false,
            Err(StateError::TooFar { .. }) => true,
            Err(error) => return Err(error),
        };
        let chain = self.blocks.chain_of(id)?;
        if is_far {
            // Before anybody can merge what the log will not say.
            *self.head_to_be.lock() = Some(id);
        }
        self.poison(self.log.append(KIND_HEAD, &[&encode_new_head(id)]))?;
        self.sync_log()?;
        if !is_far {
            self.move_head_to(id, HeadMove::Along(chain, Vec::new()), &[]);
            drop(writer);
        } else {
            drop(writer);
            // The log says it already: there is no way back to the head before.
            self.poison(self.descend_to(id))?;
        }
        drop(moving);
        self.merge_if_due();
        Ok(id)
    }

    /// Makes a block that has a layer the head, as the log says.
    pub(crate) fn follow_head(&self, id: BlockId) -> Result<(), StateError> {
        {
            let current = &mut *self.current.write();
            let tree = &mut current.tree;
            let Some(layer) = tree.by_hash(&id.hash).cloned() else {
                return Err(StateError::UnknownBlock(id.hash));
            };
            // Not the whole chain for each block of a replay.
            if layer.parent_hash == tree.head().block.hash && !tree.is_jump(&layer) {
                tree.set_head(layer.id);
                self.blocks.push_head(id);
                return Ok(());
            }
        }
        let chain = self.blocks.chain_of(id)?;
        self.move_head_to(id, HeadMove::Along(chain, Vec::new()), &[]);
        Ok(())
    }
}

/// A record's place, for messages.
pub(crate) fn describe(position: LogPosition) -> String {
    let LogPosition { file, offset } = position;
    format!("the record at byte {offset} of block log file {file}")
}

/// Refuses what does not fit into a record of the log.
pub(crate) fn check_record(what: &'static str, bytes: usize) -> Result<(), StateError> {
    let (bytes, max) = (bytes as u64, cambium_store::LOG_PAYLOAD_BYTES_MAX);
    match bytes > max {
        true => Err(StoreError::TooLarge { what, bytes, max }.into()),
        false => Ok(()),
    }
}

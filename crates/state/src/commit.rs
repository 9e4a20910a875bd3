//! Making blocks durable, and moving the head: everything that appends to the block log.

use crate::{
    blocks::RecentBlock,
    db::Inner,
    error::StateError,
    records::{BlockRecord, JumpRecord, KIND_BLOCK, KIND_HEAD, KIND_JUMP},
    session::Sealed,
    tree::Layer,
};
use cambium_primitives::BlockId;
use cambium_store::LogPosition;
use std::{sync::Arc, time::Instant};

impl Inner {
    /// Appends blocks to the log with one sync; if `head`, the last of them is the head then.
    pub(crate) fn commit(
        self: Arc<Self>,
        mut sealed: Vec<Sealed>,
        head: bool,
    ) -> Result<(), StateError> {
        self.check_sound()?;
        let Some(newest) = sealed.last().map(Sealed::id) else {
            return Ok(());
        };
        let start = Instant::now();
        let mut writer = self.writer.lock();
        // All is checked before anything is appended: what is refused leaves no trace.
        let mut group = Vec::with_capacity(sealed.len());
        for id in sealed.iter().map(Sealed::id) {
            let layer = self.layer_of(id)?;
            if !group.contains(&layer.parent_hash) && !self.has_committed_parent(&layer)? {
                return Err(StateError::ParentNotCommitted(id));
            }
            group.push(id.hash);
        }
        for id in sealed.iter().map(Sealed::id) {
            self.log_jump_below(id)?;
        }
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
        for block in committed {
            self.blocks.insert(block);
        }
        if head {
            self.poison(self.move_head(newest))?;
        }
        let taken = start.elapsed();
        self.counters.commit_ns.add(taken.as_nanos() as u64);
        writer.usual = (writer.usual * 7 + taken) / 8;
        self.freeze_if_large(&mut writer)?;
        self.counters.commit_latency.add(start.elapsed());
        Ok(())
    }

    fn has_committed_parent(&self, layer: &Layer) -> Result<bool, StateError> {
        let Some(number) = layer.block.number.checked_sub(1) else {
            return Ok(false);
        };
        let parent = BlockId::new(number, layer.parent_hash);
        Ok(self.blocks.position_of(parent)?.is_some())
    }

    fn sync_log(&self) -> Result<(), StateError> {
        self.counters.log_syncs.add(1);
        self.poison(self.log.sync())
    }

    /// Makes a committed block the head.
    pub(crate) fn set_head(self: &Arc<Self>, id: BlockId) -> Result<BlockId, StateError> {
        self.check_sound()?;
        let mut writer = self.writer.lock();
        if self.blocks.position_of(id)?.is_none() {
            return Err(StateError::UnknownBlock(id.hash));
        }
        self.layer_of(id)?;
        self.log_jump_below(id)?;
        self.poison(self.log.append(KIND_HEAD, &[id.hash.as_slice()]))?;
        self.sync_log()?;
        self.poison(self.move_head(id))?;
        self.freeze_if_large(&mut writer)?;
        Ok(id)
    }

    /// Makes a block that has a layer the head, in memory. The log must say so already.
    pub(crate) fn move_head(&self, id: BlockId) -> Result<(), StateError> {
        let unknown = StateError::UnknownBlock(id.hash);
        let is_next = {
            let current = self.current.read();
            let layer = current.tree.by_hash(&id.hash).ok_or(unknown)?;
            layer.parent_hash == current.tree.head().block.hash && !current.tree.is_jump(layer)
        };
        let chain = match is_next {
            true => None,
            false => Some(self.blocks.chain_of(id)?),
        };
        let mut current = self.current.write();
        let layer = current.tree.by_hash(&id.hash);
        let layer = layer.expect("only a freeze takes committed layers").id;
        current.tree.set_head(layer);
        match chain {
            None => self.blocks.push_head(id),
            Some(chain) => self.blocks.set_head(chain),
        }
        Ok(())
    }

    /// Puts the jump that a layer descends from into the log, if there is one, now that it
    /// matters.
    fn log_jump_below(&self, id: BlockId) -> Result<(), StateError> {
        let jump = {
            let current = self.current.read();
            let layer = current.tree.by_hash(&id.hash);
            let (Some(layer), false) = (layer, current.unlogged_jumps.is_empty()) else {
                return Ok(());
            };
            let root = current.tree.root().block.hash;
            let mut chain = current.tree.chain(layer.id);
            let jump = chain.find(|layer| current.unlogged_jumps.contains(&layer.id));
            jump.cloned().map(|jump| (jump, root))
        };
        let Some((jump, base)) = jump else {
            return Ok(());
        };
        let record = JumpRecord {
            base,
            target: jump.block,
            parent: jump.parent_hash,
            state_root: jump.state_root,
            changes: jump.changes.clone(),
            reverts: jump.reverts.clone(),
        };
        let payload = record.encode();
        self.poison(self.log.append(KIND_JUMP, &[&payload]))?;
        self.current.write().unlogged_jumps.remove(&jump.id);
        Ok(())
    }
}

/// A record's place, for messages.
pub(crate) fn describe(position: LogPosition) -> String {
    let LogPosition { file, offset } = position;
    format!("the record at byte {offset} of block log file {file}")
}

//! Blocks that are in the log and not in memory, brought back as layers.
//!
//! ```text
//!   97 -- 98 -- 99 -- 100 (the base)         100 (the base)
//!          \                          ->       \
//!           99' -- 100'                         98 -- 99' -- 100'
//!                                               ^ a jump, by the ways back of 100 and 99
//! ```
//!
//! This is how old state is read, how the chain is unwound below the base, and how a branch
//! that begins there is built upon.

use crate::{
    blocks::RecentBlock,
    commit::describe,
    db::Inner,
    error::StateError,
    records::{BlockMeta, BlockRecord},
    tree::{Fold, Layer},
    view::View,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, Changes};
use cambium_store::LogPosition;
use std::sync::Arc;

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

impl Inner {
    /// A layer of that block: one that is there, or is brought back.
    pub(crate) fn layer_of(&self, id: BlockId) -> Result<Arc<Layer>, StateError> {
        let mut jump = None;
        loop {
            let root = {
                let current = self.current.read();
                if let Some(layer) = current.tree.by_hash(&id.hash) {
                    return Ok(layer.clone());
                }
                current.tree.root().clone()
            };
            let Branch { fork, side } = self.branch_of(id)?;
            if self.current.read().tree.by_hash(&fork.hash).is_none() {
                jump = self.jump_to(fork, root.block, jump)?;
            }
            let mut records = Vec::with_capacity(side.len());
            for block in side.iter().rev() {
                records.push(self.record_at(block.position)?);
            }
            let mut current = self.current.write();
            // The base may have moved while all this was read: only the rest of the way is to be
            // read then.
            if !Arc::ptr_eq(current.tree.root(), &root) {
                continue;
            }
            let mut parent = match (current.tree.by_hash(&fork.hash).cloned(), jump) {
                (Some(layer), _) => layer,
                (None, Some(jump)) => {
                    let layer = current.add(&root, &jump.target, jump.changes, jump.reverts);
                    current.unlogged_jumps.insert(layer.id);
                    layer
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

    fn branch_of(&self, id: BlockId) -> Result<Branch, StateError> {
        let unknown = || StateError::UnknownBlock(id.hash);
        let (mut fork, mut side) = (id, Vec::new());
        while self.current.read().tree.by_hash(&fork.hash).is_none() {
            let ancestor = self.blocks.base_ancestor(fork.number)?;
            if ancestor.is_some_and(|entry| entry.hash == fork.hash) {
                break;
            }
            let block = self.blocks.recent(&fork.hash).ok_or_else(unknown)?;
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

    /// The block whose record is at `position`.
    pub(crate) fn record_at(&self, position: LogPosition) -> Result<BlockRecord, StateError> {
        let record = self.log.read(position)?;
        BlockRecord::decode(&record.payload).map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })
    }

    /// As [`Inner::record_at`], without its changes.
    pub(crate) fn meta_at(&self, position: LogPosition) -> Result<BlockMeta, StateError> {
        let record = self.log.read(position)?;
        BlockRecord::decode_meta(&record.payload).map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })
    }

    /// Number and hash of a block that can be built upon, by its hash. Of blocks that are not
    /// recent the newest are found first.
    pub(crate) fn find(&self, hash: &B256) -> Result<BlockId, StateError> {
        if let Some(layer) = self.current.read().tree.by_hash(hash) {
            return Ok(layer.block);
        }
        let number = self.blocks.number_of(hash)?;
        let number = number.ok_or(StateError::UnknownBlock(*hash))?;
        Ok(BlockId::new(number, *hash))
    }

    /// The state after that block.
    pub(crate) fn view_of(self: &Arc<Self>, id: BlockId) -> Result<View, StateError> {
        loop {
            self.layer_of(id)?;
            let current = self.current.read();
            // The base may have moved in between.
            if let Some(layer) = current.tree.by_hash(&id.hash).cloned() {
                return Ok(self.view_at(&current, layer));
            }
        }
    }
}

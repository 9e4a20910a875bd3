//! Moving the head to any committed block, however far below the base its branch begins; and which
//! blocks are safe and finalized.

use crate::{
    engine::parts::Engine,
    log::{
        finality::{CanonicalRecord, Finality, KIND_CANONICAL},
        records::{KIND_HEAD, encode_new_head},
    },
    past::restore::Branch,
    write::commit::HeadMove,
};
use cambium_primitives::BlockId;
use cambium_snapshot::{StateError, retry_transient};
use std::sync::Arc;

impl Engine {
    /// Makes a committed block the head. If it is far below the base, the head gets there in steps:
    /// see [`Engine::descend_to`]. Safe and finalized blocks that it does not descend from are
    /// forgotten.
    pub(crate) fn set_head(self: &Arc<Self>, id: BlockId) -> Result<BlockId, StateError> {
        self.make_head(|| Ok(id), None)
    }

    /// Makes the block that `find` returns the head: no other caller moves the head meanwhile.
    pub(crate) fn set_head_to(
        self: &Arc<Self>,
        find: impl FnOnce() -> Result<BlockId, StateError>,
    ) -> Result<BlockId, StateError> {
        self.make_head(find, None)
    }

    /// Makes a committed block the head, and `asked` the safe and the finalized block: see
    /// [`Db::set_canonical`](crate::Db::set_canonical).
    pub(crate) fn set_canonical(
        self: &Arc<Self>,
        head: BlockId,
        asked: Finality,
    ) -> Result<(), StateError> {
        self.make_head(|| Ok(head), Some(asked)).map(drop)
    }

    fn make_head(
        self: &Arc<Self>,
        find: impl FnOnce() -> Result<BlockId, StateError>,
        asked: Option<Finality>,
    ) -> Result<BlockId, StateError> {
        let _span = tracing::debug_span!("move_head").entered();
        self.health.check()?;
        self.journal.check_writable("made the head")?;
        let moving = self.journal.head_moves.lock();
        let writer = self.journal.writer.lock();
        self.health.check()?;
        let id = find()?;
        if self.journal.blocks.position_of(id)?.is_none() {
            return Err(StateError::UnknownBlock(id.hash));
        }
        // A head that the log names must be reachable, so this is checked first.
        self.check_kept(id)?;
        let finality = match asked {
            Some(asked) => Some(self.finality_after(id, asked)?),
            None => None,
        };
        let is_same = |finality| finality == *self.journal.finality.lock();
        if finality.is_some_and(is_same) && id == self.head() {
            return Ok(id);
        }
        let is_far = match self.layer_of(id) {
            Ok(_) => false,
            Err(StateError::TooFar { .. }) => true,
            Err(error) => return Err(error),
        };
        let chain = self.journal.blocks.chain_of(id)?;
        if is_far {
            // Set before a merge can start and write another head into its checkpoint.
            *self.journal.target_head.lock() = Some(id);
        }
        let log = &self.journal.log;
        let appended = match finality {
            None => log.append(KIND_HEAD, &[&encode_new_head(id)]),
            Some(finality) => {
                let record = CanonicalRecord { head: id, finality };
                log.append(KIND_CANONICAL, &[&record.encode()])
            }
        };
        self.health.poison(appended)?;
        self.sync_log()?;
        tracing::info!(from = %self.head(), to = %id, is_far, ?finality, "moving the head");
        if let Some(finality) = finality {
            // Checkpoints on the way down have it.
            *self.journal.finality.lock() = finality;
        }
        if is_far {
            drop(writer);
            // The log already names the new head, so a failure can't restore the old one.
            self.health.poison(self.descend_to(id))?;
        } else {
            self.move_head_to(id, HeadMove::Along(chain, Vec::new()), &[]);
            drop(writer);
        }
        if finality.is_some()
            && let Err(error) = retry_transient(|| self.free_branches())
        {
            // They take memory, and nothing can be committed on them.
            tracing::warn!(%error, "branches beside the finalized block stay until the next one");
        }
        drop(moving);
        self.merge_if_due();
        Ok(id)
    }

    fn head(&self) -> BlockId {
        self.layers.current.read().tree.head().block
    }

    /// Returns the safe and finalized blocks after `head` has become the head with `asked`. Blocks that are not set in
    /// `asked` stay if they are canonical then.
    fn finality_after(&self, head: BlockId, asked: Finality) -> Result<Finality, StateError> {
        let is_ancestor = |block: BlockId| -> Result<bool, StateError> {
            match block.number <= head.number {
                true => self.journal.blocks.is_on_same_branch(head, block),
                false => Ok(false),
            }
        };
        for (what, block) in [("safe", asked.safe), ("finalized", asked.finalized)] {
            if let Some(block) = block
                && !is_ancestor(block)?
            {
                return Err(StateError::NotAnAncestor { what, block, head });
            }
        }
        let known = *self.journal.finality.lock();
        if let Some(finalized) = known.finalized {
            let newest = asked.finalized.unwrap_or(finalized);
            if newest.number < finalized.number || !is_ancestor(finalized)? {
                let block = if newest.number < finalized.number {
                    newest
                } else {
                    head
                };
                return Err(StateError::NotOnFinalized { block, finalized });
            }
        }
        let finalized = asked.finalized.or(known.finalized);
        let safe = match (asked.safe, known.safe) {
            (Some(safe), _) => Some(safe),
            (None, Some(safe)) if is_ancestor(safe)? => Some(safe),
            (None, _) => None,
        };
        // A finalized block is safe.
        let is_below = |safe: &BlockId| finalized.is_some_and(|block| safe.number < block.number);
        if let (Some(safe), Some(finalized)) = (asked.safe.filter(is_below), finalized) {
            return Err(StateError::SafeBelowFinalized { safe, finalized });
        }
        let safe = safe.filter(|safe| !is_below(safe)).or(finalized);
        Ok(Finality { safe, finalized })
    }

    /// Fails with [`StateError::NotOnFinalized`] if the chain up to `block`, which is committed, does
    /// not have the finalized block.
    pub(crate) fn check_finalized(&self, block: BlockId) -> Result<(), StateError> {
        let Some(finalized) = self.journal.finality.lock().finalized else {
            return Ok(());
        };
        // The head's chain has it.
        if block == self.head() {
            return Ok(());
        }
        let is_on_it = match finalized.number <= block.number {
            true => self.journal.blocks.is_on_same_branch(block, finalized)?,
            false => false,
        };
        match is_on_it {
            true => Ok(()),
            false => Err(StateError::NotOnFinalized { block, finalized }),
        }
    }

    /// Moves the head in memory to `id`, which the log already names as the head. Its branch leaves
    /// the base's chain so far below the base that the blocks between exceed the memory for
    /// restored layers. The head goes down in steps, each of which is merged into pages before the
    /// next.
    pub(crate) fn descend_to(self: &Arc<Self>, id: BlockId) -> Result<(), StateError> {
        // Every checkpoint from here on must name this head, no matter what starts the merge.
        *self.journal.target_head.lock() = Some(id);
        // The branches that a merge keeps are those of the finalized block, which the way may leave behind.
        retry_transient(|| self.forget_not_below(id))?;
        loop {
            let step = retry_transient(|| self.step_down(id))?;
            retry_transient(|| self.restore_layer(step, true))?;
            let writer = self.journal.writer.lock();
            match retry_transient(|| self.follow_head(step)) {
                Ok(()) if step == id => {
                    *self.journal.target_head.lock() = None;
                    retry_transient(|| self.journal.forget_uncanonical())?;
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

    /// Forgets the safe and finalized blocks that `id` does not descend from.
    fn forget_not_below(&self, id: BlockId) -> Result<(), StateError> {
        let known = *self.journal.finality.lock();
        let mut gone = Vec::new();
        for block in known.blocks() {
            if block.number > id.number || !self.journal.blocks.is_on_same_branch(id, block)? {
                gone.push(block);
            }
        }
        self.journal
            .finality
            .lock()
            .retain(|block| !gone.contains(&block));
        Ok(())
    }

    /// The next block on the way down to `id`, or `id` itself if it can be reached at once.
    fn step_down(&self, id: BlockId) -> Result<BlockId, StateError> {
        match self.layer_of(id) {
            Ok(_) => Ok(id),
            Err(StateError::TooFar { .. }) => {
                let tree = self.layers.current.read().tree.clone();
                let Branch { fork, .. } = self.branch_of(&tree, id)?;
                match tree.by_hash(&fork.hash) {
                    Some(_) => Ok(id),
                    None => self.step_towards(fork),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The lowest ancestor of the base, not below its ancestor `target`, that can be restored at
    /// once: at least one block down, however large that is.
    fn step_towards(&self, target: BlockId) -> Result<BlockId, StateError> {
        let root = self.layers.current.read().tree.root().block;
        let mut allowance = self.allowance(target, root);
        // Half of it, since the layers need memory as well.
        allowance.left /= 2;
        let mut step = root;
        while step.number > target.number {
            let entry = self.journal.blocks.base_ancestor(step.number)?;
            let entry = entry.filter(|entry| entry.hash == step.hash);
            let entry = entry.ok_or(StateError::UnknownBlock(step.hash))?;
            let record = self.journal.record_of(step, entry.position)?;
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

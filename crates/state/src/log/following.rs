//! The next step of a subscriber, who follows the chain from a block that they have reached.

use super::blocks::{Blocks, State};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::StateError;
use cambium_store::{BlockEntry, LogPosition};

/// How far a subscriber follows the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowTo {
    /// To the head. Contains the finalized block, unless the subscriber knows it.
    Head(Option<BlockId>),
    /// To the finalized block, if there is one.
    Finalized(Option<BlockId>),
}

/// Next step of a subscriber from the block that it has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The block is not canonical: it is undone.
    Undo,
    /// The canonical block above it.
    Apply(BlockEntry),
    /// The finalized block, which is the block itself or an ancestor.
    Finalize(BlockId),
    /// No step until the chain changes.
    Wait,
}

impl Blocks {
    /// The next step from the block `reached`. A finalized block counts once it is canonical: it may be
    /// known a moment before the head has moved to its branch.
    pub(crate) fn next_step(&self, reached: BlockId, to: FollowTo) -> Result<NextStep, StateError> {
        // Under one lock, so that all blocks that are compared are of one chain.
        let state = &*self.state.read();
        if !self.is_canonical_in(state, reached)? {
            return Ok(NextStep::Undo);
        }
        match to {
            FollowTo::Head(Some(finalized))
                if finalized.number <= reached.number
                    && self.is_canonical_in(state, finalized)? =>
            {
                return Ok(NextStep::Finalize(finalized));
            }
            FollowTo::Head(_) => {}
            FollowTo::Finalized(Some(finalized))
                if finalized.number > reached.number
                    && self.is_canonical_in(state, finalized)? => {}
            FollowTo::Finalized(_) => return Ok(NextStep::Wait),
        }
        let above = self.canonical_in(state, reached.number + 1)?;
        Ok(above.map_or(NextStep::Wait, NextStep::Apply))
    }

    fn is_canonical_in(&self, state: &State, block: BlockId) -> Result<bool, StateError> {
        let entry = self.canonical_in(state, block.number)?;
        Ok(entry.is_some_and(|entry| entry.hash == block.hash))
    }

    /// The position in the log near which a block of that number was written, if it has left the chain:
    /// that of the canonical block `heights` below it, or below the head. `None` if that one is not
    /// kept.
    pub(crate) fn position_near(
        &self,
        number: BlockNumber,
        heights: u64,
    ) -> Result<Option<LogPosition>, StateError> {
        let state = &*self.state.read();
        let head = match state.head_chain.last_key_value() {
            Some((head, _)) => *head,
            None => state.base.number,
        };
        let lowest = head.min(number).saturating_sub(heights);
        let lowest = lowest.max(state.genesis).max(state.kept.lowest);
        let entry = self.canonical_in(state, lowest)?;
        Ok(entry.map(|entry| entry.position))
    }
}

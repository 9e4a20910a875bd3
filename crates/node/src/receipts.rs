//! Receipts of blocks that were stored without, made again for the index.

use crate::{Node, NodeError, replay::Replay};
use cambium_chain::{ChainError, StoredBlock, packed_receipts};
use cambium_history::{History, HistoryError, StateAt};
use cambium_index::{IndexError, IndexProgress, StoredBody};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::StateError;

/// After a state could not be restored, the next attempt is nearer to the snapshot by this part of the way.
const RETRY_DIVISOR: u64 = 16;

/// How far states were replayed.
#[derive(Default)]
struct Replaying {
    state: Option<Replay>,
    /// States of blocks below can't be restored.
    retry_from: BlockNumber,
}

impl Node {
    /// Adds the blocks of the log up to the head to the index, until `progress` returns false. Blocks that were stored
    /// without receipts are executed again for them, if the states of their parents can be read: near the head, or from
    /// the history. The others are indexed without. Returns whether the index is at the head.
    ///
    /// # Errors
    ///
    /// [`IndexError::NotOpen`] without an index, the errors of a history that can't be read, and those of
    /// [`ChainIndex::catch_up`](cambium_index::ChainIndex::catch_up).
    pub fn build_index(
        &self,
        progress: &mut dyn FnMut(&IndexProgress) -> bool,
    ) -> Result<bool, NodeError> {
        let index = self.need_index()?;
        let history = self.history()?;
        let (mut failed, mut replay) = (None, Replaying::default());
        let mut make = |id: BlockId, body: &StoredBody| {
            let stored = StoredBlock {
                id,
                body: body.clone(),
            };
            match self.receipts_again(&stored, history, &mut replay) {
                Ok(receipts) => Ok(receipts),
                Err(error) => {
                    let why = error.to_string();
                    failed = Some(error);
                    Err(IndexError::Unreadable { block: id, why })
                }
            }
        };
        let built = index.catch_up(self.db(), Some(&mut make), progress);
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(built?),
        }
    }

    /// The receipts of a canonical block, made by executing it again, and packed. `None` if the state that it
    /// was executed on can't be read, or if it has no transactions. `replay` has the state of the block
    /// before, or of an earlier one.
    fn receipts_again(
        &self,
        stored: &StoredBlock,
        history: Option<&History>,
        replay: &mut Replaying,
    ) -> Result<Option<Vec<u8>>, ChainError> {
        if stored.id == self.db().genesis() {
            return Ok(None);
        }
        let block = stored.block()?;
        if block.body.transactions.is_empty() {
            return Ok(None);
        }
        let chain = self.chain()?;
        let parent = chain.parent_of(&block.header);
        let Some(state) = self.replay_to(parent, history, replay)? else {
            return Ok(None);
        };
        let outcome = chain.outcome_on(stored, state)?;
        if outcome.receipts_complete {
            return Ok(packed_receipts(&outcome.receipts));
        }
        // Before Byzantium receipts have state roots, which take the tries of the state.
        match chain.outcome_in(stored) {
            Ok(outcome) => Ok(packed_receipts(&outcome.receipts)),
            Err(ChainError::State(error)) if is_not_there(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The state after a canonical block, from that of an earlier one if possible. `None` if it can't be read.
    fn replay_to<'a>(
        &self,
        block: BlockId,
        history: Option<&History>,
        replay: &'a mut Replaying,
    ) -> Result<Option<&'a Replay>, ChainError> {
        while let Some(state) = &mut replay.state
            && state.block() != block
        {
            if state.block().number >= block.number || !state.advance()? {
                replay.state = None;
            }
        }
        if replay.state.is_none() {
            let Some(view) = self.old_state(block, history, replay)? else {
                return Ok(None);
            };
            replay.state = Some(Replay::on(self.db(), block, view)?);
        }
        Ok(replay.state.as_ref())
    }

    /// A view of an old state: from the history, or else restored from the log.
    fn old_state(
        &self,
        block: BlockId,
        history: Option<&History>,
        replay: &mut Replaying,
    ) -> Result<Option<StateAt>, ChainError> {
        if let Some(history) = history {
            match history.state_at(self.db(), block.number) {
                Ok(view) => return Ok(Some(view)),
                Err(HistoryError::NotKept { .. }) => {}
                Err(HistoryError::State(error)) if is_not_there(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if block.number < replay.retry_from {
            return Ok(None);
        }
        match self.db().view_of(block) {
            Ok(view) => Ok(Some(view.into())),
            Err(error) if is_not_there(&error) => {
                // To find that out may have read much of the log. The blocks that follow are hardly closer.
                let distance = self
                    .db()
                    .snapshot_block()
                    .number
                    .saturating_sub(block.number);
                replay.retry_from = block.number + (distance / RETRY_DIVISOR).max(1);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the error says that a state can't be read any more, rather than that reading it failed.
pub(crate) const fn is_not_there(error: &StateError) -> bool {
    let is_unknown = matches!(
        error,
        StateError::TooFar { .. } | StateError::UnknownBlock(_)
    );
    is_unknown || error.has_left_log()
}

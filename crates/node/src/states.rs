//! States after blocks, from the source that has them at the least cost.

use crate::{BlockRef, Node, NodeError};
use alloy_primitives::B256;
use cambium_history::{History, HistoryError, StateAt};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::StateError;

/// Where the state after a block is found.
enum Place {
    /// The head.
    Head,
    /// A canonical block, which the history may have, too.
    Canonical(BlockNumber),
    /// A block on another branch.
    Aside(BlockId),
}

impl Node {
    /// The state after a block, for its values: from a history, which restores nothing, or else from the block log.
    ///
    /// # Errors
    ///
    /// As [`Node::id`]. [`StateError::NoSuchBlock`] above the head, and [`StateError::TooFar`], or one by which the
    /// block [has left the log](StateError::has_left_log), for a block that neither a history nor the log can restore.
    pub fn state_at(&self, block: BlockRef) -> Result<StateAt, NodeError> {
        match self.place(block)? {
            Place::Head => Ok(self.db().view()?.into()),
            Place::Aside(block) => Ok(self.db().view_of(block)?.into()),
            Place::Canonical(number) => Ok(self.values_at(number)?),
        }
    }

    /// The state after a block, for proofs: from an archive, or else restored from the block log.
    ///
    /// # Errors
    ///
    /// As [`Node::state_at`]: of a history of values no state can be proved.
    pub fn provable_state_at(&self, block: BlockRef) -> Result<StateAt, NodeError> {
        match self.place(block)? {
            Place::Head => Ok(self.db().view()?.into()),
            Place::Aside(block) => Ok(self.db().view_of(block)?.into()),
            Place::Canonical(number) => Ok(self.provable_at(number)?),
        }
    }

    /// The state after the canonical block at `number`, for callers that may ask for proofs later: one that can be
    /// proved if there is one, and that of a history of values if not.
    ///
    /// # Errors
    ///
    /// As [`Node::state_at`].
    pub fn kept_state_at(&self, number: BlockNumber) -> Result<StateAt, HistoryError> {
        match self.provable_at(number) {
            Err(HistoryError::State(error))
                if error.has_left_log() || matches!(error, StateError::TooFar { .. }) =>
            {
                let of_history = self.of_history(number, |_| true)?;
                of_history.ok_or(error.into())
            }
            state => state,
        }
    }

    /// The root of a state; `None` if its block has left the log, and only the history has it.
    ///
    /// # Errors
    ///
    /// If the block can't be read.
    pub fn state_root(&self, state: &StateAt) -> Result<Option<B256>, StateError> {
        let (db, block) = (self.db(), state.block());
        if matches!(db.block_id(block.number), Ok(own) if own != Some(block)) {
            // On another branch.
            return Ok(db.block_by_id(block)?.map(|block| block.state_root));
        }
        match db.block(block.number) {
            Err(error) if error.has_left_log() => Ok(None),
            block => Ok(block?.map(|block| block.state_root)),
        }
    }

    /// A number need not be one of the database.
    fn place(&self, block: BlockRef) -> Result<Place, NodeError> {
        self.drop_stale();
        let id = match block {
            BlockRef::Latest => return Ok(Place::Head),
            BlockRef::Number(number) => return Ok(Place::Canonical(number)),
            block => self.id(block)?,
        };
        Ok(match self.is_canonical(id)? {
            true => Place::Canonical(id.number),
            false => Place::Aside(id),
        })
    }

    fn values_at(&self, number: BlockNumber) -> Result<StateAt, HistoryError> {
        match self.of_history(number, |_| true)? {
            Some(state) => Ok(state),
            None => Ok(self.db().view_at(number)?.into()),
        }
    }

    fn provable_at(&self, number: BlockNumber) -> Result<StateAt, HistoryError> {
        match self.of_archive(number)? {
            Some(state) => Ok(state),
            None => Ok(self.db().view_at(number)?.into()),
        }
    }

    /// The state at a block from the history, if that can prove it.
    pub(crate) fn of_archive(&self, number: BlockNumber) -> Result<Option<StateAt>, HistoryError> {
        let state = self.of_history(number, History::has_nodes)?;
        if let Some(state) = &state {
            *self.kept.lock() = Some((self.db().head(), state.clone()));
        }
        Ok(state)
    }

    /// Drops what was kept for another head: it keeps pages and layers that nothing else needs.
    fn drop_stale(&self) {
        let head = self.db().head();
        let stale = self.kept.lock().take_if(|(at, _)| *at != head);
        drop(stale);
    }

    /// The state at a block from the history, if there is one that has it and `serves`.
    fn of_history(
        &self,
        number: BlockNumber,
        serves: impl FnOnce(&History) -> bool,
    ) -> Result<Option<StateAt>, HistoryError> {
        let state = self.history().and_then(|history| {
            let history = history.filter(|history| serves(history));
            history
                .map(|history| history.state_at(self.db(), number))
                .transpose()
        });
        match state {
            Err(HistoryError::NotKept { .. }) => Ok(None),
            // Not the history's own: the log would not answer, either.
            Err(error @ (HistoryError::State(_) | HistoryError::NotYet { .. })) => Err(error),
            Err(error) => self.do_without(error).map(|()| None),
            state => state,
        }
    }
}

//! Executing blocks of the database again, for their receipts and other outputs that are not stored.

use crate::{
    Chain, ChainError, error::execution_error, prepare::BlockAgain, reads::TimedReads,
    stored::StoredBlock, verify::verify_outcome,
};
use cambium_evm::{Executor, Hooks, Outcome, Receipt, Sequential, StateRead};
use cambium_primitives::BlockId;
use cambium_state::StateError;

impl Chain {
    /// The receipts of a block in the database, on any branch, or in the index. If they are not stored, the
    /// block is executed again.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if there is no such block, and if its receipts are neither stored nor
    /// can be made, the error of reading its parent's state: see [`Chain::outcome_of`].
    pub fn receipts(&self, id: BlockId) -> Result<Vec<Receipt>, ChainError> {
        let stored = self.stored_of(id)?;
        self.receipts_in(&stored.ok_or(StateError::UnknownBlock(id.hash))?)
    }

    /// As [`Chain::receipts`], for a block that has been read.
    ///
    /// # Errors
    ///
    /// As [`Chain::receipts`].
    pub fn receipts_in(&self, stored: &StoredBlock) -> Result<Vec<Receipt>, ChainError> {
        if let Some(receipts) = stored.receipts()? {
            return Ok(receipts);
        }
        if stored.block()?.body.transactions.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.outcome_in(stored)?.receipts)
    }

    /// Executes a block of the database again on its parent's state: for receipts and other outputs that are not
    /// stored, or if its access list was applied instead of executing it. The outcome is verified against the header.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if there is no such block, and the errors of
    /// [`Db::view_of`](cambium_state::Db::view_of) if its parent's state can't be read.
    pub fn outcome_of(&self, id: BlockId) -> Result<Outcome, ChainError> {
        let stored = self.stored_of(id)?;
        self.outcome_in(&stored.ok_or(StateError::UnknownBlock(id.hash))?)
    }

    /// As [`Chain::outcome_of`], for a block that has been read.
    ///
    /// # Errors
    ///
    /// As [`Chain::outcome_of`].
    pub fn outcome_in(&self, stored: &StoredBlock) -> Result<Outcome, ChainError> {
        let again = self.prepare_again(stored)?;
        let view = self.db().view_of(self.parent_of(&again.block.header))?;
        let mut session = view.clone().session();
        let mut roots = |changes: &_| session.intermediate_root(changes);
        let hooks = Hooks {
            roots: Some(&mut roots),
            ..Hooks::default()
        };
        let reads = TimedReads::new(view);
        self.execute_again(stored.id, &again, &reads, self.executor(), hooks)
    }

    /// Executes a stored block on the state before it, and verifies the outcome against the header.
    fn execute_again<S>(
        &self,
        id: BlockId,
        again: &BlockAgain,
        state: S,
        executor: &impl Executor,
        hooks: Hooks<'_, S::Error>,
    ) -> Result<Outcome, ChainError>
    where
        S: StateRead + Sync,
        S::Error: Into<ChainError>,
    {
        let BlockAgain {
            block,
            senders,
            post_merge,
        } = again;
        let input = self.spec().input(block, senders, *post_merge);
        let outcome = executor.execute(&input, state, hooks);
        let outcome = outcome.map_err(|error| execution_error(id, error))?;
        let verified = verify_outcome(&block.header, &outcome, None);
        let _ = verified.map_err(|error| ChainError::invalid(id, error))?;
        Ok(outcome)
    }

    /// Executes a stored block again on `state`, the state before it, and verifies the outcome against the
    /// header. Before Byzantium the receipts lack the state roots that they have in the block:
    /// [`Outcome::receipts_complete`].
    ///
    /// # Errors
    ///
    /// [`ChainError::Unreadable`] if the block can't be decoded, [`ChainError::Block`] if the outcome is not that
    /// of the header, and the errors of `state`.
    pub fn outcome_on<S>(&self, stored: &StoredBlock, state: S) -> Result<Outcome, ChainError>
    where
        S: StateRead + Sync,
        S::Error: Into<ChainError>,
    {
        let again = self.prepare_again(stored)?;
        self.execute_again(stored.id, &again, state, &Sequential, Hooks::default())
    }
}

//! Execution of a block without validating, staging or storing it: to measure executors, and to
//! make access lists of blocks that have none.

use crate::{Block, Chain, ChainError, ChainSpec, error::execution_error, reads::TimedReads};
use alloy_primitives::Address;
use cambium_evm::{ExecutionError, Executor, Hooks, Outcome, StateRead};
use cambium_primitives::{AccessList, BlockId, PreStateValues};
use cambium_state::{StateError, View};

/// A block to execute without validation.
#[derive(Clone, Copy, Debug)]
pub struct DryRun<'a> {
    /// The block. Fields of its header that follow from execution are ignored.
    pub block: &'a Block,
    /// Whether the block is past the merge.
    pub post_merge: bool,
    /// The sender of each transaction.
    pub senders: &'a [Address],
    /// The block's access list, for executors that use one.
    pub access_list: Option<&'a AccessList>,
    /// Pre-state values for every key in the access list, for executors that use them.
    pub pre_state: Option<&'a PreStateValues>,
}

/// Why a dry run failed.
#[derive(Debug, thiserror::Error)]
#[error("block {id}: {error}")]
pub struct DryRunError<E> {
    /// The block.
    pub id: BlockId,
    /// The error of execution.
    pub error: ExecutionError<E>,
}

impl Chain {
    /// Executes a block on the state of `view`. The outcome has an access list on every fork.
    ///
    /// # Errors
    ///
    /// [`ChainError::Block`] if a transaction or a system call fails, and [`ChainError::State`] if the state
    /// can't be read.
    pub fn dry_run(
        &self,
        run: DryRun<'_>,
        view: View,
        executor: &impl Executor,
        hooks: Hooks<'_, StateError>,
    ) -> Result<Outcome, ChainError> {
        let outcome = self
            .spec()
            .dry_run(run, TimedReads::new(view), executor, hooks);
        outcome.map_err(|DryRunError { id, error }| execution_error(id, error))
    }
}

impl ChainSpec {
    /// Executes a block by these rules on any state, which need not be a Cambium database. The outcome has an access
    /// list on every fork.
    ///
    /// # Errors
    ///
    /// [`DryRunError`] names the cause: a transaction, a system call, or a read of `state`.
    pub fn dry_run<DB: StateRead + Sync>(
        &self,
        run: DryRun<'_>,
        state: DB,
        executor: &impl Executor,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, DryRunError<DB::Error>> {
        let mut input = self.input(run.block, run.senders, run.post_merge);
        input.rules.block_access_list = true;
        input.access_list = run.access_list;
        input.pre_state = run.pre_state;
        let outcome = executor.execute(&input, state, hooks);
        let id = || BlockId::new(run.block.header.number, run.block.header.hash_slow());
        outcome.map_err(|error| DryRunError { id: id(), error })
    }
}

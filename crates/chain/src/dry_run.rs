//! Executing a block with nothing validated, staged or kept: to measure executors, and to make the
//! access list of a block that has none.

use crate::{Block, Chain, ChainError, ChainSpec, error::execution_error, reads::TimedReads};
use alloy_primitives::Address;
use cambium_evm::{ExecutionError, Executor, Hooks, Outcome, StateRead};
use cambium_primitives::{AccessList, BlockId, FoundValues};
use cambium_state::{StateError, View};

/// A block to execute.
#[derive(Clone, Copy, Debug)]
pub struct DryRun<'a> {
    /// The block. Its header's results are not looked at.
    pub block: &'a Block,
    /// Whether it is past the merge.
    pub post_merge: bool,
    /// Who signed each transaction.
    pub senders: &'a [Address],
    /// Its access list.
    pub access_list: Option<&'a AccessList>,
    /// What it finds at all that the access list names.
    pub found: Option<&'a FoundValues>,
}

/// Why a block could not be executed.
#[derive(Debug, thiserror::Error)]
#[error("block {id}: {error}")]
pub struct DryRunError<E> {
    /// The block.
    pub id: BlockId,
    /// What is wrong with it, or with the state.
    pub error: ExecutionError<E>,
}

impl Chain {
    /// Executes a block on the state of `view`. The outcome has an access list whatever the fork.
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
    /// Executes a block by these rules on any state, which need not be a database of ours. The
    /// outcome has an access list whatever the fork.
    pub fn dry_run<DB: StateRead>(
        &self,
        run: DryRun<'_>,
        state: DB,
        executor: &impl Executor,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, DryRunError<DB::Error>> {
        let mut input = self.input(run.block, run.senders, run.post_merge);
        input.rules.block_access_list = true;
        input.access_list = run.access_list;
        input.found = run.found;
        let outcome = executor.execute(&input, state, hooks);
        let id = || BlockId::new(run.block.header.number, run.block.header.hash_slow());
        outcome.map_err(|error| DryRunError { id: id(), error })
    }
}

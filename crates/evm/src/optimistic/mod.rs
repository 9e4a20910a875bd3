//! Speculative parallel execution without an access list, after Block-STM.
//!
//! ```text
//!                    +--> run ahead, on the versions of earlier steps ---> versions of its writes
//!   claim, by any ---+                                                          |
//!   thread           +--> validate: are all its reads still those versions?  <--+
//!
//!   commit position  validated, or equal now:  its result counts
//!                    else:                     it runs again, in order
//!
//!   at the end       receipts, last versions -> changes, access list, by all threads
//! ```
//!
//! A transaction is at its *commit position* when all transactions before it are committed. The
//! effect of a transaction depends only on what it reads. So a result is correct if all its reads
//! are the values that sequential execution would find, which are known at the commit position;
//! until then values need not be consistent or correct. A transaction that has no correct result
//! there runs in order, as in sequential execution, so errors are those of sequential execution.
//!
//! - **Versions** ([`versions`]): each value by the step that wrote it. A key that no step wrote is
//!   read without a lock.
//! - **Order** ([`schedule`]): jobs are claimed by atomic operations. A transaction that reads a
//!   value of one that has to run again waits for it, and is then ready for the thread that ran it.
//! - **Additions** ([`crate::effects`]): transactions that do not depend on a balance add to it, the
//!   beneficiary's fees and payments among them, and a sender's nonce is that of its transaction
//!   until it is compared. So payments to one account and by one sender do not conflict.
//! - **Threads** ([`team`]): as many as there is work for; the others sleep.
//!
//! A transaction runs only at its commit position if it depends on the beneficiary's balance, if it
//! fails ahead, or if it creates a contract at an account with a balance.
//!
//! Before Byzantium receipts contain state roots in mid-block, so such blocks are executed
//! sequentially.

mod sync;
mod ready;
mod adds;
mod versions;
mod team;
mod state;
mod schedule;
mod run;
mod finish;
mod block;
#[cfg(test)]
mod model;

use crate::{BlockInput, ExecutionError, Executor, Hooks, Outcome, Sequential, StateRead};
use revm::primitives::hardfork::SpecId;
use state::BelowError;
use std::num::NonZeroUsize;

/// Executes transactions speculatively, before their commit position, from Byzantium on.
#[derive(Clone, Copy, Debug)]
pub struct Optimistic {
    /// Number of threads that transactions run on. One thread executes blocks sequentially.
    pub threads: NonZeroUsize,
}

impl Executor for Optimistic {
    fn execute<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        let is_parallel = self.threads > NonZeroUsize::MIN && !input.transactions.is_empty();
        if !is_parallel || !input.rules.is(SpecId::BYZANTIUM) {
            return Sequential.execute(input, db, hooks);
        }
        let executed = block::execute(input, &db, self.threads, hooks.counts);
        executed.map_err(|error| {
            error.map_database(|error| match error {
                BelowError::State(error) => error,
                BelowError::InOrder | BelowError::WaitFor(..) => {
                    unreachable!("only transactions that run ahead meet these")
                }
            })
        })
    }
}

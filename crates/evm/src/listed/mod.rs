//! Parallel execution by the block's access list (EIP-7928).
//!
//! The list contains every value that a step of the block changes. So the pre-state of a step is
//! known before any step has run: the parent's state, with the newest listed change of an earlier
//! step on top.
//!
//! ```text
//!   list + parent's state -> pre-state of step i     ListState      any step, on any thread
//!   step i                -> its changes             ListIndex      equal to the listed ones?
//!   all steps, in order   -> receipts, gas, list     BlockResults
//! ```
//!
//! This is sound by induction: if every step before `i` made exactly its listed changes, then step
//! `i` ran on the pre-state of sequential execution. So if all steps did, and the list has no other
//! change, the outcome is that of sequential execution. In all other cases (a step differs from the
//! list or fails, the list is impossible, or the state can't be derived from it) the block is
//! executed again sequentially, and that outcome counts.
//!
//! Before Cancun a list is incomplete, since SELFDESTRUCT deletes storage that it does not name.
//! Such blocks are executed sequentially.

mod given;
mod parent;
mod state;
mod workers;
mod collect;

use crate::{
    BlockInput, ExecutionError, Executor, Hooks, Outcome, Sequential, StateRead, account::account,
    executor::ClaimedChanges, results::BlockResults,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccessList, Changes, PreStateValues};
use collect::collect;
use parent::Parent;
use revm::{DatabaseRef, primitives::hardfork::SpecId};
use state::ListState;
use std::{num::NonZeroUsize, panic::resume_unwind, sync::mpsc, thread};
use workers::Work;

pub(crate) use given::Given;
pub(crate) use state::ListStateError;

/// How the state is read for parallel execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListReads {
    /// Use the pre-state values that came with the block: transactions read only code from the
    /// state. The values are verified against the state meanwhile. Without them as
    /// [`ListReads::Keys`].
    Values,
    /// Read all keys of the list in one batch before transactions run.
    Keys,
    /// Read the keys that the list says are changed while transactions run. Transactions read all
    /// other keys themselves.
    Changes,
}

/// Executes transactions in parallel, if the block comes with its access list, from Cancun on.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// How the state is read.
    pub reads: ListReads,
    /// Number of threads that transactions run on. On a disk more threads than processors help,
    /// since threads wait for reads.
    pub threads: NonZeroUsize,
}

impl Executor for Listed {
    fn execute<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        mut hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        let list = input.access_list.filter(|_| input.rules.is(SpecId::CANCUN));
        let Some(list) = list else {
            return Sequential.execute(input, db, hooks);
        };
        let outcome = self.run(input, list, &db, &mut hooks);
        if let Some(counts) = &mut hooks.counts {
            let count = match &outcome {
                Some(_) => &mut counts.parallel,
                None => &mut counts.again,
            };
            *count += input.transactions.len() as u64;
        }
        match outcome {
            Some(outcome) => Ok(outcome),
            None => Sequential.execute(input, db, hooks),
        }
    }
}

impl Listed {
    /// Executes a block in parallel. `None` if it must be executed sequentially.
    fn run<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        list: &AccessList,
        db: &DB,
        hooks: &mut Hooks<'_, DB::Error>,
    ) -> Option<Outcome> {
        let results = BlockResults::new::<DB::Error>(input).ok()?;
        let given = Given::new(list)?;
        let parent = Parent::new(&given, db);
        let pre_state = input.pre_state.filter(|values| values.is_of(list));
        let pre_state = pre_state.filter(|_| self.reads == ListReads::Values);
        match (self.reads, pre_state) {
            (_, Some(values)) => parent.trust(values),
            (ListReads::Changes, None) => {}
            (_, None) => parent.read_all().ok()?,
        }
        let work = Work::new(input, &parent, hooks.timed);
        let (sender, done) = mpsc::channel();
        let steps = work.steps();
        let (changes, collected) = thread::scope(|scope| {
            for _ in 0..self.threads.get() {
                let sender = sender.clone();
                let work = &work;
                scope.spawn(move || work.run(&sender));
            }
            drop(sender);
            let collected = scope.spawn(|| collect(results, steps, done, &given));
            let changes = self.claimed_changes(&parent, pre_state, &mut hooks.claimed);
            if changes.is_none() {
                work.stop();
            }
            let collected = collected.join();
            (
                changes,
                collected.unwrap_or_else(|panic| resume_unwind(panic)),
            )
        });
        let (changes, (mut results, contracts)) = (changes?, collected?);
        if parent.has_empty_account() {
            return None;
        }
        let deposits = results.deposits::<DB::Error>().ok()?;
        Some(results.finish(deposits, contracts, changes, true))
    }

    /// Computes the state diff claimed by the list while transactions run. Verifies `pre_state`.
    fn claimed_changes<DB: StateRead + Sync>(
        &self,
        parent: &Parent<'_, DB>,
        pre_state: Option<&PreStateValues>,
        claimed: &mut Option<ClaimedChanges<'_>>,
    ) -> Option<(Changes, Vec<(B256, Bytes)>)> {
        let given = parent.given();
        let list = given.list();
        match (self.reads, pre_state) {
            (_, Some(values)) => {
                // Transactions need not wait for this.
                if !parent.verify(values).ok()? {
                    return None;
                }
            }
            (ListReads::Changes, None) => parent.read_ahead().ok()?,
            (_, None) => {}
        }
        // At index 0 no change of the list applies.
        let before = ListState { parent, at: 0 };
        let changes = list.changes(
            |address| {
                before
                    .basic_ref(address)
                    .map(|info| info.as_ref().map(account))
            },
            |address, slot| before.storage_ref(address, slot),
        );
        let changes = (changes.ok()?, given.new_codes());
        if let Some(claimed) = claimed {
            claimed(&changes.0, &changes.1);
        }
        Some(changes)
    }
}

//! Transactions in parallel, by the block's access list (EIP-7928).
//!
//! The list says what every step of the block leaves. So the state that a step finds is known
//! before any step has run: the parent's, and over it the newest change of an earlier step.
//!
//! ```text
//!   list + parent's state -> what step i finds     ListState      any step, on any thread
//!   step i                -> what it touches       ListIndex      is that what the list says?
//!   all steps, in order   -> receipts, gas, list   BlockResults
//! ```
//!
//! That is sound by induction: if every step before `i` changed what the list says, and nothing
//! else, then step `i` found what it finds in sequence. So once all steps did, and the list has no
//! change besides, the outcome is the sequential one. Whatever else comes up (a step that differs
//! or fails, a list that can't be true, a state of which the list can't tell everything), the block
//! is executed again, one transaction after another, and what that gives stands.
//!
//! Before Cancun a list does not tell everything: SELFDESTRUCT removed storage that it does not
//! name. Such blocks are executed in sequence.

mod given;
mod parent;
mod state;
mod workers;
mod collect;

use crate::{
    BlockInput, ExecutionError, Executor, Hooks, Outcome, Sequential, StateRead, account::account,
    executor::Foretold, results::BlockResults,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccessList, Changes, FoundValues};
use collect::collect;
use parent::Parent;
use revm::{DatabaseRef, primitives::hardfork::SpecId};
use state::ListState;
use std::{num::NonZeroUsize, panic::resume_unwind, sync::mpsc, thread};
use workers::Work;

pub(crate) use given::Given;
pub(crate) use state::ListStateError;

/// What is known of a block's reads before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListReads {
    /// The values, if they came with the block: transactions wait for no read but of code. The
    /// values are held against the state meanwhile. Without them as [`ListReads::Keys`].
    Values,
    /// The keys: all are read at once before transactions run.
    Keys,
    /// What changes: that is read ahead, beside transactions, which read what else they come to.
    Changes,
}

/// Executes transactions in parallel if the block comes with its access list, from Cancun on.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// What of the list is used for reading.
    pub reads: ListReads,
    /// Threads that transactions run on. What waits for the disk wants more of them than there
    /// are processors.
    pub threads: NonZeroUsize,
}

impl Executor for Listed {
    fn execute<DB: StateRead>(
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

/// What is given up on is executed in sequence.
impl Listed {
    fn run<DB: StateRead>(
        &self,
        input: &BlockInput<'_>,
        list: &AccessList,
        db: &DB,
        hooks: &mut Hooks<'_, DB::Error>,
    ) -> Option<Outcome> {
        let results = BlockResults::new::<DB::Error>(input).ok()?;
        let given = Given::new(list)?;
        let parent = Parent::new(&given, db);
        let found = input.found.filter(|found| found.is_of(list));
        let found = found.filter(|_| self.reads == ListReads::Values);
        match (self.reads, found) {
            (_, Some(found)) => parent.believe(found),
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
            let changes = self.foresee(&parent, found, &mut hooks.foretold);
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

    /// What the list says that the block changes, while transactions run.
    fn foresee<DB: StateRead>(
        &self,
        parent: &Parent<'_, DB>,
        found: Option<&FoundValues>,
        foretold: &mut Option<Foretold<'_>>,
    ) -> Option<(Changes, Vec<(B256, Bytes)>)> {
        let given = parent.given();
        let list = given.list();
        match (self.reads, found) {
            (_, Some(found)) => {
                // What they say must be true, but nothing has to wait for it.
                if !parent.bears_out(found).ok()? {
                    return None;
                }
            }
            (ListReads::Changes, None) => parent.read_ahead().ok()?,
            (_, None) => {}
        }
        // No step is before the first.
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
        if let Some(foretold) = foretold {
            foretold(&changes.0, &changes.1);
        }
        Some(changes)
    }
}

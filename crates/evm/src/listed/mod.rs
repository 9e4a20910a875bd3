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

mod reads;
mod given;
mod values;
mod state;
mod stage;
mod results;
mod work;

use crate::{
    BlockInput, ExecutionError, Executor, Hooks, Outcome, Sequential, StateRead,
    results::check_senders,
};
use cambium_primitives::AccessList;
use revm::primitives::hardfork::SpecId;
use std::{
    num::NonZeroUsize,
    sync::{Arc, mpsc},
};

pub use reads::ListReads;
pub(crate) use values::{BlockValues, Values};
pub(crate) use work::Work;

/// Executes transactions in parallel, if the block comes with its access list, from Cancun on.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// How the state is read.
    pub reads: ListReads,
    /// Number of threads, the calling one included. On a disk more threads than processors help,
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
        check_senders::<DB::Error>(input).ok()?;
        let mut block = BlockValues::new(*input, None);
        let found = input.pre_state.filter(|values| values.is_of(list));
        if let Some(found) = found.filter(|_| self.reads == ListReads::Values) {
            block.trust(found);
        }
        let values = Values::new(vec![block], db);
        // The receiver of the claimed changes runs on this thread, so one more is started.
        let more = usize::from(hooks.claimed.is_some());
        let work = Work::new(&values, self.threads.get() + more, hooks.timed);
        if !work.prepare_one(self.reads) {
            return None;
        }
        let (sender, done) = mpsc::channel();
        work.lead(&sender, || {
            if self.reads == ListReads::Changes {
                work.read_changed();
            }
            while work.read_one(&sender) {}
            let results = work.results(0)?;
            let changes = work.claimed(0).map(Arc::new);
            let claim = changes.clone().filter(|_| hooks.claimed.is_some());
            let is_complete = results.end_changes(changes);
            if let (Some(claim), Some(claimed)) = (claim, &mut hooks.claimed) {
                claimed(&claim.0, &claim.1);
            }
            work.end(is_complete, 0, &sender);
            work.work(0, &sender);
            Some(())
        })?;
        drop(sender);
        done.recv().ok()?.1
    }
}

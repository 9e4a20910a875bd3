//! Speculative parallel execution without an access list, in the manner of Block-STM.
//!
//! A transaction is at its *commit position* when all transactions before it are in the block's
//! overlay.
//!
//! ```text
//!   ahead    a transaction runs before its commit position,      Versions, Below::Guess
//!            on guessed state, and its reads are recorded        Overlay::take_reads
//!   commit   the reads are compared with the block's overlay     Overlay::agrees_with
//!            equal: the transaction's writes are applied
//!            else:  it runs again, on the overlay
//! ```
//!
//! The effect of a transaction depends only on what it reads. So a result is correct if all its
//! reads equal the block's overlay at the commit position; guesses need not be consistent or
//! correct. A transaction that has not run ahead, or whose reads differ, runs on the block's
//! overlay as in sequential execution, so errors are those of sequential execution, too.
//!
//! The beneficiary's fees are withheld, and paid at the commit position ([`crate::handler`]). A
//! transaction that reads the beneficiary waits for its commit position, and so does one that
//! creates a contract at an account with a balance. A transaction waits until the previous one of
//! its sender has run.
//!
//! Before Byzantium receipts contain state roots in mid-block, so such blocks are executed
//! sequentially.

mod schedule;
mod versions;
mod state;

use crate::{
    BlockInput, ExecutionCounts, ExecutionError, Executor, Hooks, Outcome, Sequential, StateRead,
    access_list::StepAccesses,
    cache::BlockCache,
    overlay::{Overlay, OverlayMode, Reads},
    results::BlockResults,
    step::{StepRunner, TransactionResult, set_blooms},
};
use alloy_consensus::Transaction as _;
use alloy_primitives::{B256, U256};
use revm::{DatabaseRef, primitives::hardfork::SpecId, state::EvmState};
use schedule::{Job, Schedule};
use state::{Below, BelowError, ParentReads};
use std::{
    num::NonZeroUsize,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    thread,
};
use versions::{Key, Versions};

/// Executes transactions speculatively, before their commit position, from Byzantium on.
#[derive(Clone, Copy, Debug)]
pub struct Optimistic {
    /// Number of threads that transactions run on.
    pub threads: NonZeroUsize,
}

/// The result of running a transaction ahead.
struct Ahead {
    result: TransactionResult,
    state: EvmState,
    fee: U256,
    reads: Reads,
    /// Whether all reads came from the parent's state.
    reads_parent: bool,
    /// Its accesses besides the beneficiary, if they are recorded.
    accesses: Option<StepAccesses>,
    left: Vec<Key>,
}

/// Results of the transactions that are committed so far.
struct Committed<'a, DB> {
    overlay: Overlay<Below<'a, DB>>,
    results: BlockResults<'a>,
    counts: ExecutionCounts,
}

/// Results of the committed transactions, or the reason why the block is invalid.
type CommittedOrError<'a, DB> =
    Result<Committed<'a, DB>, BelowExecutionError<<DB as DatabaseRef>::Error>>;
type Runner<'a, DB> = StepRunner<'a, Below<'a, DB>>;
type BelowExecutionError<E> = ExecutionError<BelowError<E>>;

impl Executor for Optimistic {
    fn execute<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        if !input.rules.is(SpecId::BYZANTIUM) {
            return Sequential.execute(input, db, hooks);
        }
        self.run(input, &db, hooks.counts).map_err(|error| {
            error.map_database(|error| match error {
                BelowError::State(error) => error,
                BelowError::InOrder => unreachable!("only guesses return this"),
            })
        })
    }
}

impl Optimistic {
    fn run<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: &DB,
        counts: Option<&mut ExecutionCounts>,
    ) -> Result<Outcome, BelowExecutionError<DB::Error>> {
        let cache = BlockCache::new(db);
        let versions = Versions::new(input.header.beneficiary);
        let threads: Vec<_> = (0..self.threads.get())
            .map(|_| ParentReads::new(&cache))
            .collect();
        let block = Block {
            input,
            cache: &cache,
            versions: &versions,
            schedule: Schedule::new(
                input.senders,
                input.transactions.iter().map(|tx| tx.gas_limit()),
                self.threads.get(),
            ),
            committed: Mutex::default(),
        };
        thread::scope(|scope| {
            let (this, others) = threads.split_last().expect("a thread");
            for parent in others {
                scope.spawn(|| block.work(&mut block.runner(), parent));
            }
            block.run(this, counts)
            // The other threads end while this one finishes the block.
        })
    }
}

/// A block's transactions, shared by threads.
struct Block<'a, DB: StateRead + Sync> {
    input: &'a BlockInput<'a>,
    cache: &'a BlockCache<'a, DB>,
    versions: &'a Versions,
    schedule: Schedule<Vec<Option<Ahead>>>,
    committed: Mutex<Option<CommittedOrError<'a, DB>>>,
}

impl<'a, DB: StateRead + Sync> Block<'a, DB> {
    fn overlay(&self) -> Overlay<Below<'a, DB>> {
        let mode = OverlayMode::of(&self.input.rules);
        Overlay::new(Below::Parent(self.cache), mode)
    }

    fn runner(&self) -> Runner<'a, DB> {
        StepRunner::new(self.input, self.overlay())
    }

    /// Executes the whole block, together with the threads that [`Self::work`].
    fn run(
        &self,
        parent: &'a ParentReads<'a, DB>,
        counts: Option<&mut ExecutionCounts>,
    ) -> Result<Outcome, BelowExecutionError<DB::Error>> {
        let _stop = StopOnReturn(&self.schedule);
        let mut runner = self.runner();
        let mut results = BlockResults::new(self.input)?;
        runner.before()?;
        results.add_accesses(runner.end());
        let mut overlay = self.overlay();
        runner.swap_overlay(&mut overlay);
        *self.lock() = Some(Ok(Committed {
            overlay,
            results,
            counts: ExecutionCounts::default(),
        }));
        self.schedule.start();
        self.work(&mut runner, parent);
        let committed = self.lock().take();
        let Committed {
            mut overlay,
            mut results,
            counts: counted,
        } = committed.expect("taken once")?;
        if let Some(counts) = counts {
            *counts += counted;
        }
        runner.swap_overlay(&mut overlay);
        let deposits = results.deposits()?;
        let contracts = runner.after()?;
        results.add_accesses(runner.end());
        let changes = runner.into_overlay().finish();
        Ok(results.finish(deposits, contracts, changes, true))
    }

    /// Runs jobs until none is left.
    fn work(&self, runner: &mut Runner<'a, DB>, parent: &'a ParentReads<'a, DB>) {
        let _stop = StopOnReturn(&self.schedule);
        while let Some(job) = self.schedule.next() {
            match job {
                Job::Ahead(portion, transactions) => {
                    let ahead = transactions.map(|index| self.ahead(runner, parent, index));
                    let mut ahead: Vec<_> = ahead.collect();
                    set_blooms(ahead.iter_mut().flatten().map(|ahead| &mut ahead.result));
                    self.schedule.ran(portion, ahead);
                }
                Job::Commit(transactions, ahead) => self.commit(runner, transactions, ahead),
            }
        }
    }

    fn ahead(
        &self,
        runner: &mut Runner<'a, DB>,
        parent: &'a ParentReads<'a, DB>,
        index: usize,
    ) -> Option<Ahead> {
        let below = Below::Guess {
            parent,
            versions: self.versions,
            index,
            guessed: AtomicBool::new(false),
        };
        runner.overlay().begin_again(below);
        // A transaction that fails here may succeed at its commit position.
        let (result, state, fee) = runner.transaction_and_fee(index).ok()?;
        let left = self.versions.put(index, false, &state);
        let overlay = runner.overlay();
        Some(Ahead {
            result,
            fee,
            accesses: overlay.accesses_of(&state).ok()?,
            reads_parent: overlay.below().is_parent(),
            reads: overlay.take_reads(),
            state,
            left,
        })
    }

    fn commit(
        &self,
        runner: &mut Runner<'a, DB>,
        transactions: Range<usize>,
        ahead: Option<Vec<Option<Ahead>>>,
    ) {
        let mut state = self.lock();
        let Some(Ok(committed)) = &mut *state else {
            return;
        };
        let mut ahead = ahead.into_iter().flatten();
        let before = committed.counts;
        for index in transactions {
            if let Err(error) = self.commit_one(committed, runner, index, ahead.next().flatten()) {
                *state = Some(Err(error));
                self.schedule.stop();
                return;
            }
        }
        let failed = committed.counts.again - before.again;
        let ran = committed.counts.parallel - before.parallel + failed;
        self.schedule.committed(ran as usize, failed as usize);
    }

    fn commit_one(
        &self,
        committed: &mut Committed<'a, DB>,
        runner: &mut Runner<'a, DB>,
        index: usize,
        ahead: Option<Ahead>,
    ) -> Result<(), BelowExecutionError<DB::Error>> {
        let Committed {
            overlay,
            results,
            counts,
        } = committed;
        results.check_limits()?;
        let (result, accesses_ahead) = match ahead {
            // If the state can't be read, running the transaction again returns the error.
            Some(ahead)
                if overlay
                    .agrees_with(&ahead.reads, ahead.reads_parent)
                    .unwrap_or(false) =>
            {
                let applied = overlay.commit_unrecorded(ahead.state);
                let applied = applied.and_then(|()| self.pay(overlay, ahead.fee));
                applied.map_err(ExecutionError::Database)?;
                counts.parallel += 1;
                (ahead.result, ahead.accesses)
            }
            ahead => {
                if let Some(ahead) = ahead {
                    self.versions.remove(index, &ahead.left);
                    counts.again += 1;
                }
                runner.swap_overlay(overlay);
                let result = self.in_order(runner, index);
                runner.swap_overlay(overlay);
                (result?, None)
            }
        };
        results.add(result, B256::ZERO);
        let mut accesses = overlay.end_access_step();
        if let (Some(all), Some(ahead)) = (&mut accesses, accesses_ahead) {
            all.extend(ahead);
        }
        results.add_accesses(accesses);
        Ok(())
    }

    fn in_order(
        &self,
        runner: &mut Runner<'a, DB>,
        index: usize,
    ) -> Result<TransactionResult, BelowExecutionError<DB::Error>> {
        let (result, state) = runner.transaction_state(index)?;
        self.versions.put(index, true, &state);
        runner.commit(state)?;
        Ok(result)
    }

    /// Pays the beneficiary's fee for a transaction that withheld it.
    fn pay(
        &self,
        overlay: &mut Overlay<Below<'a, DB>>,
        fee: U256,
    ) -> Result<(), BelowError<DB::Error>> {
        let beneficiary = self.input.header.beneficiary;
        let account = overlay.account(beneficiary)?;
        let balance = account.map_or(U256::ZERO, |account| account.balance);
        // As in the EVM, a fee that overflows the balance is not paid.
        overlay.set_balance(
            beneficiary,
            balance.checked_add(fee).unwrap_or(balance),
            false,
        )
    }

    fn lock(&self) -> MutexGuard<'_, Option<CommittedOrError<'a, DB>>> {
        self.committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the other threads' work when a thread returns or panics: the block is over then.
struct StopOnReturn<'a>(&'a Schedule<Vec<Option<Ahead>>>);

impl Drop for StopOnReturn<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

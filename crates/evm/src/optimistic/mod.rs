//! Speculative parallel execution without an access list, in the manner of Block-STM.
//!
//! A transaction is at its *commit position* when all transactions before it are in the block's
//! overlay.
//!
//! ```text
//!   ahead    a transaction runs before its commit position,      Versions, Below::Guess
//!            on guessed state, and its reads are recorded        Overlay::into_reads
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
    cache::BlockCache,
    overlay::{AccountRead, Overlay, OverlayMode},
    results::BlockResults,
    step::{StepRunner, TransactionResult},
};
use alloy_consensus::Transaction as _;
use alloy_primitives::{B256, U256};
use revm::{
    primitives::hardfork::SpecId,
    state::{Account, EvmState, TransactionId},
};
use schedule::{Job, Schedule};
use state::{Below, BelowError};
use std::{
    num::NonZeroUsize,
    ops::Range,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
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
    reads: Vec<AccountRead>,
    /// Whether all reads came from the parent's state.
    reads_parent: bool,
    left: Vec<Key>,
}

/// What has been committed so far.
struct Committed<'a, DB> {
    overlay: Overlay<Below<'a, DB>>,
    results: BlockResults<'a>,
    counts: ExecutionCounts,
}

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
        let mut results = BlockResults::new(input)?;
        let overlay = Overlay::new(Below::Parent(&cache), OverlayMode::of(&input.rules));
        let mut steps = StepRunner::new(input, overlay);
        steps.before()?;
        results.add_accesses(steps.end());
        let overlay = steps.into_overlay();
        let block = Block {
            input,
            cache: &cache,
            versions: &versions,
            schedule: Schedule::new(
                input.senders,
                input.transactions.iter().map(|tx| tx.gas_limit()),
                self.threads.get(),
            ),
            committed: Mutex::new(Ok(Committed {
                overlay,
                results,
                counts: counts.as_deref().copied().unwrap_or_default(),
            })),
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.get() {
                scope.spawn(|| block.work());
            }
            block.work();
        });
        let committed = block.committed.into_inner();
        let committed = committed.unwrap_or_else(PoisonError::into_inner)?;
        let Committed {
            overlay,
            mut results,
            counts: counted,
        } = committed;
        if let Some(counts) = counts {
            *counts = counted;
        }
        let mut steps = StepRunner::new(input, overlay);
        let deposits = results.deposits()?;
        let contracts = steps.after()?;
        results.add_accesses(steps.end());
        let changes = steps.into_overlay().finish();
        Ok(results.finish(deposits, contracts, changes, true))
    }
}

/// A block's transactions, shared by threads.
struct Block<'a, DB: StateRead + Sync> {
    input: &'a BlockInput<'a>,
    cache: &'a BlockCache<'a, DB>,
    versions: &'a Versions,
    schedule: Schedule<Vec<Option<Ahead>>>,
    /// What has been committed, or why the block is invalid.
    committed: Mutex<Result<Committed<'a, DB>, BelowExecutionError<DB::Error>>>,
}

impl<'a, DB: StateRead + Sync> Block<'a, DB> {
    /// Runs jobs until none is left.
    fn work(&self) {
        let _stop = StopOnPanic(&self.schedule);
        let below = Below::Parent(self.cache);
        let overlay = Overlay::new(below, OverlayMode::default());
        let mut runner = StepRunner::new(self.input, overlay);
        while let Some(job) = self.schedule.next() {
            match job {
                Job::Ahead(portion, transactions) => {
                    let ahead = transactions.map(|index| self.ahead(&mut runner, index));
                    self.schedule.ran(portion, ahead.collect());
                }
                Job::Commit(transactions, ahead) => self.commit(&mut runner, transactions, ahead),
            }
        }
    }

    fn ahead(&self, runner: &mut Runner<'a, DB>, index: usize) -> Option<Ahead> {
        let below = Below::Guess {
            cache: self.cache,
            versions: self.versions,
            index,
            guessed: AtomicBool::new(false),
        };
        let mut overlay = Overlay::new(below, OverlayMode::default());
        runner.swap_overlay(&mut overlay);
        let done = runner.transaction_and_fee(index);
        runner.swap_overlay(&mut overlay);
        // A transaction that fails here may succeed at its commit position.
        let (result, state, fee) = done.ok()?;
        let left = self.versions.put(index, &state);
        Some(Ahead {
            result,
            state,
            fee,
            reads_parent: overlay.below().is_parent(),
            reads: overlay.into_reads(),
            left,
        })
    }

    fn commit(
        &self,
        runner: &mut Runner<'a, DB>,
        transactions: Range<usize>,
        ahead: Option<Vec<Option<Ahead>>>,
    ) {
        let mut state = self
            .committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Ok(committed) = &mut *state else { return };
        let mut ahead = ahead.into_iter().flatten();
        let before = committed.counts;
        for index in transactions {
            if let Err(error) = self.commit_one(committed, runner, index, ahead.next().flatten()) {
                *state = Err(error);
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
        let result = match ahead {
            // If the state can't be read, running the transaction again returns the error.
            Some(ahead)
                if overlay
                    .agrees_with(&ahead.reads, ahead.reads_parent)
                    .unwrap_or(false) =>
            {
                let mut state = ahead.state;
                let commit = self.pay(overlay, ahead.fee, &mut state);
                let commit = commit.and_then(|()| overlay.commit(state));
                commit.map_err(ExecutionError::Database)?;
                counts.parallel += 1;
                ahead.result
            }
            ahead => {
                if let Some(ahead) = ahead {
                    self.versions.remove(index, &ahead.left);
                    counts.again += 1;
                }
                runner.swap_overlay(overlay);
                let result = self.in_order(runner, index);
                runner.swap_overlay(overlay);
                result?
            }
        };
        results.add(result, B256::ZERO);
        results.add_accesses(overlay.end_access_step());
        Ok(())
    }

    fn in_order(
        &self,
        runner: &mut Runner<'a, DB>,
        index: usize,
    ) -> Result<TransactionResult, BelowExecutionError<DB::Error>> {
        let (result, state) = runner.transaction_state(index)?;
        self.versions.put(index, &state);
        runner.commit(state)?;
        Ok(result)
    }

    /// Adds the beneficiary's fee to a transaction's writes, as the EVM does.
    fn pay(
        &self,
        overlay: &mut Overlay<Below<'a, DB>>,
        fee: U256,
        state: &mut EvmState,
    ) -> Result<(), BelowError<DB::Error>> {
        let beneficiary = self.input.header.beneficiary;
        let mut account = match overlay.account(beneficiary)? {
            Some(info) => Account::from(info.clone()),
            None => Account::new_not_existing(TransactionId::ZERO),
        };
        if let Some(balance) = account.info.balance.checked_add(fee) {
            account.info.balance = balance;
        }
        account.mark_touch();
        state.insert(beneficiary, account);
        Ok(())
    }
}

/// Stops the other threads if one panics.
struct StopOnPanic<'a>(&'a Schedule<Vec<Option<Ahead>>>);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

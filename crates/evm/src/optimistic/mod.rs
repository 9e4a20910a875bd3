//! Transactions ahead of their turn, without an access list: in the manner of Block-STM.
//!
//! ```text
//!   ahead   a transaction runs on a guess at what it will find      Versions, Below::Guess
//!           and notes what it read                                  Overlay::into_reads
//!   turn    all transactions before it are in the block's overlay:
//!           has that what was read?  its result is taken in          Overlay::agrees_with
//!           else                     it runs again, on the overlay
//! ```
//!
//! What a transaction does depends on what it reads, and on nothing else. So a result is right if
//! all that was read is what the block's overlay has when the turn comes; guesses need not be
//! consistent, or right. A turn that was not run ahead, or in vain, is run as sequential execution
//! runs it, on the same overlay. So errors are sequential's, too.
//!
//! Fees of the beneficiary are kept apart, and paid at the turn ([`crate::handler`]). A transaction
//! that reads the beneficiary waits for its turn, as does one that creates a contract where there
//! is a balance already. One of the same sender waits until the one before has run.
//!
//! Before Byzantium receipts hold states in mid-block: such blocks are executed in sequence.

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

/// Executes transactions ahead of their turn, from Byzantium on.
#[derive(Clone, Copy, Debug)]
pub struct Optimistic {
    /// Threads that transactions run on.
    pub threads: NonZeroUsize,
}

/// What running a transaction ahead gave.
struct Ahead {
    result: TransactionResult,
    state: EvmState,
    fee: U256,
    reads: Vec<AccountRead>,
    /// Whether all that was read is the parent's.
    reads_parent: bool,
    left: Vec<Key>,
}

/// What has been taken in.
struct Taken<'a, DB> {
    overlay: Overlay<Below<'a, DB>>,
    results: BlockResults<'a>,
    counts: ExecutionCounts,
}

type Runner<'a, DB> = StepRunner<'a, Below<'a, DB>>;
type BelowExecutionError<E> = ExecutionError<BelowError<E>>;

impl Executor for Optimistic {
    fn execute<DB: StateRead>(
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
                BelowError::InOrder => unreachable!("it is asked of guesses only"),
            })
        })
    }
}

impl Optimistic {
    fn run<DB: StateRead>(
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
            taken: Mutex::new(Ok(Taken {
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
        let taken = block.taken.into_inner();
        let taken = taken.unwrap_or_else(PoisonError::into_inner)?;
        let Taken {
            overlay,
            mut results,
            counts: counted,
        } = taken;
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
struct Block<'a, DB: StateRead> {
    input: &'a BlockInput<'a>,
    cache: &'a BlockCache<'a, DB>,
    versions: &'a Versions,
    schedule: Schedule<Vec<Option<Ahead>>>,
    /// What was taken in, or why the block is invalid.
    taken: Mutex<Result<Taken<'a, DB>, BelowExecutionError<DB::Error>>>,
}

impl<'a, DB: StateRead> Block<'a, DB> {
    /// Does what there is to do, until there is nothing left.
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
                Job::Turn(transactions, ahead) => self.turn(&mut runner, transactions, ahead),
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
        // What fails ahead of its turn may do well then.
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

    fn turn(
        &self,
        runner: &mut Runner<'a, DB>,
        transactions: Range<usize>,
        ahead: Option<Vec<Option<Ahead>>>,
    ) {
        let mut all = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(taken) = &mut *all else { return };
        let mut ahead = ahead.into_iter().flatten();
        let before = taken.counts;
        for index in transactions {
            if let Err(error) = self.take(taken, runner, index, ahead.next().flatten()) {
                *all = Err(error);
                self.schedule.stop();
                return;
            }
        }
        let vain = taken.counts.again - before.again;
        let ran = taken.counts.parallel - before.parallel + vain;
        self.schedule.turn_is_done(ran as usize, vain as usize);
    }

    fn take(
        &self,
        taken: &mut Taken<'a, DB>,
        runner: &mut Runner<'a, DB>,
        index: usize,
        ahead: Option<Ahead>,
    ) -> Result<(), BelowExecutionError<DB::Error>> {
        let Taken {
            overlay,
            results,
            counts,
        } = taken;
        results.check_limits()?;
        let result = match ahead {
            // A state that can't be read says so again.
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

    /// Adds to a transaction what the miner gets for it, as the EVM does.
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

/// Lets the other threads end if one panics.
struct StopOnPanic<'a>(&'a Schedule<Vec<Option<Ahead>>>);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

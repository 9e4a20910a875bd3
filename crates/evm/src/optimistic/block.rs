//! The execution of one block by a team of threads.

use super::{
    finish::{Finish, Given},
    run::{BeneficiaryWrite, Committed, Run, remove_balances, sender},
    schedule::{Job, Ran, Schedule, Take},
    state::{Below, BelowError, ParentReads, Position},
    sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock, try_lock},
    team::Team,
    versions::{ParentValues, Put, Verdict, Versions},
};
use crate::{
    BlockInput, ExecutionCounts, ExecutionError, Outcome, StateRead,
    cache::BlockCache,
    effects::{AccountWrite, Reads, Writes},
    helpers::HELPERS,
    overlay::{Overlay, OverlayMode},
    results::{BlockResults, check_senders},
    step::StepRunner,
    system::ContractRequest,
};
use alloy_consensus::Transaction as _;
use alloy_primitives::{Address, map::HashMap};
use cambium_crew::Helpers;
use revm::DatabaseRef;
use std::{cell::Cell, num::NonZeroUsize, thread};

/// Gas limits in sum for which one more thread is called, at most. Waking a thread takes as long
/// as a few short transactions.
const THREAD_GAS: u64 = 500_000;

/// Gas limit of a transaction that starts before shorter ones.
const LONG_GAS: u64 = 3_000_000;

pub(super) type BlockError<DB> = ExecutionError<BelowError<<DB as DatabaseRef>::Error>>;

/// Executes a block that has transactions.
pub(super) fn execute<DB: StateRead + Sync>(
    input: &BlockInput<'_>,
    db: &DB,
    threads: NonZeroUsize,
    counts: Option<&mut ExecutionCounts>,
) -> Result<Outcome, BlockError<DB>> {
    check_senders(input)?;
    let cache = BlockCache::new(db);
    let transactions = input.transactions.len();
    let versions = Versions::new(transactions + 3);
    let limits = input.transactions.iter().map(|it| it.gas_limit());
    let useful = limits.clone().fold(0, u64::saturating_add) / THREAD_GAS;
    let useful = usize::try_from(useful).unwrap_or(usize::MAX);
    let threads = threads
        .get()
        .min(useful.saturating_add(1))
        .min(transactions);
    let long = limits
        .clone()
        .enumerate()
        .filter(|(_, gas)| *gas >= LONG_GAS);
    let long = long.map(|(index, _)| index).collect();
    let after = probable_dependencies(input).into_iter();
    let schedule = Schedule::new(limits.zip(after), long, threads);
    let block = Block {
        input,
        cache: &cache,
        versions: &versions,
        schedule: &schedule,
        team: Team::new(threads),
        committed: Mutex::new(Ok(Committed::default())),
        finish: Finish::new(input, &versions, &schedule),
        is_over: AtomicBool::new(false),
    };
    let next = AtomicUsize::new(1);
    // Threads are called one by one, in the order of their numbers.
    let help = |helpers: &Helpers<'_>| block.help(helpers, next.fetch_add(1, Ordering::Relaxed));
    let (outcome, counted) = HELPERS.lead(&help, |helpers| block.lead(helpers))?;
    if let Some(counts) = counts {
        *counts += counted;
    }
    Ok(outcome)
}

/// For each transaction the previous one of its sender, if both run code. Only the sender knows what
/// they do, and mostly they belong together. Payments do not depend on each other.
fn probable_dependencies(input: &BlockInput<'_>) -> Vec<Option<usize>> {
    let mut last = HashMap::<Address, usize>::default();
    let transactions = input.senders.iter().zip(input.transactions).enumerate();
    let before = transactions.map(|(index, (sender, transaction))| {
        let runs_code = transaction.is_create() || !transaction.input().is_empty();
        runs_code.then(|| last.insert(*sender, index)).flatten()
    });
    before.collect()
}

/// A block's transactions, shared by threads.
struct Block<'a, DB: StateRead + Sync> {
    input: &'a BlockInput<'a>,
    cache: &'a BlockCache<'a, DB>,
    versions: &'a Versions,
    schedule: &'a Schedule<Run>,
    team: Team,
    /// Locked by the thread that commits. An error if the block is invalid.
    committed: Mutex<Result<Committed, BlockError<DB>>>,
    finish: Finish<'a>,
    /// Whether all threads have to end.
    is_over: AtomicBool,
}

/// A thread's EVM, and the values that it has read.
struct Worker<'a, DB: StateRead + Sync> {
    parent: &'a ParentReads<'a, DB>,
    versions: &'a Versions,
    runner: StepRunner<'a, Below<'a, DB>>,
}

impl<'a, DB: StateRead + Sync> Worker<'a, DB> {
    /// Begins a step, of a transaction by `sender` with this nonce unless it runs in order.
    fn begin(
        &mut self,
        input: &BlockInput<'_>,
        step: usize,
        sender: Option<(Address, u64)>,
        position: Position,
    ) {
        let below = Below {
            parent: self.parent,
            versions: self.versions,
            step,
            sender,
            is_nonce_guessed: Cell::new(false),
            beneficiary: input.header.beneficiary,
            position,
        };
        self.runner.overlay().begin_again(below);
    }
}

/// Ends all threads when the leading thread returns, and when any thread panics: sleeping threads never wake if the one
/// that would wake them has gone.
struct EndOnDrop<'a, 'b, DB: StateRead + Sync> {
    block: &'a Block<'b, DB>,
    leads: bool,
}

impl<DB: StateRead + Sync> Drop for EndOnDrop<'_, '_, DB> {
    fn drop(&mut self) {
        if self.leads || thread::panicking() {
            self.block.schedule.stop();
            self.block.is_over.store(true, Ordering::SeqCst);
            self.block.team.call_all();
        }
    }
}

/// Index of the step of a transaction.
const fn step_of(index: usize) -> usize {
    index + 1
}

impl<'a, DB: StateRead + Sync> Block<'a, DB> {
    /// Executes the whole block, together with the threads that [`Self::help`].
    fn lead(&self, helpers: &Helpers<'_>) -> Result<(Outcome, ExecutionCounts), BlockError<DB>> {
        let _end = EndOnDrop {
            block: self,
            leads: true,
        };
        let parent = ParentReads::new(self.cache, self.team.reading(0));
        let mut worker = self.worker(&parent);
        {
            // Until this is unlocked transactions only run ahead.
            let mut committed = lock(&self.committed);
            self.call(helpers);
            *committed = Ok(self.before(&mut worker)?);
        }
        self.work(helpers, &mut worker);
        let committed = std::mem::replace(&mut *lock(&self.committed), Ok(Committed::default()));
        let mut committed = committed?;
        let counts = committed.counts;
        let contracts = self.after(&mut worker, &mut committed);
        let given = Given {
            gas_used: committed.gas_used,
            balances: match committed.has_withheld || !committed.balances.is_empty() {
                true => Some(committed.balances),
                false => None,
            },
        };
        self.finish.open_first(given);
        self.call(helpers);
        self.finish_until(helpers, Finish::is_first_done);
        let receipts = self.finish.take_receipts();
        self.finish.open_second();
        self.call(helpers);
        let mut results = BlockResults::of_receipts(self.input, receipts, committed.limits);
        let deposits = results.deposits()?;
        let contracts = contracts?;
        self.finish_until(helpers, Finish::is_second_done);
        let (changes, access_list) = self.finish.take_changes();
        if let Some(list) = access_list {
            results.set_access_list(list);
        }
        let outcome = results.finish(deposits, contracts, changes, true);
        Ok((outcome, counts))
    }

    /// Runs the step before the transactions.
    fn before(&self, worker: &mut Worker<'_, DB>) -> Result<Committed, BlockError<DB>> {
        let beneficiary = self.input.header.beneficiary;
        let account = worker.parent.account(beneficiary).map_err(database)?;
        let mut committed = Committed {
            beneficiary: account,
            ..Committed::default()
        };
        let position = Position::Commit(committed.beneficiary.clone());
        worker.begin(self.input, 0, None, position);
        worker.runner.before()?;
        self.end_step(worker, &mut committed, 0)?;
        committed.balances.clear();
        self.schedule.began();
        Ok(committed)
    }

    /// Runs the step after the transactions.
    fn after(
        &self,
        worker: &mut Worker<'_, DB>,
        committed: &mut Committed,
    ) -> Result<Vec<ContractRequest>, BlockError<DB>> {
        let last = step_of(self.schedule.len());
        let address = self.input.header.beneficiary;
        let beneficiary = AccountWrite::Set {
            before: None,
            now: committed.beneficiary.clone(),
            // Where a step deleted its slots, those that later ones wrote remain.
            wiped: committed.was_beneficiary_gone && self.versions.wiped(address, last).is_none(),
        };
        let mut writes = Writes::default();
        writes.accounts.push((address, beneficiary));
        self.put(worker, last, writes)?;
        let position = Position::Commit(committed.beneficiary.clone());
        worker.begin(self.input, last + 1, None, position);
        let contracts = worker.runner.after()?;
        let accesses = worker.runner.end();
        self.finish.add_accesses(last, accesses);
        let mut writes = worker.runner.overlay().take_writes();
        self.add_codes(&mut writes);
        self.put(worker, last + 1, writes)?;
        Ok(contracts)
    }

    /// Ends a step whose writes were applied to the overlay.
    fn end_step(
        &self,
        worker: &mut Worker<'_, DB>,
        committed: &mut Committed,
        step: usize,
    ) -> Result<(), BlockError<DB>> {
        let accesses = worker.runner.end();
        self.finish.add_accesses(step, accesses);
        let mut writes = worker.runner.overlay().take_writes();
        self.add_codes(&mut writes);
        let beneficiary = BeneficiaryWrite::take(&mut writes, self.input.header.beneficiary);
        committed.apply(step, beneficiary);
        let put = self.put(worker, step, writes)?;
        self.outdated(put, None);
        Ok(())
    }

    fn add_codes(&self, writes: &mut Writes) {
        let codes = writes.codes.iter();
        let codes = codes.map(|(hash, code)| (*hash, code.original_bytes()));
        self.finish.add_codes(codes);
    }

    /// Works on the block until it is over.
    fn help(&self, helpers: &Helpers<'_>, thread: usize) {
        let _end = EndOnDrop {
            block: self,
            leads: false,
        };
        let parent = ParentReads::new(self.cache, self.team.reading(thread));
        self.work(helpers, &mut self.worker(&parent));
        self.finish_until(helpers, |_| false);
    }

    /// Wakes or starts another thread.
    fn call(&self, helpers: &Helpers<'_>) {
        self.team.call(|thread| {
            if helpers.call(1) == 0 {
                // Those that there are do the work.
                self.team.refused(thread);
            }
        });
    }

    fn worker<'b>(&'b self, parent: &'b ParentReads<'b, DB>) -> Worker<'b, DB> {
        let below = Below {
            parent,
            versions: self.versions,
            step: 0,
            sender: None,
            is_nonce_guessed: Cell::new(false),
            beneficiary: self.input.header.beneficiary,
            position: Position::Ahead,
        };
        let overlay = Overlay::new(below, OverlayMode::of(&self.input.rules));
        Worker {
            parent,
            versions: self.versions,
            runner: StepRunner::new(self.input, overlay),
        }
    }

    /// Runs and commits transactions until all are committed.
    fn work(&self, helpers: &Helpers<'_>, worker: &mut Worker<'_, DB>) {
        loop {
            self.commit(helpers, worker);
            if !self.team.is_crowded()
                && let Some(job) = self.schedule.claim()
            {
                if self.schedule.has_job() {
                    self.call(helpers);
                }
                match job {
                    Job::Run(group) => {
                        for index in group.members() {
                            if self.schedule.is_running(index) {
                                self.ahead(worker, index);
                            }
                        }
                    }
                    Job::Validate(range) => range.for_each(|index| self.validate(index)),
                }
                continue;
            }
            if self.schedule.is_over() {
                return;
            }
            self.team
                .rest(|| self.schedule.has_job(), || self.schedule.is_over());
        }
    }

    /// Does jobs after the transactions until `is_done`, or the block is over.
    fn finish_until(&self, helpers: &Helpers<'_>, is_done: impl Fn(&Finish<'a>) -> bool) {
        let is_over = || is_done(&self.finish) || self.is_over.load(Ordering::SeqCst);
        loop {
            if !self.team.is_crowded()
                && let Some(job) = self.finish.claim()
            {
                if self.finish.has_job() {
                    self.call(helpers);
                }
                if self.finish.run(job) {
                    self.team.call_all();
                }
                continue;
            }
            if is_over() {
                return;
            }
            self.team.rest(|| self.finish.has_job(), is_over);
        }
    }

    /// Runs a transaction ahead of its commit position.
    fn ahead(&self, worker: &mut Worker<'_, DB>, index: usize) {
        let beneficiary = self.input.header.beneficiary;
        let address = self.input.senders[index];
        if address == beneficiary {
            self.schedule.hold(index);
            return;
        }
        let step = step_of(index);
        let nonce = self.input.transactions[index].nonce();
        worker.begin(self.input, step, Some((address, nonce)), Position::Ahead);
        let (result, state, fee) = match worker.runner.transaction_and_fee(index) {
            Ok(ran) => ran,
            Err(ExecutionError::Database(BelowError::WaitFor(before, slot))) => {
                self.schedule.wait_for(index, before - 1, || {
                    if let Some((address, slot)) = slot {
                        self.versions.expect(step, address, slot);
                    }
                });
                return;
            }
            // A transaction that fails here may succeed at its commit position.
            Err(_) => {
                self.schedule.hold(index);
                return;
            }
        };
        let overlay = worker.runner.overlay();
        let Ok(accesses) = overlay.accesses_of(&state) else {
            self.schedule.hold(index);
            return;
        };
        let is_guess = overlay.below().is_nonce_guessed.get();
        let effects = overlay.take_effects(state, sender(self.input, index, is_guess));
        let ran = Run::ahead(result, fee, accesses, effects, beneficiary);
        let Some((run, writes)) = ran else {
            self.schedule.hold(index);
            return;
        };
        let mut outdated = Put::default();
        let has_result = self.schedule.ran(index, || {
            // If the parent's state can't be read, running in order returns the error.
            outdated = self.put(worker, step, writes).ok()?;
            if outdated.is_outdated {
                let readers = self.versions.make_estimates(step);
                outdated.outdated.extend(readers);
                return None;
            }
            Some(run)
        });
        let because = outdated.is_outdated.then_some(index);
        self.outdated(outdated, because);
        if has_result && self.schedule.is_validatable(index) {
            self.validate(index);
        }
    }

    fn put(
        &self,
        worker: &Worker<'_, DB>,
        step: usize,
        writes: Writes,
    ) -> Result<Put, BlockError<DB>> {
        let put = self.versions.put(step, writes, worker.parent);
        put.map_err(database)
    }

    fn validate(&self, index: usize) {
        let is_valid = |run: &Run| match self.verdict(index, &run.reads) {
            Verdict::Same => Some(true),
            Verdict::Differs => Some(false),
            Verdict::Unknown => None,
        };
        self.schedule
            .validate(index, is_valid, |index| self.estimate(index));
    }

    fn verdict(&self, index: usize, reads: &Reads) -> Verdict {
        let beneficiary = &self.input.header.beneficiary;
        self.versions.verdict(step_of(index), reads, beneficiary)
    }

    /// Makes transactions run again that read what has changed.
    fn outdated(&self, put: Put, because: Option<usize>) {
        let transactions = put.outdated.into_iter().map(|step| step - 1).collect();
        self.schedule
            .outdated(transactions, because, |index| self.estimate(index));
    }

    fn estimate(&self, index: usize) -> Vec<usize> {
        let readers = self.versions.make_estimates(step_of(index)).into_iter();
        readers.map(|step| step - 1).collect()
    }

    /// Commits transactions until one is still running, unless another thread does.
    fn commit(&self, helpers: &Helpers<'_>, worker: &mut Worker<'_, DB>) {
        while !self.schedule.is_over() {
            let Some(mut locked) = try_lock(&self.committed) else {
                return;
            };
            while let Ok(committed) = &mut *locked
                && !self.schedule.is_over()
            {
                match self.commit_next(worker, committed) {
                    Ok(None) => break,
                    Ok(Some(has_more)) => {
                        if has_more && self.schedule.has_job() {
                            self.call(helpers);
                        }
                    }
                    Err(error) => {
                        *locked = Err(error);
                        self.schedule.stop();
                    }
                }
            }
            drop(locked);
            if self.schedule.is_over() {
                self.team.call_all();
            }
            if !self.schedule.is_committable() {
                return;
            }
        }
    }

    /// Commits the transaction at the commit position. Returns whether others may run now that could not
    /// before, or `None` if it is still running.
    fn commit_next(
        &self,
        worker: &mut Worker<'_, DB>,
        committed: &mut Committed,
    ) -> Result<Option<bool>, BlockError<DB>> {
        let index = self.schedule.position();
        let step = step_of(index);
        let beneficiary = self.input.header.beneficiary;
        let mut limits = committed.limits;
        limits.check(self.input, index)?;
        let (mut withheld, mut wasted) = (None, 0);
        let take = self.schedule.take(|run: &mut Run, is_valid| {
            let is_valid = is_valid || self.verdict(index, &run.reads) == Verdict::Same;
            if !is_valid || !committed.agrees_with(&run.reads, beneficiary) {
                wasted = run.result.gas_used;
                return false;
            }
            committed.limits = limits;
            committed.add_gas(&run.result);
            withheld = Some(run.withheld);
            true
        });
        let had_run = match take {
            Take::Wait => return Ok(None),
            Take::Valid => {
                committed.pay(step, withheld.unwrap_or_default());
                committed.counts.parallel += 1;
                return Ok(Some(self.schedule.committed(None, Ran::Well)));
            }
            Take::Run { had_run } => had_run,
        };
        if had_run {
            // Later transactions wait for its old writes while it runs.
            self.versions.make_estimates(step);
            committed.counts.again += 1;
        }
        let (put, write, run) = self.in_order(worker, index, committed)?;
        committed.limits = limits;
        committed.add_gas(&run.result);
        committed.apply(step, write);
        let ran = match had_run {
            true => Ran::InVain { gas: wasted },
            false => Ran::InOrder,
        };
        self.schedule.committed(Some(run), ran);
        self.outdated(put, None);
        Ok(Some(true))
    }

    /// Runs a transaction at its commit position.
    fn in_order(
        &self,
        worker: &mut Worker<'_, DB>,
        index: usize,
        committed: &Committed,
    ) -> Result<(Put, BeneficiaryWrite, Run), BlockError<DB>> {
        let step = step_of(index);
        let position = Position::Commit(committed.beneficiary.clone());
        worker.begin(self.input, step, None, position);
        let (result, state) = worker.runner.transaction_state(index)?;
        let overlay = worker.runner.overlay();
        let accesses = overlay.accesses_of(&state);
        let mut accesses = accesses.map_err(ExecutionError::Database)?;
        let (_, mut writes) = overlay.take_effects(state, sender(self.input, index, false));
        let beneficiary = self.input.header.beneficiary;
        let write = BeneficiaryWrite::take(&mut writes, beneficiary);
        remove_balances(&mut accesses, &writes, beneficiary);
        let run = Run::in_order(result, accesses, &writes);
        let put = self.put(worker, step, writes)?;
        Ok((put, write, run))
    }
}

fn database<E>(error: E) -> ExecutionError<BelowError<E>> {
    ExecutionError::Database(BelowError::State(error))
}

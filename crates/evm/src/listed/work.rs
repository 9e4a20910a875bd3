//! The work that blocks with access lists make, for many threads.
//!
//! ```text
//!   blocks   index each list                        by all threads, of a batch alone
//!   links    accounts of each list in earlier ones  by all threads, of a batch alone
//!   keys     portions of keys to read               by every second thread first
//!   steps    of all blocks, from one queue          by all threads
//! ```

use super::{
    reads::ListReads,
    results::{ChangesAndCodes, Claim, Results, Step, StepResult},
    stage::Stage,
    state::{ListState, ListStateError},
    values::{Unlisted, Values},
};
use crate::{
    ExecutionError, Outcome, StateRead,
    access_list::{self, ListedKey},
    executor::Timed,
    helpers::HELPERS,
    overlay::{Overlay, OverlayMode},
    step::StepRunner,
};
use alloy_consensus::Transaction as _;
use alloy_primitives::map::HashSet;
use cambium_crew::Helpers;
use std::{
    cmp::Reverse,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

/// Most keys that are read in one batch: enough to keep a disk busy nearly all the time, and a
/// fifth of the keys of a block of a billion gas.
const PORTION_MAX: usize = 16_384;
/// Fewest keys that are read in one batch, if there are more.
const PORTION_MIN: usize = 64;

/// Number of keys in a part of a list whose claimed changes one thread finds.
const CLAIM_KEYS: usize = 1_024;

/// Parts of the addresses, by their first byte, whose accounts are linked in one job.
const LINK_PARTS: u16 = 32;

/// Steps with more gas than a thread's share of all gas limits, divided by this, start before all
/// others, so that none of them is the last one.
const LONG_PART: u64 = 8;

/// A block of a batch with its outcome, and the time that all its steps took together.
pub(crate) type BlockDone = (usize, Option<Outcome>, Duration);

/// The work of all threads.
pub(crate) struct Work<'a, 'b, DB> {
    values: &'a Values<'b, DB>,
    threads: usize,
    indexed: Stage,
    linked: Stage,
    /// Position of the first block without a list, or with an impossible one.
    listed: AtomicUsize,
    blocks: Vec<OnceLock<Block>>,
    /// What the parts of the list of a block alone claim.
    claims: OnceLock<Stage>,
    queue: OnceLock<Vec<Job>>,
    next: AtomicUsize,
    reading: OnceLock<Reading>,
    stopped: AtomicBool,
    timed: Option<Timed<'a>>,
}

/// What is known of a block once its list is indexed.
struct Block {
    /// Its steps in the order in which they start.
    order: Vec<u32>,
    /// Parts of the accounts in its list.
    parts: Vec<Range<usize>>,
    /// Whether its list seems to lack keys that are only read.
    is_copied: bool,
    results: Results,
}

/// A job of the queue.
#[derive(Clone, Copy)]
struct Job {
    block: u32,
    /// Index of the step; `None` for the claimed changes.
    step: Option<u32>,
}

/// Portions of keys to read.
struct Reading {
    /// The keys of a block alone, in the order in which they are read. Else they are those of the
    /// lists, in their order.
    keys: Option<Vec<ListedKey>>,
    /// Block, and numbers of its first key and of that after the last one.
    portions: Vec<(usize, usize, usize)>,
    next: AtomicUsize,
}

type Runner<'a, 'b, DB> = StepRunner<'a, ListState<'a, 'b, DB>>;
type StepError<DB> = ExecutionError<ListStateError<<DB as revm::DatabaseRef>::Error>>;

/// What a thread keeps from step to step.
struct Worker<'a, 'b, DB: StateRead + Sync> {
    block: usize,
    runner: Option<Runner<'a, 'b, DB>>,
    unlisted: &'a Unlisted,
    /// Keys that are not listed, which the thread has reported for the block.
    reported: HashSet<access_list::Unlisted>,
}

impl<'a, 'b, DB: StateRead + Sync> Work<'a, 'b, DB> {
    pub(crate) fn new(
        values: &'a Values<'b, DB>,
        threads: usize,
        timed: Option<Timed<'a>>,
    ) -> Self {
        let count = values.len();
        let is_batch = count > 1;
        Self {
            values,
            threads,
            indexed: Stage::new(count),
            linked: Stage::new(if is_batch { LINK_PARTS.into() } else { 0 }),
            listed: AtomicUsize::new(count),
            blocks: (0..count).map(|_| OnceLock::new()).collect(),
            claims: OnceLock::new(),
            queue: OnceLock::new(),
            next: AtomicUsize::new(0),
            reading: OnceLock::new(),
            stopped: AtomicBool::new(false),
            timed,
        }
    }

    /// Stops the threads: no further job starts.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn results(&self, block: usize) -> Option<&Results> {
        Some(&self.blocks[block].get()?.results)
    }

    /// Indexes the list of a block. `other` as in [`Results::new`]. False if it has none, or an
    /// impossible one.
    fn index(&self, block: usize, other: impl FnOnce() -> usize) -> bool {
        let values = self.values.block(block);
        if !values.index(self.values.len() > 1) {
            self.listed.fetch_min(block, Ordering::Relaxed);
            return false;
        }
        let transactions = values.input.transactions;
        let limit = |at: u32| {
            let transaction = at
                .checked_sub(1)
                .and_then(|at| transactions.get(at as usize));
            // The steps around the transactions have no gas limit: they go first.
            Reverse(transaction.map_or(u64::MAX, |transaction| transaction.gas_limit()))
        };
        let mut order: Vec<_> = (0..transactions.len() as u32 + 2).collect();
        order.sort_by_cached_key(|at| limit(*at));
        let claimed = values.given().index().parts(CLAIM_KEYS);
        let results = Results::new(order.len(), other(), claimed.len());
        let has_no_reads = values.given().index().has_no_reads();
        let indexed = Block {
            order,
            is_copied: has_no_reads && values.input.rules.block_access_list,
            parts: claimed,
            results,
        };
        self.blocks[block].set(indexed).is_ok()
    }

    /// Prepares a block alone. False if its list is impossible.
    pub(super) fn prepare_one(&self, reads: ListReads) -> bool {
        let found = self.values.block(0).found;
        let portions = OnceLock::new();
        let is_listed = self.index(0, || {
            let all = self.values.given(0).index().key_count();
            let verified = found.map_or(0, |_| all);
            let all = match (reads, found) {
                (ListReads::Changes, None) => 0,
                _ => all,
            };
            let _ = portions.set(self.portions(0, all));
            // The changes, and what is verified.
            1 + self.portions(0, verified).len()
        });
        if !is_listed {
            return false;
        }
        let parts = self.blocks[0].get().map_or(0, |block| block.parts.len());
        let _ = self.claims.set(Stage::new(parts));
        self.queue.get_or_init(|| self.queue_of(1, false));
        if reads != ListReads::Changes || found.is_some() {
            self.read_later(None, portions.into_inner().unwrap_or_default());
        }
        true
    }

    /// Also reads the keys that are listed as changed, in the order of steps.
    pub(super) fn read_changed(&self) {
        if self.reading.get().is_none() {
            let changed = self.values.given(0).index().changed();
            let portions = self.portions(0, changed.len());
            self.read_later(Some(changed), portions);
        }
    }

    fn read_later(&self, keys: Option<Vec<ListedKey>>, portions: Vec<(usize, usize, usize)>) {
        let _ = self.reading.set(Reading {
            keys,
            portions,
            next: AtomicUsize::new(0),
        });
    }

    fn portions(&self, block: usize, keys: usize) -> Vec<(usize, usize, usize)> {
        let size = keys.div_ceil(self.threads).clamp(PORTION_MIN, PORTION_MAX);
        let starts = (0..keys).step_by(size);
        starts
            .map(|start| (block, start, keys.min(start + size)))
            .collect()
    }

    /// Prepares a batch, together with the other threads.
    fn prepare_batch(&self) {
        self.indexed.run(|block| {
            // The changes.
            self.index(block, || 1);
        });
        let count = self.listed.load(Ordering::Relaxed);
        self.linked.run(|part| {
            let size = 256 / LINK_PARTS;
            let start = part as u16 * size;
            self.values.link(start..start + size, count);
        });
        self.queue.get_or_init(|| {
            let portions = (0..count).flat_map(|block| {
                let keys = self.values.given(block).index().key_count();
                self.portions(block, keys)
            });
            self.read_later(None, portions.collect());
            self.queue_of(count, true)
        });
    }

    /// The jobs of the first `count` blocks: long steps, then block after block, of each the steps
    /// with the highest gas limits first.
    fn queue_of(&self, count: usize, with_changes: bool) -> Vec<Job> {
        let blocks = self.blocks[..count].iter().enumerate();
        let blocks = blocks.filter_map(|(block, it)| Some((block, &it.get()?.order)));
        let limit = |block: usize, at: u32| {
            let transactions = self.values.block(block).input.transactions;
            let transaction = at
                .checked_sub(1)
                .and_then(|at| transactions.get(at as usize));
            transaction.map_or(0, |transaction| transaction.gas_limit())
        };
        let limits = blocks.clone().flat_map(|(block, order)| {
            let limits = order.iter();
            limits.map(move |at| limit(block, *at))
        });
        let all = limits.fold(0u64, u64::saturating_add);
        let long = match count {
            1 => u64::MAX,
            _ => all / (LONG_PART * self.threads as u64),
        };
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for (block, order) in blocks {
            let job = |step| Job {
                block: block as u32,
                step,
            };
            if with_changes {
                rest.push(job(None));
            }
            for at in order {
                match limit(block, *at) {
                    limit if limit > long => first.push((Reverse(limit), job(Some(*at)))),
                    _ => rest.push(job(Some(*at))),
                }
            }
        }
        first.sort_by_key(|(limit, _)| *limit);
        let first = first.into_iter().map(|(_, job)| job);
        first.chain(rest).collect()
    }

    /// Finds what a part of the list of a block alone claims. False if no part is left.
    fn claim_one(&self) -> bool {
        let stage = self.claims.get();
        stage.is_some_and(|stage| stage.run_one(|part| self.claim(0, part)))
    }

    fn claim(&self, block: usize, part: usize) {
        if let Some(Block {
            parts,
            is_copied,
            results,
            ..
        }) = self.blocks[block].get()
        {
            let positions = parts[part].clone();
            let changes = self.values.changes_of(block, positions.clone());
            let given = self.values.given(block);
            let accounts = &given.list().accounts()[positions.clone()];
            let claim = changes.map(|changes| Claim {
                changes,
                count: given.index().count_changes(positions),
                copy: is_copied.then(|| accounts.to_vec()),
            });
            results.add_claim(part, claim.ok());
        }
    }

    /// The changes that the list of a block claims, found together with the other threads if the
    /// block is alone.
    pub(super) fn claimed(&self, block: usize) -> Option<ChangesAndCodes> {
        match self.claims.get() {
            Some(stage) => stage.run(|part| self.claim(block, part)),
            None => {
                let parts = self.blocks[block].get()?.parts.len();
                (0..parts).for_each(|part| self.claim(block, part));
            }
        }
        self.results(block)?.claimed(self.values.given(block))
    }

    /// Runs `own` as thread 0 while all others do the work.
    pub(crate) fn lead<T>(&self, done: &Sender<BlockDone>, own: impl FnOnce() -> T) -> T {
        let next = AtomicUsize::new(1);
        let work = |_: &Helpers<'_>| self.work(next.fetch_add(1, Ordering::Relaxed), done);
        HELPERS.lead(&work, |helpers| {
            helpers.call(self.threads.saturating_sub(1));
            own()
        })
    }

    /// Does the work of thread `number` until none is left.
    pub(crate) fn work(&self, number: usize, done: &Sender<BlockDone>) {
        if self.queue.get().is_none() {
            self.prepare_batch();
        }
        let Some(queue) = self.queue.get() else {
            return;
        };
        let unlisted = Unlisted::default();
        let mut worker = Worker {
            block: 0,
            runner: None,
            unlisted: &unlisted,
            reported: HashSet::default(),
        };
        let reads_first = number.is_multiple_of(2);
        while !self.is_stopped() {
            if reads_first && (self.read_one(done) || self.claim_one()) {
                continue;
            }
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = queue.get(next) else { break };
            self.run(job, &mut worker, done);
        }
        // Values are verified even if no step is left.
        while !self.is_stopped() && self.values.block(0).found.is_some() && self.read_one(done) {}
    }

    fn run<'w>(&'w self, job: &Job, worker: &mut Worker<'w, 'b, DB>, done: &Sender<BlockDone>) {
        let block = job.block as usize;
        let Some(results) = self.results(block) else {
            return;
        };
        let is_complete = match job.step {
            None => results.end_changes(self.claimed(block).map(Arc::new)),
            Some(at) => {
                let input = &self.values.block(block).input;
                let at = at as usize;
                let step = match results.has_failed() {
                    true => None,
                    false => self.step(worker, block, at, results),
                };
                results.end_step(input, at, step)
            }
        };
        self.end(is_complete, block, done);
    }

    /// Hands on the outcome of a block, if it is complete.
    pub(super) fn end(&self, is_complete: bool, block: usize, done: &Sender<BlockDone>) {
        if is_complete && let Some(results) = self.results(block) {
            let elapsed = results.elapsed();
            let outcome = results.outcome(self.values.block(block));
            // Touching an empty account deletes it, which no list says.
            let outcome = outcome.filter(|_| !self.values.has_empty_account());
            // Without a receiver nobody wants it.
            let _ = done.send((block, outcome, elapsed));
        }
    }

    /// Reads a portion of keys. False if there is none.
    pub(super) fn read_one(&self, done: &Sender<BlockDone>) -> bool {
        let Some(reading) = self.reading.get() else {
            return false;
        };
        let next = reading.next.fetch_add(1, Ordering::Relaxed);
        let Some((block, start, end)) = reading.portions.get(next).copied() else {
            return false;
        };
        let of_list;
        let keys = match &reading.keys {
            Some(keys) => &keys[start..end],
            None => {
                of_list = self.values.given(block).index().keys(start, end);
                &of_list
            }
        };
        match self.values.block(block).found {
            Some(found) => {
                let is_correct = matches!(self.values.verify(found, keys), Ok(true));
                if let Some(results) = self.results(block) {
                    let is_complete = results.end_reading(is_correct);
                    self.end(is_complete, block, done);
                }
            }
            // A step that needs a key that can't be read fails.
            None => drop(self.values.read(block, keys)),
        }
        true
    }

    fn step<'w>(
        &'w self,
        worker: &mut Worker<'w, 'b, DB>,
        block: usize,
        at: usize,
        results: &Results,
    ) -> Option<Step> {
        let start = Instant::now();
        let input = &self.values.block(block).input;
        worker.begin(self.values, block, at);
        let runner = worker.runner.as_mut()?;
        let result = result(runner, at, input.transactions.len()).ok()?;
        let accesses = runner.end()?;
        let mut unlisted = Vec::new();
        let index = self.values.given(block).index();
        let changes = index.changes_of(&accesses, at as u64, &mut unlisted)?;
        unlisted.retain(|key| worker.reported.insert(*key));
        if !unlisted.is_empty() {
            results.add_unlisted(&unlisted);
        }
        let elapsed = start.elapsed();
        if let (Some(timed), StepResult::Transaction(_)) = (self.timed, &result) {
            timed(at - 1, elapsed);
        }
        Some(Step {
            result,
            changes,
            elapsed,
        })
    }
}

impl<'a, 'b, DB: StateRead + Sync> Worker<'a, 'b, DB> {
    /// Goes to step `at` of a block.
    fn begin(&mut self, values: &'a Values<'b, DB>, block: usize, at: usize) {
        if self.block != block {
            self.block = block;
            self.unlisted.clear();
            self.reported.clear();
            // The environment is another.
            let runner = self.runner.take();
            self.runner = runner.map(|runner| {
                let overlay = runner.into_overlay();
                StepRunner::new(&values.block(block).input, overlay)
            });
        }
        let state = ListState {
            values,
            block,
            at: at as u64,
            unlisted: self.unlisted,
        };
        match &mut self.runner {
            Some(runner) => runner.overlay().begin_again(state),
            None => {
                let input = &values.block(block).input;
                let mode = OverlayMode {
                    record: true,
                    ..OverlayMode::of(&input.rules)
                };
                self.runner = Some(StepRunner::new(input, Overlay::new(state, mode)));
            }
        }
    }
}

fn result<DB: StateRead + Sync>(
    runner: &mut Runner<'_, '_, DB>,
    at: usize,
    transactions: usize,
) -> Result<StepResult, StepError<DB>> {
    Ok(match at.checked_sub(1) {
        None => {
            runner.before()?;
            StepResult::Before
        }
        Some(index) if index < transactions => StepResult::Transaction(runner.transaction(index)?),
        Some(_) => StepResult::After(runner.after()?),
    })
}

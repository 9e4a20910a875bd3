//! The order in which threads run transactions.
//!
//! Transactions are scheduled in *portions*: consecutive transactions with enough gas in sum to be
//! worth synchronizing for. The *commit position* is the first portion that has not been committed.
//! One thread commits it as soon as possible; the other threads run portions ahead of it.
//!
//! The thread that commits never waits for guesses that are likely to fail. A block starts in
//! doubt: a portion that another thread is running is then executed in order as well, and the
//! other thread's result is dropped. Without doubt the commit position waits for such a portion.

use alloy_primitives::{Address, map::HashMap};
use std::{
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Number of portions run ahead of the commit position, per thread. It is halved for each recent
/// portion that failed: the longer ago a transaction ran, the likelier its reads are outdated.
const AHEAD_PER_THREAD: usize = 32;

/// Maximum sum of gas limits in a portion of several transactions. The more transactions run side
/// by side, the likelier one misses what another writes.
const PORTION_GAS: u64 = 400_000;

/// Failed portions, less those that succeeded since, after which running ahead pauses. A portion
/// fails if more than two thirds of its transactions that had run ahead have to run again.
const FAILED_MAX: usize = 4;
/// Failed portions, less those that succeeded since, from which on the commit position waits for no
/// thread, so execution advances as fast as in sequence.
const DOUBT: usize = 2;
/// Number of portions for which running ahead pauses first. Each pause is twice as long as the one
/// before.
const PAUSE: usize = 32;

/// Gas limit of a portion that is run ahead before shorter ones: if it began last, all other
/// threads would wait for it.
const LONG_GAS: u64 = 3_000_000;

/// A job for a thread.
pub(super) enum Job<R> {
    /// Commit these transactions, given the result of running them ahead, if they have run.
    Commit(Range<usize>, Option<R>),
    /// Run these transactions, which are the portion of this index, ahead.
    Ahead(usize, Range<usize>),
}

pub(super) struct Schedule<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
    portions: Vec<Portion>,
    ahead_max: usize,
}

struct Portion {
    transactions: Range<usize>,
    /// Sum of the gas limits.
    gas: u64,
    /// Earlier portions with transactions of the same senders, on whose nonces this one depends.
    depends_on: Vec<usize>,
}

struct State<R> {
    /// The commit position.
    position: usize,
    is_committing: bool,
    stopped: bool,
    /// Failed portions, less those that succeeded since.
    failed: usize,
    /// Portions before this one are not run ahead.
    paused_until: usize,
    /// Number of portions for which running ahead pauses next.
    pause: usize,
    /// Number of threads that wait for a job.
    waiting: usize,
    stages: Vec<Stage<R>>,
}

enum Stage<R> {
    Waiting,
    Running,
    Ran(R),
    /// Committed, or being committed.
    Committed {
        ran_ahead: bool,
    },
}

impl<R> Schedule<R> {
    /// A schedule for transactions of these senders and gas limits, in order.
    pub(super) fn new(
        senders: &[Address],
        gas_limits: impl Iterator<Item = u64>,
        threads: usize,
    ) -> Self {
        let portions = portions(senders, gas_limits);
        Self {
            state: Mutex::new(State {
                position: 0,
                is_committing: true,
                stopped: false,
                failed: DOUBT,
                paused_until: 0,
                pause: PAUSE,
                waiting: 0,
                stages: portions.iter().map(|_| Stage::Waiting).collect(),
            }),
            changed: Condvar::new(),
            portions,
            ahead_max: threads.saturating_mul(AHEAD_PER_THREAD),
        }
    }

    /// Allows commits. Until then transactions are only run ahead.
    pub(super) fn start(&self) {
        let mut state = self.lock();
        state.is_committing = false;
        self.tell(state);
    }

    /// Waits for a job. `None` if none is left.
    pub(super) fn next(&self) -> Option<Job<R>> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.position == self.portions.len() {
                return None;
            }
            if let Some(ran) = state.start_commit() {
                let transactions = self.portions[state.position].transactions.clone();
                return Some(Job::Commit(transactions, ran));
            }
            if let Some(portion) = self.take_ahead(&mut state) {
                let transactions = self.portions[portion].transactions.clone();
                return Some(Job::Ahead(portion, transactions));
            }
            state.waiting += 1;
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    fn take_ahead(&self, state: &mut State<R>) -> Option<usize> {
        let portion = self.find_ahead(state)?;
        state.stages[portion] = Stage::Running;
        Some(portion)
    }

    /// The first portion that can be run ahead.
    fn find_ahead(&self, state: &State<R>) -> Option<usize> {
        let ahead_max = self.ahead_max >> state.failed;
        let end = (state.position + ahead_max).min(self.portions.len());
        let has_run = |portion: &usize| match state.stages[*portion] {
            Stage::Ran(_) => true,
            Stage::Committed { ran_ahead } => ran_ahead || *portion < state.position,
            Stage::Waiting | Stage::Running => false,
        };
        // The portion that is being committed, or that the first commit will take, is not run.
        let start = state.position + usize::from(state.is_committing);
        // In doubt the next one is executed in order before it could have run ahead.
        let start = start + usize::from(state.failed >= DOUBT);
        let start = start.max(state.paused_until);
        let mut ready = (start..end).filter(|portion| {
            matches!(state.stages[*portion], Stage::Waiting)
                && self.portions[*portion].depends_on.iter().all(has_run)
        });
        let first = ready.next()?;
        let is_long = |portion: &usize| self.portions[*portion].gas >= LONG_GAS;
        let long = Some(first).filter(is_long).or_else(|| ready.find(is_long));
        Some(long.unwrap_or(first))
    }

    /// Stores the result of running a portion ahead, unless it has been executed in order meanwhile.
    pub(super) fn ran(&self, portion: usize, result: R) {
        let mut state = self.lock();
        let stage = &mut state.stages[portion];
        if matches!(stage, Stage::Running) {
            *stage = Stage::Ran(result);
        }
        self.tell(state);
    }

    /// Advances the commit position past a portion of which `ran` transactions had run ahead and
    /// `failed` of these had to run again.
    pub(super) fn committed(&self, ran: usize, failed: usize) {
        let mut state = self.lock();
        state.position += 1;
        if ran > 0 {
            state.failed = match 3 * failed > 2 * ran {
                true => state.failed + 1,
                false => state.failed.saturating_sub(1),
            };
        }
        if state.failed == FAILED_MAX {
            // After the pause one more failed portion is enough for the next. Those that ran before
            // it and fail lengthen it: where many do, little of the block is worth running ahead.
            state.failed = FAILED_MAX - 1;
            state.paused_until = state.position.saturating_add(state.pause);
            state.pause = state.pause.saturating_mul(2);
        }
        state.is_committing = false;
        self.tell(state);
    }

    /// Ends all threads' work.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.tell(state);
    }

    /// Wakes waiting threads if there is a job to run ahead, or none is left: waking takes as long as a short
    /// transaction. Commits wake no thread, since the calling thread takes them.
    fn tell(&self, state: MutexGuard<'_, State<R>>) {
        let is_over = state.stopped || state.position == self.portions.len();
        let is_wanted = state.waiting > 0 && (is_over || self.find_ahead(&state).is_some());
        drop(state);
        if is_wanted {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> State<R> {
    /// Starts committing the portion at the commit position. Returns its result if it has run
    /// ahead; outer `None` if another thread commits, or runs the portion and is waited for.
    fn start_commit(&mut self) -> Option<Option<R>> {
        let is_doubtful = self.failed >= DOUBT;
        let stage = &mut self.stages[self.position];
        if self.is_committing || matches!(stage, Stage::Running) && !is_doubtful {
            return None;
        }
        self.is_committing = true;
        let ran_ahead = matches!(stage, Stage::Ran(_));
        match std::mem::replace(stage, Stage::Committed { ran_ahead }) {
            Stage::Ran(result) => Some(Some(result)),
            _ => Some(None),
        }
    }
}

fn portions(senders: &[Address], gas_limits: impl Iterator<Item = u64>) -> Vec<Portion> {
    let mut portions: Vec<Portion> = Vec::new();
    let mut last = HashMap::<_, _>::default();
    let mut gas_left = 0;
    for ((index, sender), gas) in senders.iter().enumerate().zip(gas_limits) {
        if gas > gas_left || portions.is_empty() {
            gas_left = PORTION_GAS;
            portions.push(Portion {
                transactions: index..index,
                gas: 0,
                depends_on: Vec::new(),
            });
        }
        gas_left = gas_left.saturating_sub(gas);
        let here = portions.len() - 1;
        let portion = &mut portions[here];
        portion.transactions.end = index + 1;
        portion.gas = portion.gas.saturating_add(gas);
        if let Some(before) = last.insert(*sender, here)
            && before < here
        {
            portion.depends_on.push(before);
        }
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schedule that has started, and in which nothing has failed.
    fn schedule(senders: &[u8], gas: &[u64]) -> Schedule<()> {
        let senders: Vec<_> = senders
            .iter()
            .map(|byte| Address::repeat_byte(*byte))
            .collect();
        let schedule = Schedule::new(&senders, gas.iter().copied(), 1);
        schedule.start();
        schedule.lock().failed = 0;
        schedule
    }

    /// As [`schedule`], with portions of different senders.
    fn distinct(count: usize) -> Schedule<()> {
        let senders: Vec<_> = (0..count as u8).collect();
        schedule(&senders, &vec![PORTION_GAS; count])
    }

    fn ahead(schedule: &Schedule<()>) -> Option<usize> {
        let mut state = schedule.lock();
        schedule.take_ahead(&mut state)
    }

    /// Starts the next commit, and returns whether it has the result of running ahead.
    fn commit(schedule: &Schedule<()>, at: usize) -> bool {
        match schedule.next() {
            Some(Job::Commit(range, ran)) if range.start == at => ran.is_some(),
            _ => panic!("{at} is not committed next"),
        }
    }

    #[test]
    fn short_transactions_go_together_and_long_ones_alone() {
        let third = PORTION_GAS / 3;
        let schedule = schedule(&[1; 8], &[third, third, third, third, u64::MAX, 0, 1, 1]);
        let ranges: Vec<_> = schedule
            .portions
            .iter()
            .map(|p| p.transactions.clone())
            .collect();
        assert_eq!(ranges, [0..3, 3..4, 4..6, 6..8]);
    }

    #[test]
    fn a_sender_waits_for_what_it_sent_before() {
        let gas = [PORTION_GAS; 4];
        let schedule = schedule(&[1, 2, 1, 1], &gas);
        assert_eq!([ahead(&schedule), ahead(&schedule)], [Some(0), Some(1)]);
        assert_eq!(ahead(&schedule), None, "2 and 3 wait for 0");
        schedule.ran(1, ());
        assert_eq!(ahead(&schedule), None);
        schedule.ran(0, ());
        assert_eq!([ahead(&schedule), ahead(&schedule)], [Some(2), None]);
    }

    #[test]
    fn long_transactions_run_ahead_first() {
        let gas = [PORTION_GAS, PORTION_GAS, LONG_GAS, PORTION_GAS, LONG_GAS];
        let schedule = schedule(&[1, 2, 3, 4, 4], &gas);
        let order = std::iter::from_fn(|| ahead(&schedule));
        assert_eq!(order.collect::<Vec<_>>(), [2, 0, 1, 3], "4 waits for 3");
        schedule.ran(3, ());
        assert_eq!(ahead(&schedule), Some(4));
    }

    #[test]
    fn the_commit_comes_before_running_ahead_and_once() {
        let schedule = distinct(2);
        assert!(!commit(&schedule, 0));
        assert!(matches!(schedule.next(), Some(Job::Ahead(1, _))));
        schedule.ran(1, ());
        schedule.committed(0, 0);
        assert!(commit(&schedule, 1));
        schedule.committed(1, 0);
        assert!(schedule.next().is_none());
    }

    #[test]
    fn nothing_is_committed_before_the_start() {
        let senders = [1, 2, 3].map(Address::repeat_byte);
        let schedule = Schedule::<()>::new(&senders, [PORTION_GAS; 3].into_iter(), 1);
        // The first commit takes 0, and as it will not wait, probably 1.
        assert!(matches!(schedule.next(), Some(Job::Ahead(2, _))));
        schedule.start();
        assert!(!commit(&schedule, 0));
    }

    #[test]
    fn a_commit_waits_for_a_running_portion_only_without_doubt() {
        let schedule = distinct(3);
        assert_eq!(ahead(&schedule), Some(0));
        assert_eq!(schedule.lock().start_commit(), None);
        schedule.lock().failed = DOUBT;
        assert!(!commit(&schedule, 0));
        schedule.ran(0, ());
        assert_eq!(ahead(&schedule), Some(2), "1 is committed next");
        schedule.committed(0, 0);
        assert!(!commit(&schedule, 1), "the late result of 0 is dropped");
    }

    #[test]
    fn the_more_portions_fail_the_fewer_run_ahead() {
        let schedule = distinct(4 * AHEAD_PER_THREAD);
        let farthest = || {
            let state = schedule.lock();
            let mut stages = state.stages.iter();
            stages.rposition(|stage| matches!(stage, Stage::Running))
        };
        while ahead(&schedule).is_some() {}
        assert_eq!(farthest(), Some(AHEAD_PER_THREAD - 1));
        (0..AHEAD_PER_THREAD).for_each(|portion| schedule.ran(portion, ()));
        for at in 0..2 {
            assert!(commit(&schedule, at));
            schedule.committed(10, 7);
            assert_eq!(ahead(&schedule), None, "as many ran already");
        }
        for at in 2..AHEAD_PER_THREAD {
            assert!(commit(&schedule, at));
            schedule.committed(10, 0);
        }
        while ahead(&schedule).is_some() {}
        assert_eq!(farthest(), Some(2 * AHEAD_PER_THREAD - 1));
    }

    #[test]
    fn running_ahead_pauses_after_failed_portions_and_then_for_twice_as_long() {
        let schedule = distinct(5 * PAUSE);
        schedule.lock().failed = FAILED_MAX - 1;
        let (mut waiting, mut fails) = (None, Vec::new());
        for at in 0..4 * PAUSE {
            if waiting.is_none() {
                waiting = ahead(&schedule);
                waiting.into_iter().for_each(|at| schedule.ran(at, ()));
            }
            // A portion that has run ahead is committed with its result, and fails.
            if commit(&schedule, at) {
                waiting = None;
                fails.push(at);
                schedule.committed(10, 7);
            } else {
                schedule.committed(0, 0);
            }
        }
        let pauses = [fails[1] - fails[0], fails[2] - fails[1]];
        assert_eq!(pauses, [PAUSE + 1, 2 * PAUSE + 1]);
    }
    #[test]
    fn any_number_of_failed_portions_lengthens_a_pause() {
        let count = 3 * usize::BITS as usize;
        let schedule = distinct(count);
        schedule.lock().failed = FAILED_MAX - 1;
        for at in 0..count {
            commit(&schedule, at);
            schedule.committed(10, 10);
        }
        let state = schedule.lock();
        assert_eq!((state.paused_until, state.pause), (usize::MAX, usize::MAX));
    }
}

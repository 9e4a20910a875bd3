//! The order in which threads run, validate and commit transactions.
//!
//! ```text
//!              claim            run               take, committed
//!    Waiting ---------> Running -----> Ran ------------------------> Committed
//!       ^                  |            |                                ^
//!       |  waits for       |            |  outdated                      |
//!       +--another---------+------------+         Held ------------------+
//!                          +--- must run in order -->   run in order
//! ```
//!
//! The *commit position* is the first transaction that is not committed. One thread at a time
//! commits, and only what the order requires: it compares two numbers for a transaction that has
//! been validated, and runs one itself that has not run. Everything else is claimed by atomic
//! operations: validations and first runs from counters, in groups of short transactions, and further
//! runs from [`Ready`].
//!
//! A transaction that needs the result of another one is put aside, and is ready again when the
//! other one has run.
//!
//! A transaction is *validated* by any thread once all before it have run. That holds at its commit
//! position unless one of them has run again since, which [`Schedule::reruns`] counts.

use super::{
    ready::Ready,
    sync::{Apart, AtomicBool, AtomicUsize, Mutex, Ordering, lock},
};
use std::ops::Range;

/// Failed transactions, less those that succeeded since, after which running ahead pauses.
const FAILED_MAX: usize = 16;
/// Failed transactions, less those that succeeded since, from which on the commit position waits for
/// no thread, so execution advances as fast as in sequence.
const DOUBT: usize = 4;
/// Gas of a run in vain that counts as one more failed transaction: the commit position may have waited for it.
const FAILED_GAS: u64 = 1_000_000;
/// Number of transactions for which running ahead pauses first. Each pause is twice as long as the
/// one before.
const PAUSE: usize = 32;

/// Most transactions in a group.
const GROUP_MAX: usize = 16;
/// Gas limits in sum from which on a group is full.
const GROUP_GAS: u64 = 300_000;
/// A group has at most the transactions left, divided by this and by the number of threads.
const GROUPS_LEFT: usize = 4;

/// A job for a thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Run these transactions ahead of their commit positions.
    Run(Group),
    /// Compare the reads of these transactions with what earlier ones have written.
    Validate(Range<usize>),
}

/// A transaction, or several whose gas limits are low. Threads share fewer cache lines if each runs
/// transactions that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    first: usize,
    /// A bit for each transaction from the first one on.
    members: u32,
}

impl Group {
    const fn one(index: usize) -> Self {
        Self {
            first: index,
            members: 1,
        }
    }

    /// The transactions in the group, in order.
    pub(super) fn members(self) -> impl Iterator<Item = usize> {
        let places = (0..GROUP_MAX).filter(move |place| self.members & 1 << place != 0);
        places.map(move |place| self.first + place)
    }
}

/// How a transaction has run that is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// Ahead, with a valid result.
    Well,
    /// In order, and not ahead.
    InOrder,
    /// In order, after a run ahead that used this gas, or that has not ended.
    InVain { gas: u64 },
}

/// What the thread that commits does at the commit position.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// Another thread runs the transaction, and continues with the commits.
    Wait,
    /// The result of running the transaction ahead is valid.
    Valid,
    /// Run it in order. Whether it had run ahead, or another thread is running it.
    Run { had_run: bool },
}

/// `R`: the result of running a transaction.
pub(super) struct Schedule<R> {
    transactions: Box<[Transaction<R>]>,
    threads: usize,
    /// The next transaction that has never been claimed.
    fresh: Apart<AtomicUsize>,
    /// Long transactions, which are claimed first: if the longest began last, all other threads
    /// would wait for it.
    long: Box<[usize]>,
    next_long: AtomicUsize,
    ready: Ready,
    /// All transactions before this one have run at least once.
    executed: Apart<AtomicUsize>,
    /// The next transaction to validate.
    validated: Apart<AtomicUsize>,
    /// Number of times that a transaction wrote again, after later ones may have been validated.
    reruns: AtomicUsize,
    position: Apart<AtomicUsize>,
    stopped: AtomicBool,
    /// Failed transactions, less those that succeeded since.
    failed: AtomicUsize,
    /// Fresh transactions before this one are not run ahead.
    paused_until: AtomicUsize,
    /// Number of transactions for which running ahead pauses next. Used by the committing thread.
    pause: AtomicUsize,
}

struct Transaction<R> {
    gas_limit: u64,
    /// An earlier transaction that this one probably depends on.
    after: Option<usize>,
    has_run: AtomicBool,
    /// One more than the number of reruns before which it was validated.
    valid_at: AtomicUsize,
    state: Mutex<State<R>>,
}

struct State<R> {
    stage: Stage,
    result: Option<R>,
    /// Later transactions that wait for this one.
    waiting: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    Ran,
    /// Runs at its commit position.
    Held,
    Committed,
}

impl<R> Schedule<R> {
    /// A schedule of transactions for this number of threads. A transaction is given by its gas limit
    /// and an earlier one on which it probably depends. `long`: those that start before shorter ones,
    /// in order.
    pub(super) fn new(
        transactions: impl Iterator<Item = (u64, Option<usize>)>,
        long: Vec<usize>,
        threads: usize,
    ) -> Self {
        let transactions =
            transactions.map(|(gas_limit, after)| Transaction::new(gas_limit, after));
        let transactions: Box<[_]> = transactions.collect();
        Self {
            ready: Ready::new(transactions.len()),
            transactions,
            threads,
            fresh: Apart::default(),
            long: long.into(),
            next_long: AtomicUsize::new(0),
            executed: Apart::default(),
            validated: Apart::default(),
            reruns: AtomicUsize::new(0),
            position: Apart::default(),
            stopped: AtomicBool::new(false),
            failed: AtomicUsize::new(0),
            paused_until: AtomicUsize::new(0),
            pause: AtomicUsize::new(PAUSE),
        }
    }

    /// Called when the step before the transactions has written its values. Transactions that were
    /// validated before may have read others.
    pub(super) fn began(&self) {
        self.reruns.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }

    /// The commit position.
    pub(super) fn position(&self) -> usize {
        self.position.load(Ordering::SeqCst)
    }

    /// Ends all threads' work.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether no job is left and none will come.
    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::SeqCst) || self.position() == self.len()
    }

    /// Whether there is a job, apart from commits.
    pub(super) fn has_job(&self) -> bool {
        !self.is_over() && (!self.ready.is_empty() || self.has_fresh() || self.has_unvalidated())
    }

    fn has_fresh(&self) -> bool {
        let fresh = self.fresh.load(Ordering::SeqCst);
        fresh.max(self.position()) < self.len() && !self.is_paused()
    }

    fn has_unvalidated(&self) -> bool {
        self.validated.load(Ordering::SeqCst) < self.executed.load(Ordering::SeqCst)
    }

    fn is_paused(&self) -> bool {
        self.position() < self.paused_until.load(Ordering::SeqCst)
    }

    /// Takes a job. `None` if there is none at the moment.
    pub(super) fn claim(&self) -> Option<Job> {
        if self.is_over() {
            return None;
        }
        while let Some(mut range) = self.claim_validations() {
            // The thread that commits validates those that it comes to first.
            range.start = range.start.max(self.position() + 1);
            if !range.is_empty() {
                return Some(Job::Validate(range));
            }
        }
        while let Some(index) = self.ready.pop() {
            if self.start(index) {
                return Some(Job::Run(Group::one(index)));
            }
        }
        while self.has_fresh() {
            let range = match self.claim_long() {
                Some(index) => index..index + 1,
                None => self.claim_fresh(),
            };
            let members = range.clone().enumerate().filter(|(_, index)| {
                let before = self.transactions[*index].after;
                // Of one group the earlier one runs first.
                let before = before.filter(|before| !range.contains(before));
                let waits = before
                    .is_some_and(|before| self.wait_at(*index, before, Stage::Waiting, || {}));
                !waits && self.start(*index)
            });
            let members = members.fold(0, |members, (place, _)| members | 1 << place);
            if members != 0 {
                return Some(Job::Run(Group {
                    first: range.start,
                    members,
                }));
            }
        }
        None
    }

    fn claim_long(&self) -> Option<usize> {
        let next = self.next_long.load(Ordering::SeqCst);
        self.long.get(next)?;
        let next = self.next_long.fetch_add(1, Ordering::SeqCst);
        self.long.get(next).copied()
    }

    /// Takes transactions that have never been claimed.
    fn claim_fresh(&self) -> Range<usize> {
        let mut fresh = self.fresh.load(Ordering::SeqCst);
        loop {
            let first = fresh.max(self.position());
            let left = self.len().saturating_sub(first);
            let count_max = left.div_ceil(GROUPS_LEFT * self.threads).min(GROUP_MAX);
            let mut gas = 0_u64;
            let members = self.transactions[first.min(self.len())..].iter();
            let members = members.take(count_max).take_while(|transaction| {
                let has_room = gas < GROUP_GAS;
                gas = gas.saturating_add(transaction.gas_limit);
                has_room
            });
            let range = first..first + members.count();
            let claimed =
                self.fresh
                    .compare_exchange(fresh, range.end, Ordering::SeqCst, Ordering::SeqCst);
            match claimed {
                Ok(_) => return range,
                Err(now) => fresh = now,
            }
        }
    }

    fn claim_validations(&self) -> Option<Range<usize>> {
        let executed = self.executed.load(Ordering::SeqCst);
        let next =
            |validated: usize| (validated < executed).then(|| executed.min(validated + GROUP_MAX));
        let claimed = self
            .validated
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        let first = claimed.ok()?;
        Some(first..executed.min(first + GROUP_MAX))
    }

    /// Whether a claimed transaction of a group still has to run.
    pub(super) fn is_running(&self, index: usize) -> bool {
        self.state(index).stage == Stage::Running
    }

    fn start(&self, index: usize) -> bool {
        let mut state = self.state(index);
        let is_free = state.stage == Stage::Waiting;
        if is_free {
            state.stage = Stage::Running;
        }
        is_free
    }

    /// Puts a transaction aside that needs the result of an earlier one. `expect` is called if it
    /// waits.
    pub(super) fn wait_for(&self, index: usize, before: usize, expect: impl FnOnce()) {
        if !self.wait_at(index, before, Stage::Running, expect) {
            let mut state = self.state(index);
            if state.stage == Stage::Running {
                state.stage = Stage::Waiting;
                drop(state);
                self.ready.insert(index);
            }
        }
    }

    /// Makes a transaction wait for an earlier one, if that one has not run. `stage`: the stage that
    /// the transaction must be in. In any other one the commit position has taken it.
    fn wait_at(&self, index: usize, before: usize, stage: Stage, expect: impl FnOnce()) -> bool {
        let mut earlier = self.state(before);
        if matches!(earlier.stage, Stage::Ran | Stage::Committed) {
            return false;
        }
        let mut state = self.state(index);
        if state.stage == stage {
            state.stage = Stage::Waiting;
            expect();
            earlier.waiting.push(index);
        }
        true
    }

    /// Leaves a transaction for its commit position.
    pub(super) fn hold(&self, index: usize) {
        let mut state = self.state(index);
        if state.stage == Stage::Running {
            state.stage = Stage::Held;
        }
    }

    /// Ends a run. `publish` writes its values, unless the transaction has been committed meanwhile,
    /// and returns the result, or `None` if it must run again. Returns whether it has a result.
    pub(super) fn ran(&self, index: usize, publish: impl FnOnce() -> Option<R>) -> bool {
        let transaction = &self.transactions[index];
        let mut state = lock(&transaction.state);
        if state.stage != Stage::Running {
            return true;
        }
        let result = publish();
        if transaction.has_run.load(Ordering::SeqCst) {
            self.reruns.fetch_add(1, Ordering::SeqCst);
        }
        let has_result = result.is_some();
        state.result = result;
        let waiting = match has_result {
            true => {
                state.stage = Stage::Ran;
                std::mem::take(&mut state.waiting)
            }
            false => {
                state.stage = Stage::Waiting;
                Vec::new()
            }
        };
        drop(state);
        if has_result {
            self.has_run(index);
            waiting
                .into_iter()
                .for_each(|index| self.ready.insert(index));
        } else {
            self.ready.insert(index);
        }
        has_result
    }

    fn has_run(&self, index: usize) {
        self.transactions[index]
            .has_run
            .store(true, Ordering::SeqCst);
        let mut executed = self.executed.load(Ordering::SeqCst);
        while let Some(transaction) = self.transactions.get(executed)
            && transaction.has_run.load(Ordering::SeqCst)
        {
            let next = executed + 1;
            let moved =
                self.executed
                    .compare_exchange(executed, next, Ordering::SeqCst, Ordering::SeqCst);
            executed = match moved {
                Ok(_) => next,
                Err(executed) => executed,
            };
        }
    }

    /// Whether all transactions before this one have run, so that validating it makes sense.
    pub(super) fn is_validatable(&self, index: usize) -> bool {
        index <= self.executed.load(Ordering::SeqCst)
    }

    /// Validates a transaction that has run: `is_valid` compares its reads, and returns `None` if one
    /// of them is an estimate. A transaction that is not valid will run again; `estimate` is called
    /// as by [`Self::outdated`].
    pub(super) fn validate(
        &self,
        index: usize,
        is_valid: impl FnOnce(&R) -> Option<bool>,
        estimate: impl Fn(usize) -> Vec<usize>,
    ) {
        let reruns = self.reruns.load(Ordering::SeqCst);
        let state = self.state(index);
        let Some(result) = state.result.as_ref().filter(|_| state.stage == Stage::Ran) else {
            return;
        };
        match is_valid(result) {
            Some(true) => {
                let valid_at = &self.transactions[index].valid_at;
                valid_at.store(reruns + 1, Ordering::SeqCst);
            }
            Some(false) => {
                drop(state);
                self.outdated(vec![index], None, estimate);
            }
            None => {}
        }
    }

    /// Makes transactions run again whose reads have changed. `because`: the transaction that
    /// changed them and will run again itself. `estimate` turns the writes of a transaction into
    /// estimates, and returns later transactions that read them.
    pub(super) fn outdated(
        &self,
        transactions: Vec<usize>,
        because: Option<usize>,
        estimate: impl Fn(usize) -> Vec<usize>,
    ) {
        let pairs = transactions.into_iter().map(|index| (index, because));
        let mut left: Vec<_> = pairs.collect();
        while let Some((index, because)) = left.pop() {
            let mut state = self.state(index);
            if state.stage != Stage::Ran {
                continue;
            }
            state.stage = Stage::Waiting;
            state.result = None;
            let readers = estimate(index);
            drop(state);
            left.extend(readers.into_iter().map(|reader| (reader, Some(index))));
            let waits =
                because.is_some_and(|before| self.wait_at(index, before, Stage::Waiting, || {}));
            if !waits {
                self.ready.insert(index);
            }
        }
    }

    /// Takes the transaction at the commit position. `is_valid` compares the reads of its result,
    /// given whether it has been validated already. Called by the thread that commits.
    pub(super) fn take(&self, is_valid: impl FnOnce(&mut R, bool) -> bool) -> Take {
        let transaction = &self.transactions[self.position()];
        let mut state = lock(&transaction.state);
        let had_run = match state.stage {
            Stage::Ran => {
                let reruns = self.reruns.load(Ordering::SeqCst);
                let is_known = transaction.valid_at.load(Ordering::SeqCst) == reruns + 1;
                if let Some(result) = &mut state.result
                    && is_valid(result, is_known)
                {
                    state.stage = Stage::Committed;
                    return Take::Valid;
                }
                true
            }
            Stage::Running if self.failed.load(Ordering::SeqCst) < DOUBT => return Take::Wait,
            Stage::Running => true,
            Stage::Waiting | Stage::Held | Stage::Committed => {
                transaction.has_run.load(Ordering::SeqCst)
            }
        };
        state.stage = Stage::Held;
        state.result = None;
        Take::Run { had_run }
    }

    /// Advances the commit position past a transaction. `result`: that of running it in order. Returns
    /// whether others have waited for it.
    pub(super) fn committed(&self, result: Option<R>, ran: Ran) -> bool {
        let index = self.position();
        let mut state = self.state(index);
        let in_order = result.is_some();
        if in_order {
            state.result = result;
            self.reruns.fetch_add(1, Ordering::SeqCst);
        }
        state.stage = Stage::Committed;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        if in_order {
            self.has_run(index);
        }
        self.count(index + 1, ran);
        self.position.store(index + 1, Ordering::SeqCst);
        let were_waiting = !waiting.is_empty();
        waiting
            .into_iter()
            .for_each(|index| self.ready.insert(index));
        were_waiting
    }

    fn count(&self, next: usize, ran: Ran) {
        let failed = self.failed.load(Ordering::SeqCst);
        let mut failed = match ran {
            Ran::Well => failed.saturating_sub(1),
            Ran::InOrder => return,
            Ran::InVain { gas } => {
                let more = usize::try_from(gas / FAILED_GAS).unwrap_or(usize::MAX);
                failed.saturating_add(1).saturating_add(more)
            }
        };
        if failed >= FAILED_MAX {
            // After the pause a few more that fail are enough for the next one, which is longer:
            // where many fail, little of the block is worth running ahead.
            failed = FAILED_MAX - DOUBT;
            let pause = self.pause.load(Ordering::SeqCst);
            self.paused_until
                .store(next.saturating_add(pause), Ordering::SeqCst);
            self.pause.store(pause.saturating_mul(2), Ordering::SeqCst);
        }
        self.failed.store(failed, Ordering::SeqCst);
    }

    /// Whether the transaction at the commit position can be committed.
    pub(super) fn is_committable(&self) -> bool {
        let state = self
            .transactions
            .get(self.position())
            .map(|it| lock(&it.state));
        state.is_some_and(|state| state.stage != Stage::Running)
    }

    /// Takes the result of a committed transaction.
    pub(super) fn result(&self, index: usize) -> Option<R> {
        self.state(index).result.take()
    }

    fn state(&self, index: usize) -> super::sync::MutexGuard<'_, State<R>> {
        lock(&self.transactions[index].state)
    }
}

impl<R> Transaction<R> {
    fn new(gas_limit: u64, after: Option<usize>) -> Self {
        Self {
            gas_limit,
            after,
            has_run: AtomicBool::new(false),
            valid_at: AtomicUsize::new(0),
            state: Mutex::new(State {
                stage: Stage::Waiting,
                result: None,
                waiting: Vec::new(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sync::one_thread, *};

    /// A gas limit of which no two are in a group.
    const LONG: u64 = GROUP_GAS;

    fn one(index: usize) -> Option<Job> {
        Some(Job::Run(Group::one(index)))
    }

    fn schedule(count: usize) -> Schedule<&'static str> {
        Schedule::new((0..count).map(|_| (LONG, None)), Vec::new(), 2)
    }

    fn none(_: usize) -> Vec<usize> {
        Vec::new()
    }

    /// The next job, without validations.
    fn claim_run(schedule: &Schedule<&'static str>) -> Option<usize> {
        loop {
            match schedule.claim()? {
                Job::Run(group) => return Some(group.first),
                Job::Validate(_) => {}
            }
        }
    }

    fn run(schedule: &Schedule<&'static str>, index: usize) {
        assert_eq!(claim_run(schedule), Some(index));
        assert!(schedule.ran(index, || Some("ahead")));
    }

    #[test]
    fn validations_come_first_and_cover_what_has_run_before() {
        one_thread(|| {
            let schedule = schedule(4);
            for index in 0..3 {
                assert_eq!(schedule.claim(), one(index));
            }
            schedule.ran(2, || Some("ahead"));
            assert!(!schedule.is_validatable(2) && schedule.is_validatable(0));
            schedule.ran(0, || Some("ahead"));
            assert_eq!(schedule.claim(), one(3), "0 is at the commit position");
            schedule.ran(1, || Some("ahead"));
            assert_eq!(schedule.claim(), Some(Job::Validate(1..3)));
            assert_eq!(schedule.claim(), None);
        });
    }

    #[test]
    fn a_validated_transaction_is_known_to_be_valid_until_another_one_runs_again() {
        one_thread(|| {
            let schedule = schedule(3);
            (0..3).for_each(|index| run(&schedule, index));
            schedule.validate(0, |_| Some(true), none);
            schedule.began();
            schedule.validate(1, |_| Some(true), none);
            schedule.validate(2, |_| Some(true), none);
            assert_eq!(schedule.take(|_, is_known| !is_known), Take::Valid);
            schedule.committed(None, Ran::Well);
            schedule.outdated(vec![1], None, none);
            run(&schedule, 1);
            schedule.validate(1, |_| Some(true), none);
            assert_eq!(schedule.take(|_, is_known| is_known), Take::Valid);
            schedule.committed(None, Ran::Well);
            assert_eq!(schedule.take(|_, is_known| !is_known), Take::Valid);
        });
    }

    #[test]
    fn a_transaction_that_waits_is_ready_when_the_other_one_has_run() {
        one_thread(|| {
            let schedule = {
                let after = [None, None, Some(1)].into_iter();
                Schedule::new(after.map(|after| (LONG, after)), Vec::new(), 2)
            };
            assert_eq!(schedule.claim(), one(0));
            assert_eq!(schedule.claim(), one(1));
            assert_eq!(schedule.claim(), None, "2 probably depends on 1");
            schedule.wait_for(1, 0, || {});
            assert_eq!(schedule.claim(), None);
            assert!(schedule.ran(0, || Some("ahead")));
            run(&schedule, 1);
            assert_eq!(schedule.claim(), Some(Job::Validate(1..2)));
            run(&schedule, 2);
            // The other one has run already.
            schedule.outdated(vec![2], None, none);
            assert_eq!(schedule.claim(), Some(Job::Validate(2..3)));
            assert_eq!(schedule.claim(), one(2));
            schedule.wait_for(2, 1, || panic!("it has run"));
            assert_eq!(schedule.claim(), one(2));
        });
    }

    #[test]
    fn all_that_read_an_estimate_run_again_one_after_another() {
        one_thread(|| {
            let schedule = schedule(4);
            (0..4).for_each(|index| run(&schedule, index));
            let readers = |index| {
                if index < 3 {
                    vec![index + 1]
                } else {
                    Vec::new()
                }
            };
            schedule.outdated(vec![1], None, readers);
            for index in 1..4 {
                assert_eq!(claim_run(&schedule), Some(index));
                assert_eq!(claim_run(&schedule), None);
                assert!(schedule.ran(index, || Some("again")));
            }
        });
    }

    #[test]
    fn the_commit_position_runs_what_has_not_run_and_drops_late_results() {
        one_thread(|| {
            let schedule = schedule(3);
            assert_eq!(schedule.claim(), one(0));
            assert_eq!(schedule.take(|_, _| true), Take::Wait);
            schedule.failed.store(DOUBT, Ordering::SeqCst);
            assert_eq!(schedule.take(|_, _| true), Take::Run { had_run: true });
            assert!(schedule.ran(0, || panic!("it is run in order")));
            schedule.committed(Some("in order"), Ran::InVain { gas: 0 });
            assert_eq!(schedule.take(|_, _| true), Take::Run { had_run: false });
            schedule.committed(Some("in order"), Ran::InOrder);
            assert_eq!(schedule.claim(), one(2));
            schedule.hold(2);
            assert_eq!(schedule.claim(), None);
            assert_eq!(schedule.take(|_, _| true), Take::Run { had_run: false });
            schedule.committed(Some("in order"), Ran::InOrder);
            assert!(schedule.is_over() && schedule.result(0) == Some("in order"));
        });
    }

    #[test]
    fn long_transactions_start_first_and_once() {
        one_thread(|| {
            let schedule: Schedule<&str> =
                Schedule::new((0..4).map(|_| (LONG, None)), vec![1, 3], 2);
            let order = std::iter::from_fn(|| claim_run(&schedule));
            assert_eq!(order.collect::<Vec<_>>(), [1, 3, 0, 2]);
        });
    }

    #[test]
    fn one_long_run_in_vain_pauses_running_ahead() {
        one_thread(|| {
            let schedule = schedule(2 * PAUSE);
            run(&schedule, 0);
            assert_eq!(schedule.take(|_, _| false), Take::Run { had_run: true });
            let gas = FAILED_MAX as u64 * FAILED_GAS;
            schedule.committed(Some("in order"), Ran::InVain { gas });
            assert!(schedule.is_paused());
            assert_eq!(schedule.claim(), None);
            // The commit position waits for no thread meanwhile.
            assert!(schedule.failed.load(Ordering::SeqCst) >= DOUBT);
        });
    }

    #[test]
    fn short_transactions_that_follow_one_another_run_in_one_group() {
        one_thread(|| {
            let after = |index| (index == 2).then_some(1);
            let all = (0..40).map(|index| (GROUP_GAS / 3, after(index)));
            let schedule: Schedule<&str> = Schedule::new(all, Vec::new(), 2);
            let Some(Job::Run(group)) = schedule.claim() else {
                panic!("nothing runs");
            };
            // One that depends on another one of the group does not wait.
            assert_eq!(group.members().collect::<Vec<_>>(), [0, 1, 2]);
            assert!(group.members().all(|index| schedule.is_running(index)));
            for index in group.members() {
                schedule.ran(index, || Some("ahead"));
                assert!(!schedule.is_running(index));
            }
            assert_eq!(schedule.claim(), Some(Job::Validate(1..3)));
            let rest = std::iter::from_fn(|| schedule.claim());
            let sizes = rest.map(|job| match job {
                Job::Run(group) => group.members().count(),
                Job::Validate(_) => panic!("none has run"),
            });
            let sizes: Vec<_> = sizes.collect();
            // Groups get smaller towards the end, so that all threads end at about the same time.
            assert_eq!(sizes.iter().sum::<usize>(), 37);
            assert_eq!((sizes[0], sizes[sizes.len() - 1]), (3, 1));
        });
    }

    #[test]
    fn running_ahead_pauses_after_failures_and_then_for_twice_as_long() {
        one_thread(|| {
            let schedule = schedule(8 * PAUSE);
            let mut fails = Vec::new();
            schedule.failed.store(FAILED_MAX - 1, Ordering::SeqCst);
            for at in 0..7 * PAUSE {
                if let Some(index) = claim_run(&schedule) {
                    schedule.ran(index, || Some("ahead"));
                }
                let take = schedule.take(|_, _| false);
                let had_run = take == Take::Run { had_run: true };
                if had_run {
                    fails.push(at);
                }
                let ran = match had_run {
                    true => Ran::InVain { gas: 100_000 },
                    false => Ran::InOrder,
                };
                schedule.committed(Some("in order"), ran);
            }
            let pauses = fails.windows(2).map(|two| two[1] - two[0]);
            let pauses: Vec<_> = pauses.filter(|pause| *pause > 1).collect();
            assert_eq!(pauses[..2], [PAUSE + 1, 2 * PAUSE + 1]);
        });
    }
}

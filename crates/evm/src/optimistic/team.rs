//! Threads that work on a block: as many as there is work for.
//!
//! A thread that takes a job and sees another one wakes or starts one more thread, which does the
//! same. A thread without a job sleeps, and each event wakes at most one thread.
//!
//! A team may have more threads than there are processors, since threads wait for a disk. No more than the number of
//! processors, and two, work otherwise: a thread that the system has put aside has begun a transaction that others need,
//! and they run ahead of it in vain. So each thread says since when it reads, and those that are too many sleep until
//! another thread takes a job and sees that others wait.

use super::sync::{Apart, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence, lock};
use std::{
    hint::spin_loop,
    time::{Duration, Instant},
};
#[cfg(not(test))]
use std::{num::NonZeroUsize, sync::OnceLock, thread};

/// How often a thread looks for a job before it sleeps. Sleeping and waking take as long as a short
/// transaction.
const SPINS: usize = 64;

/// Time until another thread may start beyond the number of processors. Such threads help where
/// others wait for a disk, and then a block takes long.
#[cfg(not(test))]
const START_INTERVAL: Duration = Duration::from_millis(2);
/// Models have no time.
#[cfg(test)]
const START_INTERVAL: Duration = Duration::ZERO;

/// Time after which a read waits for a disk. In memory it takes a microsecond.
#[cfg(not(test))]
const READ_IN_MEMORY: Duration = Duration::from_micros(20);
#[cfg(test)]
const READ_IN_MEMORY: Duration = Duration::ZERO;

/// What a thread reads of the parent's state.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// Nanoseconds from the block's begin to that of the read, and one more; 0 while the thread does not read.
    since: &'a AtomicU64,
    begun: Instant,
    /// Whether the team may be larger than the number of processors: others look at it then.
    is_seen: bool,
}

impl Reading<'_> {
    /// Calls `read`. Until it returns, the other threads can see since when.
    pub(super) fn read<T>(&self, read: impl FnOnce() -> T) -> T {
        if !self.is_seen {
            return read();
        }
        self.since.store(since(self.begun), Ordering::Relaxed);
        let value = read();
        self.since.store(0, Ordering::Relaxed);
        value
    }
}

/// Nanoseconds since `begun`, and one more.
fn since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).map_or(u64::MAX, |taken| taken.saturating_add(1))
}

pub(super) struct Team {
    /// Number of threads.
    started: AtomicUsize,
    /// For each thread, since when it reads the parent's state: see [`Reading`].
    reading: Box<[Apart<AtomicU64>]>,
    processors: usize,
    begun: Instant,
    /// Number of threads that sleep, or are about to, and are not being woken.
    idle: AtomicUsize,
    sleepers: Mutex<Sleepers>,
    wake: Condvar,
}

#[derive(Default)]
struct Sleepers {
    sleeping: usize,
    /// Number of sleeping threads that are being woken.
    woken: usize,
}

impl Team {
    /// A team of one thread, which grows to at most `threads_max`.
    pub(super) fn new(threads_max: usize) -> Self {
        Self::on(processors(), threads_max)
    }

    /// As [`Self::new`], on this number of processors.
    pub(super) fn on(processors: usize, threads_max: usize) -> Self {
        Self {
            started: AtomicUsize::new(1),
            reading: (0..threads_max.max(1)).map(|_| Apart::default()).collect(),
            // With one alone, nobody would see that it waits for a disk.
            processors: processors.max(2),
            begun: Instant::now(),
            idle: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// What the thread of this number, from 0 on in the order in which they start, reads with.
    pub(super) fn reading(&self, thread: usize) -> Reading<'_> {
        Reading {
            since: &self.reading[thread],
            begun: self.begun,
            is_seen: self.reading.len() > self.processors,
        }
    }

    /// Counts a thread no more that the system has refused.
    pub(super) fn refused(&self, thread: usize) {
        // As if it had been reading for all the time.
        self.reading[thread].store(1, Ordering::Relaxed);
    }

    /// Wakes a thread, or starts one, to which its number is given, unless all processors have work. Called after a job
    /// has become available, by a thread that looks for jobs again itself.
    pub(super) fn call(&self, start: impl FnOnce(usize)) {
        // Pairs with the fence in `rest`: either this thread sees the idle one, or that one the job.
        fence(Ordering::SeqCst);
        if self.has_work_for(self.processors)
            || self.idle.load(Ordering::SeqCst) > 0 && self.wake_one()
        {
            return;
        }
        let started = self.started.load(Ordering::SeqCst);
        if started >= self.reading.len() || !self.may_start(started) {
            return;
        }
        let taken =
            self.started
                .compare_exchange(started, started + 1, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            start(started);
        }
    }

    /// Whether more threads work than there are processors. Then the calling one takes no job.
    pub(super) fn is_crowded(&self) -> bool {
        self.has_work_for(self.processors.saturating_add(1))
    }

    /// Whether at least this number of threads neither sleep nor wait for a read.
    fn has_work_for(&self, processors: usize) -> bool {
        let started = self.started.load(Ordering::SeqCst);
        let awake = started.saturating_sub(self.idle.load(Ordering::SeqCst));
        // Where there is a processor for each thread, nobody looks at what others write for each read.
        awake >= processors && {
            let now = since(self.begun);
            let long = u64::try_from(READ_IN_MEMORY.as_nanos()).unwrap_or(u64::MAX);
            let waits = |since: u64| since != 0 && now.saturating_sub(since) >= long;
            let reading = self.reading[..started].iter();
            let waiting = reading.filter(|it| waits(it.load(Ordering::Relaxed)));
            awake.saturating_sub(waiting.count()) >= processors
        }
    }

    fn may_start(&self, started: usize) -> bool {
        let Some(beyond) = started.checked_sub(self.processors) else {
            return true;
        };
        let beyond = u32::try_from(beyond + 1).unwrap_or(u32::MAX);
        self.begun.elapsed() >= START_INTERVAL.saturating_mul(beyond)
    }

    fn wake_one(&self) -> bool {
        let mut sleepers = lock(&self.sleepers);
        let is_asleep = sleepers.sleeping > sleepers.woken;
        if is_asleep {
            sleepers.woken += 1;
            self.count(&sleepers);
            drop(sleepers);
            self.wake.notify_one();
        }
        is_asleep
    }

    /// Wakes every sleeping thread: the block, or a phase of its end, is over.
    pub(super) fn call_all(&self) {
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) > 0 {
            let mut sleepers = lock(&self.sleepers);
            sleepers.woken = sleepers.sleeping;
            self.count(&sleepers);
            drop(sleepers);
            self.wake.notify_all();
        }
    }

    /// Returns when there may be a job for one more thread, or no more will come.
    pub(super) fn rest(&self, has_job: impl Fn() -> bool, is_over: impl Fn() -> bool) {
        for _ in 0..SPINS {
            if is_over() || has_job() && !self.is_crowded() {
                return;
            }
            spin_loop();
        }
        let mut sleepers = lock(&self.sleepers);
        sleepers.sleeping += 1;
        self.count(&sleepers);
        fence(Ordering::SeqCst);
        // A job that comes after this look wakes a thread: it takes the lock for that. Of threads that are too many,
        // those that come later here see that the others sleep.
        if !is_over() && (!has_job() || self.has_work_for(self.processors)) {
            sleepers = match self.wake.wait(sleepers) {
                Ok(sleepers) => sleepers,
                Err(error) => error.into_inner(),
            };
            sleepers.woken = sleepers.woken.saturating_sub(1);
        }
        sleepers.sleeping -= 1;
        sleepers.woken = sleepers.woken.min(sleepers.sleeping);
        self.count(&sleepers);
    }

    fn count(&self, sleepers: &Sleepers) {
        let idle = sleepers.sleeping - sleepers.woken;
        self.idle.store(idle, Ordering::SeqCst);
    }
}

/// The number of processors. Asking the system takes as long as several transactions.
#[cfg(not(test))]
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

/// In models all threads start at once.
#[cfg(test)]
const fn processors() -> usize {
    usize::MAX
}

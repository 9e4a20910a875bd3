//! Threads that work on a block: as many as there is work for.
//!
//! A thread that takes a job and sees another one wakes or starts one more thread, which does the
//! same. A thread without a job sleeps, and each event wakes at most one thread.

use super::sync::{AtomicUsize, Condvar, Mutex, Ordering, fence, lock};
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
const START_INTERVAL: Duration = Duration::from_millis(2);

pub(super) struct Team {
    /// Number of threads.
    started: AtomicUsize,
    threads_max: usize,
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
        Self {
            started: AtomicUsize::new(1),
            threads_max,
            begun: Instant::now(),
            idle: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// Wakes a thread, or starts one. Called after a job has become available.
    pub(super) fn call(&self, start: impl FnOnce()) {
        // Pairs with the fence in `rest`: either this thread sees the idle one, or that one the job.
        fence(Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) > 0 && self.wake_one() {
            return;
        }
        let started = self.started.load(Ordering::SeqCst);
        if started >= self.threads_max || !self.may_start(started) {
            return;
        }
        let taken =
            self.started
                .compare_exchange(started, started + 1, Ordering::SeqCst, Ordering::SeqCst);
        if taken.is_ok() {
            start();
        }
    }

    fn may_start(&self, started: usize) -> bool {
        let Some(beyond) = started.checked_sub(processors()) else {
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

    /// Returns when there may be a job.
    pub(super) fn rest(&self, has_job: impl Fn() -> bool) {
        for _ in 0..SPINS {
            if has_job() {
                return;
            }
            spin_loop();
        }
        let mut sleepers = lock(&self.sleepers);
        sleepers.sleeping += 1;
        self.count(&sleepers);
        fence(Ordering::SeqCst);
        // A job that comes after this look wakes a thread: it takes the lock for that.
        if !has_job() {
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

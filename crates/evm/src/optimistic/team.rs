//! Threads that work on a block: as many as there is work for.
//!
//! A thread that takes a job and sees another one wakes or starts one more thread, which does the
//! same. A thread without a job sleeps, and each event wakes at most one thread.

use super::sync::{AtomicUsize, Condvar, Mutex, Ordering, fence, lock};
use std::hint::spin_loop;

/// How often a thread looks for a job before it sleeps. Sleeping and waking take as long as a short
/// transaction.
const SPINS: usize = 64;

pub(super) struct Team {
    /// Number of threads that may still be started.
    unstarted: AtomicUsize,
    /// Number of threads that sleep, or are about to, and that nobody wakes.
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
    /// A team of one thread, to which at most `more` are added.
    pub(super) fn new(more: usize) -> Self {
        Self {
            unstarted: AtomicUsize::new(more),
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
        if self.unstarted.load(Ordering::SeqCst) == 0 {
            return;
        }
        let take = |unstarted: usize| unstarted.checked_sub(1);
        let taken = self
            .unstarted
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        if taken.is_ok() {
            start();
        }
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

    /// Wakes all threads.
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

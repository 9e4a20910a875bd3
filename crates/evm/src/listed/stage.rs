//! Jobs that all threads do together before they go on.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// A number of jobs that are claimed in any order.
pub(super) struct Stage {
    count: usize,
    next: AtomicUsize,
    left: Mutex<usize>,
    over: Condvar,
}

impl Stage {
    pub(super) fn new(count: usize) -> Self {
        Self {
            count,
            next: AtomicUsize::new(0),
            left: Mutex::new(count),
            over: Condvar::new(),
        }
    }

    /// Does jobs until none is left, and returns when all have ended on all threads.
    pub(super) fn run(&self, job: impl Fn(usize)) {
        while self.run_one(&job) {}
        let mut left = self.left();
        while *left > 0 {
            left = match self.over.wait(left) {
                Ok(left) => left,
                Err(error) => error.into_inner(),
            };
        }
    }

    /// Does a job. False if none is left.
    pub(super) fn run_one(&self, job: impl Fn(usize)) -> bool {
        let is_left = |next: usize| (next < self.count).then_some(next + 1);
        let claimed = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left);
        let Ok(claimed) = claimed else { return false };
        let _ended = Ended(self);
        job(claimed);
        true
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a job when it is dropped, so that no thread waits for one that panics.
struct Ended<'a>(&'a Stage);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut left = self.0.left();
        *left -= 1;
        if *left == 0 {
            self.0.over.notify_all();
        }
    }
}

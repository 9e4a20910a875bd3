//! Parts of some work, each of which one thread takes.

use crate::sync::{AtomicUsize, Mutex, into_inner, lock};
use std::sync::atomic::Ordering;

/// The parts of some work, which threads take one by one, with their results.
pub struct Parts<P, T> {
    parts: Vec<Mutex<Part<P, T>>>,
    next: AtomicUsize,
}

enum Part<P, T> {
    Waits(P),
    Taken,
    Done(T),
}

impl<P, T> Parts<P, T> {
    /// Parts that nobody has taken.
    pub fn new(parts: Vec<P>) -> Self {
        let parts = parts.into_iter().map(|part| Mutex::new(Part::Waits(part)));
        Self {
            parts: parts.collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Runs `task` on parts until none is left.
    ///
    /// # Errors
    ///
    /// Returns the error of the task. Nobody takes another part after it, or after a panic.
    pub fn work<E>(&self, task: impl Fn(P) -> Result<T, E>) -> Result<(), E> {
        // Nothing but the numbers themselves is told by them.
        while let Some(slot) = self.parts.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let Part::Waits(part) = std::mem::replace(&mut *lock(slot), Part::Taken) else {
                unreachable!("each part is taken once");
            };
            let mut stop = Stop {
                parts: self,
                is_wanted: true,
            };
            let value = task(part)?;
            stop.is_wanted = false;
            *lock(slot) = Part::Done(value);
        }
        Ok(())
    }

    fn stop(&self) {
        self.next.fetch_max(self.parts.len(), Ordering::Relaxed);
    }

    /// The results, in the order of the parts.
    ///
    /// # Panics
    ///
    /// Panics if a part was not done.
    pub fn into_results(self) -> impl Iterator<Item = T> {
        let parts = self.parts.into_iter();
        parts.map(|part| match into_inner(part) {
            Part::Done(value) => value,
            Part::Waits(_) | Part::Taken => unreachable!("all parts are done"),
        })
    }
}

/// Stops the work when it is dropped, if that is wanted.
struct Stop<'p, P, T> {
    parts: &'p Parts<P, T>,
    is_wanted: bool,
}

impl<P, T> Drop for Stop<'_, P, T> {
    fn drop(&mut self) {
        if self.is_wanted {
            self.parts.stop();
        }
    }
}

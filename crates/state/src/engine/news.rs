//! Waking of subscribers.
//!
//! A signal says only *that* the canonical chain has changed. The changes are in the log, so
//! nothing grows while a subscriber is slow, and commits never wait for one.

use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// Counts the changes of the canonical chain and of the finalized block.
#[derive(Default)]
pub(crate) struct News {
    count: Mutex<u64>,
    changed: Condvar,
}

impl News {
    /// Number of changes so far. A thread that reads it before looking at the chain misses none.
    pub(crate) fn count(&self) -> u64 {
        *self.count.lock()
    }

    /// Announces a change, which is visible.
    pub(crate) fn announce(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until there are more than `seen` changes, or until `deadline`. Returns false at the
    /// deadline.
    pub(crate) fn wait(&self, seen: u64, deadline: Instant) -> bool {
        let mut count = self.count.lock();
        while *count <= seen {
            if self.changed.wait_until(&mut count, deadline).timed_out() {
                return *count > seen;
            }
        }
        true
    }
}

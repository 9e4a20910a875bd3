//! Locks and atomics that threads of a block share. In unit tests they are those of `shuttle`: each
//! operation on them is a point where threads of a model may switch. They work only under its
//! scheduler, so tests of one thread run there too.

#[cfg(test)]
use shuttle::sync as std_sync;
#[cfg(not(test))]
use std::sync as std_sync;

pub(super) use std_sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};

use std::{ops::Deref, sync::PoisonError};

/// A value on cache lines of its own, so that threads that use its neighbours do not slow those that
/// use it.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Locks a mutex. A thread that panicked ends the whole block, so its state does not matter.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], unless another thread has it.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    use std::sync::TryLockError;
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Runs a test of one thread under the scheduler of models.
#[cfg(test)]
pub(super) fn one_thread(test: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::None;
    shuttle::Runner::new(shuttle::scheduler::RoundRobinScheduler::new(1), config).run(test);
}

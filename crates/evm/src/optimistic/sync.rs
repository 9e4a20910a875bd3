//! Locks and atomics that threads of a block share. With the feature `shuttle` they are those of
//! `shuttle`, for model tests: each operation on them is then a point where threads may switch.

#[cfg(feature = "shuttle")]
use shuttle::sync as std_sync;
#[cfg(not(feature = "shuttle"))]
use std::sync as std_sync;

pub(super) use std_sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};

use std::sync::PoisonError;

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

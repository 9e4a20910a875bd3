//! Locks, atomic numbers and threads, which the feature `loom` replaces with loom's.
//!
//! With loom, the models in `model.rs` explore the interleavings of their threads under the C11 memory model:
//! `cargo test -p cambium-crew --features loom --lib model`. Other tests can't run with the feature, since
//! loom's types work only inside a model.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic::AtomicUsize};
use std::sync::PoisonError;
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic::AtomicUsize};

/// Locks a mutex that no panic leaves in the middle of something.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unlocks the mutex, waits for a notification, and locks it again.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread. False if the system refuses it.
#[cfg(not(feature = "loom"))]
pub(crate) fn start(name: String, run: impl FnOnce() + Send + 'static) -> bool {
    std::thread::Builder::new().name(name).spawn(run).is_ok()
}

#[cfg(feature = "loom")]
pub(crate) fn start(_name: String, run: impl FnOnce() + Send + 'static) -> bool {
    loom::thread::spawn(run);
    true
}

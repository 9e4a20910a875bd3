//! Locks and atomics of the segments and the log.
//!
//! In unit tests they are also those of models: where a model under `shuttle` has made them, each
//! operation on them is a point where its scheduler may switch threads, in a random order.

#[cfg(test)]
pub(crate) use crate::modelled::sync::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, RwLock,
};
#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, RwLock};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

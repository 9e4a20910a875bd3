//! Locks and atomics of the segments and the log. With the feature `shuttle` they are those of
//! `shuttle`, for model tests.
//!
//! In a model test each operation on them is a point where the scheduler may switch threads, in a
//! random order: `cargo test -p cambium-store --features shuttle --lib model`. Other tests don't
//! run with the feature, because these locks work only under `shuttle`'s scheduler.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, RwLock};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle_parking_lot::{Mutex, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

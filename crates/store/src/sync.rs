//! Locks and atomic numbers of segments and log: those of `shuttle` where their models run.
//!
//! A model is a test in which each of these is a place where another thread may go on, in an order
//! drawn at random: `cargo test -p cambium-store --features shuttle --lib model`. Other tests don't
//! run with the feature, since nothing else drives such locks.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, RwLock};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle_parking_lot::{Mutex, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

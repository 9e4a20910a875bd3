//! The parts of a database of the `layered` commitment.

use super::{intervals::Intervals, snapshot_roots::SnapshotRoots, uppers::Uppers};
use parking_lot::{Mutex, MutexGuard};
use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Intervals, upper tries and the roots of snapshots.
pub(crate) struct Layered {
    pub(crate) intervals: Intervals,
    pub(crate) roots: Arc<SnapshotRoots>,
    uppers: Mutex<Uppers>,
    bytes: AtomicUsize,
}

impl Layered {
    /// No upper tries yet.
    pub(crate) fn new(intervals: Intervals) -> Self {
        Self {
            intervals,
            roots: Arc::default(),
            uppers: Mutex::default(),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Locks the upper tries, waiting for a root that is being computed.
    pub(crate) fn lock(&self) -> LockedUppers<'_> {
        LockedUppers {
            uppers: self.uppers.lock(),
            bytes: &self.bytes,
        }
    }

    /// Memory of the upper tries when they were last unlocked, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The locked upper tries. Unlocking updates the memory that [`Layered::bytes`] returns.
pub(crate) struct LockedUppers<'a> {
    uppers: MutexGuard<'a, Uppers>,
    bytes: &'a AtomicUsize,
}

impl Deref for LockedUppers<'_> {
    type Target = Uppers;

    fn deref(&self) -> &Uppers {
        &self.uppers
    }
}

impl DerefMut for LockedUppers<'_> {
    fn deref_mut(&mut self) -> &mut Uppers {
        &mut self.uppers
    }
}

impl Drop for LockedUppers<'_> {
    fn drop(&mut self) {
        let bytes = self.uppers.memory_bytes();
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

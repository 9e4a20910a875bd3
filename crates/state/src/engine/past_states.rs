//! States of old blocks that views hold.

use crate::{
    layers::{overlay::Overlay, tree::Layer},
    tries::{base::Base, delta::Delta},
};
use alloy_primitives::B256;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The state after an old block, which views share: one layer above a base.
pub(crate) struct PastState {
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) layer: Arc<Layer>,
    /// Its tries, if somebody has asked for a proof.
    pub(crate) prover: Mutex<Option<Delta>>,
    /// What its values take, and its tries.
    pub(crate) bytes: AtomicUsize,
    pub(crate) registry: Arc<PastStates>,
}

impl PastState {
    /// Counts what the tries take now; they go if all old states would take more than `bytes_max`.
    pub(crate) fn count_prover(&self, prover: &mut Option<Delta>, bytes_max: usize) {
        let values = self.overlay.bytes();
        let tries = prover.as_ref().map_or(0, Delta::memory_bytes);
        self.count(values + tries);
        if self.registry.bytes() > bytes_max {
            *prover = None;
            self.count(values);
        }
    }

    pub(crate) fn count(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.registry.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.registry.bytes.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for PastState {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// The old states that views hold, and what they take.
#[derive(Default)]
pub(crate) struct PastStates {
    by_hash: Mutex<HashMap<B256, Weak<PastState>>>,
    bytes: AtomicUsize,
}

impl PastStates {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let states = self.by_hash.lock();
        states.values().filter(|one| one.strong_count() > 0).count()
    }

    pub(crate) fn get(&self, hash: &B256) -> Option<Arc<PastState>> {
        self.by_hash.lock().get(hash)?.upgrade()
    }

    pub(crate) fn put(&self, state: &Arc<PastState>) {
        let mut states = self.by_hash.lock();
        states.retain(|_, one| one.strong_count() > 0);
        states.insert(state.layer.block.hash, Arc::downgrade(state));
    }
}

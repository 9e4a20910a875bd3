//! States of old blocks, which were restored for views and live as long as these.

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

/// The state after an old block, shared by its views: one layer above a base.
pub(crate) struct PastState {
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) layer: Arc<Layer>,
    /// Its tries, once a proof was made of it.
    pub(crate) prover: Mutex<Option<Delta>>,
    /// Memory of its values and tries, in bytes.
    pub(crate) bytes: AtomicUsize,
    pub(crate) registry: Arc<PastStates>,
}

impl PastState {
    /// Counts the current memory of the tries. Drops them if all old states together exceed
    /// `bytes_max`.
    pub(crate) fn count_prover(&self, prover: &mut Option<Delta>, bytes_max: usize) {
        let values = self.overlay.bytes();
        let tries = prover.as_ref().map_or(0, Delta::memory_bytes);
        self.count(values + tries);
        if self.registry.bytes() > bytes_max {
            *prover = None;
            self.count(values);
        }
    }

    /// Replaces the counted memory of this state by `bytes`.
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

/// The old states that views hold, and the memory of all of them in bytes.
#[derive(Default)]
pub(crate) struct PastStates {
    by_hash: Mutex<HashMap<B256, Weak<PastState>>>,
    bytes: AtomicUsize,
}

impl PastStates {
    /// Memory of all old states, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of old states.
    pub(crate) fn count(&self) -> usize {
        let states = self.by_hash.lock();
        states.values().filter(|one| one.strong_count() > 0).count()
    }

    /// The state of the block with that hash, if a view holds it.
    pub(crate) fn get(&self, hash: &B256) -> Option<Arc<PastState>> {
        self.by_hash.lock().get(hash)?.upgrade()
    }

    /// Registers a state, so that other views can share it.
    pub(crate) fn put(&self, state: &Arc<PastState>) {
        let mut states = self.by_hash.lock();
        states.retain(|_, one| one.strong_count() > 0);
        states.insert(state.layer.block.hash, Arc::downgrade(state));
    }
}

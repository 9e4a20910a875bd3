//! How far a merge is, and when the next one is due.

use cambium_snapshot::Counters;
use cambium_trie::SHARDS;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// Of the layers' part as much is merged at once; the rest is for what comes meanwhile.
const DUE_PART: f64 = 0.4;
/// However much memory there is, no more is merged at once: after a crash all that is in no
/// checkpoint must be read again for the first root, at 50,000 to 100,000 pages a second.
const DUE_BYTES_MAX: usize = 192 << 20;
/// Limit of the layers, which follows the size of the index.
#[derive(Default)]
pub(crate) struct LayerLimit(pub(crate) AtomicUsize);

impl LayerLimit {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// What is merged at once.
    pub(crate) fn due(&self) -> usize {
        ((self.get() as f64 * DUE_PART) as usize).min(DUE_BYTES_MAX)
    }

    /// What the tries for proofs may keep from one to the next.
    pub(crate) fn prover_bytes_max(&self) -> usize {
        self.get() / 8
    }
}

/// Whether a merge is under way, and how far it is.
#[derive(Default)]
pub(crate) struct MergeControl {
    state: Mutex<MergeState>,
    changed: Condvar,
    pub(crate) limit: LayerLimit,
    /// What the budget has for the index, in bytes.
    pub(crate) index_reserved: AtomicU64,
    /// Whether the log had blocks to replay, which may be too many for the tries at once.
    pub(crate) is_behind: AtomicBool,
    /// Held by whoever merges what opening has left.
    pub(crate) catching_up: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct MergeState {
    /// Of the merge that was begun last.
    pub(crate) phase: Phase,
    /// How many have been begun.
    pub(crate) begun: u64,
    /// Those of them that have not ended, by number. All but the newest make the log's next file
    /// ready.
    alive: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
pub(crate) enum Phase {
    /// No thread of a merge is alive.
    #[default]
    Idle,
    Freezing,
    Merging(MergeJob),
    Finishing,
}

/// A merge under way.
#[derive(Clone, Copy)]
pub(crate) struct MergeJob {
    /// Memory of the layers that it merges.
    pub(crate) bytes: usize,
    /// Shards that had been merged before, since the database was opened.
    pub(crate) parts_before: u64,
}

impl MergeJob {
    /// How much of it is done, from 0 to 1: all shards, but perhaps not the checkpoint.
    pub(crate) fn progress(&self, counters: &Counters) -> f64 {
        (counters.merge_parts.get() - self.parts_before) as f64 / SHARDS as f64
    }
}

impl MergeControl {
    /// No merge is under way.
    pub(crate) fn new(is_behind: bool) -> Self {
        Self {
            is_behind: AtomicBool::new(is_behind),
            ..Self::default()
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, MergeState> {
        self.state.lock()
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.state.lock().phase = phase;
        self.changed.notify_all();
    }

    /// Begins a merge, unless one has the layers still: none then. Gives its number.
    pub(crate) fn begin(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Freezing | Phase::Merging(_)) {
            return None;
        }
        state.phase = Phase::Freezing;
        state.begun += 1;
        let number = state.begun;
        state.alive.push(number);
        Some(number)
    }

    /// Ends the merge of that number.
    pub(crate) fn end(&self, number: u64) {
        let mut state = self.state.lock();
        state.alive.retain(|other| *other != number);
        if state.alive.is_empty() {
            state.phase = Phase::Idle;
        } else if state.begun == number {
            state.phase = Phase::Finishing;
        }
        self.changed.notify_all();
    }

    /// Waits for a change of the phase, but not for long: a merge goes on without one.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, MergeState>, time: Duration) {
        let _ = self.changed.wait_for(state, time);
    }

    /// Waits until no merge has layers to merge still.
    pub(crate) fn wait_until_free(&self) {
        let mut state = self.state.lock();
        while matches!(state.phase, Phase::Freezing | Phase::Merging(_)) {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until the layers that are to be merged have been taken from under their views.
    pub(crate) fn wait_until_frozen(&self) {
        let mut state = self.state.lock();
        while matches!(state.phase, Phase::Freezing) {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until a merge, and all before it, have ended, whatever is begun meanwhile.
    pub(crate) fn wait_until_ended(&self, number: u64) {
        let mut state = self.state.lock();
        while state.alive.iter().any(|alive| *alive <= number) {
            self.changed.wait(&mut state);
        }
    }
}

//! Progress of merges, and the thresholds at which the next one starts.

use crate::log::references::References;
use alloy_primitives::map::B256Map;
use cambium_primitives::BlockId;
use cambium_snapshot::{Counters, IndexMemory};
use cambium_trie::SHARDS;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

/// Share of the layers' memory at which a merge starts. The rest is for blocks that arrive during
/// it.
const DUE_PART: f64 = 0.4;

/// Memory limit of the layers, in bytes. It depends on the size of the index.
#[derive(Default)]
pub(crate) struct LayerLimit(pub(crate) AtomicUsize);

impl LayerLimit {
    /// The limit, in bytes.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Memory of the layers at which a merge starts, in bytes.
    pub(crate) fn due(&self) -> usize {
        (self.get() as f64 * DUE_PART) as usize
    }

    /// Most memory of the tries for proofs that is kept between two proofs, in bytes.
    pub(crate) fn prover_bytes_max(&self) -> usize {
        self.get() / 8
    }
}

/// The state of merging, and the condition on which threads wait for it.
#[derive(Default)]
pub(crate) struct MergeControl {
    state: Mutex<MergeState>,
    last: Mutex<Option<LastMerge>>,
    changed: Condvar,
    pub(crate) limit: LayerLimit,
    /// Share of the index in the memory budget.
    pub(crate) index: Mutex<IndexMemory>,
    /// Whether replay has left layers that may be too many for the tries at once.
    pub(crate) is_behind: AtomicBool,
    /// Held while the layers that replay has left are merged.
    pub(crate) catching_up: Mutex<()>,
    /// References that replay has found in the log, by the hashes of their blocks, until the first root.
    pub(crate) references: Mutex<B256Map<References>>,
}

/// The merges that were begun, and the phase of the newest.
#[derive(Default)]
pub(crate) struct MergeState {
    /// Phase of the newest merge.
    pub(crate) phase: Phase,
    /// Number of merges begun.
    pub(crate) begun: u64,
    /// The merges that have not ended, by number. All but the newest only prepare the log's next
    /// file.
    alive: Vec<u64>,
    /// Whether a thread of its own prepares or begins the log's next file.
    is_preparing: bool,
}

/// How far the newest merge is.
#[derive(Clone, Copy, Default)]
pub(crate) enum Phase {
    /// No merge is under way.
    #[default]
    Idle,
    /// The layers to merge are being separated from those that stay.
    Freezing,
    /// The frozen layers are being merged into pages.
    Merging(MergeJob),
    /// The checkpoint is durable. The log's next file is being prepared.
    Finishing,
}

/// What a merge wrote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastMerge {
    /// The newest block that it merged.
    pub block: BlockId,
    /// By how many blocks it moved the state in pages: forward, or back to one that became the head.
    pub blocks: u64,
    /// How long it took, with its checkpoint.
    pub seconds: f64,
    /// Pages written with changed content.
    pub pages_written: u64,
    /// Pages moved unchanged out of segments with much dead space.
    pub pages_moved: u64,
    /// Bytes of both, as they are in segments.
    pub page_bytes: u64,
}

/// A merge under way.
#[derive(Clone, Copy)]
pub(crate) struct MergeJob {
    /// Memory of the layers that it merges, in bytes.
    pub(crate) bytes: usize,
    /// Value of the counter of merged shards when this merge began.
    pub(crate) parts_before: u64,
}

impl MergeJob {
    /// Share of the shards that are merged, from 0 to 1. At 1 the checkpoint may still be missing.
    pub(crate) fn progress(&self, counters: &Counters) -> f64 {
        (counters.merge_parts.get() - self.parts_before) as f64 / SHARDS as f64
    }
}

impl MergeControl {
    /// The state before the first merge of an open database.
    pub(crate) fn new(is_behind: bool) -> Self {
        Self {
            is_behind: AtomicBool::new(is_behind),
            ..Self::default()
        }
    }

    /// The last merge that has ended.
    pub(crate) fn last(&self) -> Option<LastMerge> {
        *self.last.lock()
    }

    /// Notes a merge that has ended.
    pub(crate) fn note(&self, merge: LastMerge) {
        *self.last.lock() = Some(merge);
    }

    /// Locks the state.
    pub(crate) fn state(&self) -> MutexGuard<'_, MergeState> {
        self.state.lock()
    }

    /// Enters a phase, and wakes the threads that wait.
    pub(crate) fn set(&self, phase: Phase) {
        self.state.lock().phase = phase;
        self.changed.notify_all();
    }

    /// Begins a merge and returns its number, or `None` if another one still has layers to merge.
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

    /// Ends the merge with that number.
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

    /// Begins preparing the log's next file, without a merge. Returns false if that is under way.
    pub(crate) fn begin_preparing(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_preparing, true)
    }

    /// Ends preparing the log's next file.
    pub(crate) fn end_preparing(&self) {
        self.state.lock().is_preparing = false;
        self.changed.notify_all();
    }

    /// Waits for a change of the phase, at most for `time`: the merge makes progress without one.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, MergeState>, time: Duration) {
        let _ = self.changed.wait_for(state, time);
    }

    /// Waits until no merge has layers to merge.
    pub(crate) fn wait_until_free(&self) {
        let mut state = self.state.lock();
        while matches!(state.phase, Phase::Freezing | Phase::Merging(_)) {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until the merge that was begun last has frozen its layers.
    pub(crate) fn wait_until_frozen(&self) {
        let mut state = self.state.lock();
        while matches!(state.phase, Phase::Freezing) {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until merge `number`, and all before it, have ended, and no thread prepares the log's next file. Later
    /// merges may begin meanwhile.
    pub(crate) fn wait_until_ended(&self, number: u64) {
        let mut state = self.state.lock();
        while state.is_preparing || state.alive.iter().any(|alive| *alive <= number) {
            self.changed.wait(&mut state);
        }
    }
}

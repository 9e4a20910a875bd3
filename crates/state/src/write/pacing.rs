//! Blocks wait for memory before they are sealed, so that merges keep up and nobody who commits
//! waits for one.
//!
//! ```text
//!   layers:  | being merged |  grown since  |      room left      |
//!                           |<------------- room --------------->|
//! ```
//!
//! While a merge is under way, what has grown since it began must not be further along the room
//! that is left than the merge is along its way. So blocks that come faster than they can be merged
//! are slowed down evenly, by a little each, in proportion to what they bring; and when the
//! memory of what is merged is free again, nobody waits any more, whatever the merge has yet to do.

use crate::engine::{
    merging::{MergeJob, Phase},
    parts::Engine,
};
use cambium_snapshot::StateError;
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// How far, of its way, a merge may be behind what has come meanwhile.
const BEHIND_MAX: f64 = 0.1;
/// How long blocks that fill the memory may wait for somebody to commit them.
const COMMIT_MAX: Duration = Duration::from_secs(10);
/// How often somebody who waits looks how far the merge is.
const LOOK: Duration = Duration::from_micros(500);

impl Engine {
    /// Waits until there is memory for a block's changes, which take so many bytes. Starts a merge
    /// if one is due. An error if twice the memory is taken by blocks that nobody commits.
    pub(crate) fn wait_for_room(self: &Arc<Self>, bytes: usize) -> Result<(), StateError> {
        let start = Instant::now();
        let mut waited = false;
        loop {
            self.health.check()?;
            let mut state = self.merging.state();
            match state.phase {
                Phase::Merging(job) if self.is_too_far_ahead(&job, bytes) => {
                    if waited {
                        // Not gently, since somebody waits.
                        self.store.pages.segments.pace().set_gentle(false);
                    }
                    waited = true;
                    self.merging.wait(&mut state, LOOK);
                }
                Phase::Freezing if self.is_full(bytes) => {
                    waited = true;
                    self.merging.wait(&mut state, LOOK);
                }
                // A merge that is due, and no more, is begun once the block is committed: this one
                // takes its changes out of the tries, which must be put there again.
                Phase::Idle | Phase::Finishing
                    if self.is_full(bytes) && self.layers.can_merge() =>
                {
                    self.store.pages.segments.pace().set_gentle(!waited);
                    drop(state);
                    self.start_merge(0);
                }
                // Only whoever commits can make room now.
                Phase::Idle | Phase::Finishing if self.is_far_too_full(bytes) => {
                    if start.elapsed() > COMMIT_MAX {
                        return Err(StateError::NoRoom {
                            bytes: self.layers.sealed_bytes.load(Ordering::Relaxed) as u64,
                            bytes_max: self.merging.limit.get() as u64,
                        });
                    }
                    waited = true;
                    self.merging.wait(&mut state, LOOK);
                }
                Phase::Idle | Phase::Finishing if self.is_full(bytes) => {
                    drop(state);
                    self.drop_branches()?;
                    break;
                }
                _ => break,
            }
        }
        if waited {
            let taken = start.elapsed();
            self.store
                .counters
                .seal_wait_ns
                .add(taken.as_nanos() as u64);
            self.store.counters.seal_waits.add(taken);
        }
        Ok(())
    }

    /// Whether blocks have come so fast that a merge is behind.
    fn is_too_far_ahead(&self, job: &MergeJob, bytes: usize) -> bool {
        let max = self.merging.limit.get();
        // At least a quarter, though what is being merged should take more than the rest.
        let room = max.saturating_sub(job.bytes).max(max / 4);
        let held = self.layers.bytes();
        let grown = (held + bytes) as f64 / room as f64;
        // A block that is larger than the room alone must pass.
        held > 0 && grown > job.progress(&self.store.counters) + BEHIND_MAX
    }

    /// Whether the layers would take more than they may.
    fn is_full(&self, bytes: usize) -> bool {
        let held = self.layers.bytes();
        held > 0 && held + bytes > self.merging.limit.get()
    }

    /// Whether blocks that wait for nothing but to be committed take more than twice of what there
    /// is. A block alone may take as much as it takes.
    fn is_far_too_full(&self, bytes: usize) -> bool {
        let sealed = self.layers.sealed_bytes.load(Ordering::Relaxed);
        sealed > 0 && sealed + bytes > 2 * self.merging.limit.get()
    }
}

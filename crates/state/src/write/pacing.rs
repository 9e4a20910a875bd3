//! Back-pressure: blocks wait for memory before they are sealed, so that merges keep up and no
//! commit waits for one.
//!
//! ```text
//!   layers:  | being merged |  grown since  |      room left      |
//!                           |<------------- room --------------->|
//! ```
//!
//! While a merge is under way, the layers that have grown since it began may not fill a larger
//! share of the room than the share of the merge that is done. Blocks that arrive faster than they
//! can be merged are thus slowed down evenly, in proportion to their size. As soon as the memory of
//! the merged layers is free, blocks stop waiting even if the merge is unfinished.
//!
//! Long values take little memory and much disk, and only a merge finds out which of their files can
//! go. So blocks also wait for a merge, until its checkpoint is durable, once
//! [`VALUE_MERGES_BEHIND_MAX`] times the bytes of values that make a merge due were written since it began.

use crate::engine::{
    merging::{MergeJob, Phase},
    parts::Engine,
};
use cambium_snapshot::StateError;
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tracing::span::EnteredSpan;

/// Share of the room that layers may be ahead of the merge.
const BEHIND_MAX: f64 = 0.1;
/// Merges that the long values written since the newest one began may be behind. With one, blocks would
/// wait for nearly every merge, and more merges find more values to move.
const VALUE_MERGES_BEHIND_MAX: u64 = 4;
/// Interval at which a waiting thread looks at the merge's progress.
const LOOK: Duration = Duration::from_micros(500);

impl Engine {
    /// Waits until there is memory for a block's changes, which take `bytes`. Starts a merge if one
    /// is due.
    ///
    /// # Errors
    ///
    /// [`StateError::NoRoom`] if sealed blocks would take more than twice the memory of the layers, and none of them is
    /// committed or dropped for [`Options::room_wait`](crate::Options::room_wait).
    pub(crate) fn wait_for_room(self: &Arc<Self>, bytes: usize) -> Result<(), StateError> {
        let start = Instant::now();
        let mut stall = None;
        // Sealed bytes when commits last made room, and the time of that.
        let mut least = usize::MAX;
        let mut waits_since = start;
        let waits = |stall: &mut Option<EnteredSpan>| {
            stall.get_or_insert_with(|| tracing::debug_span!("stall", bytes).entered());
        };
        loop {
            self.health.check()?;
            let mut state = self.merging.state();
            match state.phase {
                Phase::Merging(_) | Phase::Freezing
                    if self.value_merges_behind() >= VALUE_MERGES_BEHIND_MAX =>
                {
                    if stall.is_some() {
                        self.store.pages.segments.pace().set_gentle(false);
                    }
                    waits(&mut stall);
                    self.merging.wait(&mut state, LOOK);
                }
                Phase::Merging(job) if self.is_too_far_ahead(&job, bytes) => {
                    if stall.is_some() {
                        // At full speed, since a caller waits.
                        self.store.pages.segments.pace().set_gentle(false);
                    }
                    waits(&mut stall);
                    self.merging.wait(&mut state, LOOK);
                }
                Phase::Freezing if self.is_full(bytes) => {
                    waits(&mut stall);
                    self.merging.wait(&mut state, LOOK);
                }
                // A merge that is merely due begins after the block is committed. If it began now,
                // the tries would lose this block's changes, which would have to be applied again.
                Phase::Idle | Phase::Finishing
                    if self.is_full(bytes) && self.layers.can_merge() =>
                {
                    self.store.pages.segments.pace().set_gentle(stall.is_none());
                    drop(state);
                    self.start_merge(0);
                }
                // Only a commit can make room now.
                Phase::Idle | Phase::Finishing if self.is_far_too_full(bytes) => {
                    let sealed = self.layers.sealed_bytes.load(Ordering::Relaxed);
                    if sealed < least {
                        (least, waits_since) = (sealed, Instant::now());
                    }
                    if waits_since.elapsed() > self.options.room_wait {
                        return Err(StateError::NoRoom {
                            bytes: sealed as u64,
                            bytes_max: self.merging.limit.get() as u64,
                        });
                    }
                    waits(&mut stall);
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
        if stall.is_some() {
            let taken = start.elapsed();
            tracing::debug!(seconds = taken.as_secs_f64(), "a block waited for a merge");
            self.store
                .counters
                .seal_wait_ns
                .add(taken.as_nanos() as u64);
            self.store.counters.seal_waits.add(taken);
        }
        Ok(())
    }

    /// Whether blocks have arrived so fast that the merge is behind.
    fn is_too_far_ahead(&self, job: &MergeJob, bytes: usize) -> bool {
        let max = self.merging.limit.get();
        // At least a quarter, even if the layers being merged take more than the rest.
        let room = max.saturating_sub(job.bytes).max(max / 4);
        let held = self.layers.bytes();
        let grown = (held + bytes) as f64 / room as f64;
        // A block that is larger than the whole room must pass.
        held > 0 && grown > job.progress(&self.store.counters) + BEHIND_MAX
    }

    /// Whether the layers would exceed their memory.
    fn is_full(&self, bytes: usize) -> bool {
        let held = self.layers.bytes();
        held > 0 && held + bytes > self.merging.limit.get()
    }

    /// Whether sealed blocks that wait to be committed would exceed twice the layers' memory. A
    /// single block may be of any size.
    fn is_far_too_full(&self, bytes: usize) -> bool {
        let sealed = self.layers.sealed_bytes.load(Ordering::Relaxed);
        sealed > 0 && sealed + bytes > 2 * self.merging.limit.get()
    }
}

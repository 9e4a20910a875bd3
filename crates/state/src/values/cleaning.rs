//! Cleaning of value segments (garbage collection): which are to be emptied, and which of their
//! values come next.
//!
//! Replaced values are scattered over all segments, and a segment goes only as a whole. A merge that
//! finds too much dead space chooses *victims*: the segments with the smallest share of live bytes.
//! Blocks that are executed from then on put the victims' live values again, with the same bytes at
//! new places.
//!
//! ```text
//!   merge     chooses victims by what is live at its state
//!   session   append the victim's live values; the block puts them at their new places
//!   commit    values synced, then the log: as for any other value
//!   merge     the victim has no live bytes; the reverts of the block refer to it
//!   later     the block is not kept any more: the victim is removed
//! ```
//!
//! A move is part of the changes of a block and keeps its root, because a leaf commits to the hash of
//! its value. So views, branches, reverts, replays and other processes need no rule for it, and no
//! crash comes between a value's two places.
//!
//! **Pace.** A block moves at most as many bytes as it puts, and a few more, so that cleaning also follows deletions.
//! Unused bytes are *credit* for later blocks, up to a limit: a value is never moved in parts. To find the live values
//! of a victim, each key in it is looked up, so the number of look-ups is limited as well.
//!
//! **Bound.** Dead bytes that no kept block needs do not exceed the live ones for long. Beside them
//! are the values that kept blocks have replaced, and what was written since the last two merges:
//! blocks wait for a merge that values have run ahead of.
//!
//! Deliberately absent: while all blocks are kept, nothing is cleaned, since reverts need each value that ever was.

use alloy_primitives::B256;
use cambium_primitives::{BlockNumber, StoredValue, VALUE_BYTES_MAX};
use cambium_snapshot::emptiest;
use cambium_store::Values;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZeroU64,
};

/// Limit of dead bytes, as a fraction of the live bytes.
const DEAD_PER_LIVE: f64 = 0.9;
/// Bytes that a block may move beside those that it puts.
const CREDIT_BYTES: u64 = 64 << 10;
/// Most credit: enough for the longest value.
const CREDIT_BYTES_MAX: u64 = 2 * VALUE_BYTES_MAX as u64;
/// Most values that are looked at together.
const CANDIDATES_AT_ONCE: usize = 64;

/// A value in a victim. It may be dead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: B256,
    pub(crate) place: NonZeroU64,
}

/// Victims, and who empties them.
#[derive(Default)]
pub(crate) struct Cleaning {
    /// Locked by the session that moves values. Other sessions skip it.
    victims: Mutex<Victims>,
    /// Victims that a merge has chosen and no session has taken yet. Locked for moments only: a session that moves
    /// values may wait for a merge.
    chosen: Mutex<Option<Vec<Victim>>>,
}

impl Cleaning {
    /// Chooses victims among the segments before `pinned_from`. Reverts of blocks up to `unkept` are
    /// not needed any more.
    pub(crate) fn choose(&self, segments: &Values, unkept: BlockNumber, pinned_from: u32) {
        let live_bytes = segments.stats().live_bytes;
        let sparse = segments.sparse(usize::MAX, pinned_from).into_iter();
        let sparse: Vec<_> = sparse
            .filter(|one| one.needed_until.is_none_or(|until| until <= unkept))
            .map(|one| {
                let (number, live_bytes) = (one.number, one.live_bytes);
                let dead_bytes = one.bytes.saturating_sub(live_bytes);
                (Victim { number, live_bytes }, dead_bytes)
            })
            .collect();
        let dead_max = (live_bytes as f64 * DEAD_PER_LIVE) as u64;
        *self.chosen.lock() = Some(emptiest(sparse, dead_max));
    }

    /// The victims, if there are any, and no other session is about to move values.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Victims>> {
        let mut victims = self.victims.try_lock()?;
        if let Some(chosen) = self.chosen.lock().take() {
            victims.begin(chosen);
        }
        (!victims.queue.is_empty()).then_some(victims)
    }
}

/// Segments to be emptied, the one with the smallest share of live bytes first.
#[derive(Default)]
pub(crate) struct Victims {
    queue: VecDeque<Victim>,
    /// Place of the next value of the first victim; `None` for its first one.
    next: Option<NonZeroU64>,
    /// Bytes that may be moved.
    credit: u64,
    /// Segments that can't be emptied, because they have values that can't be read.
    stuck: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Victim {
    number: u32,
    /// Live bytes that were not moved yet.
    live_bytes: u64,
}

impl Victims {
    /// Replaces the victims by those of another merge.
    fn begin(&mut self, mut chosen: Vec<Victim>) {
        chosen.retain(|one| !self.stuck.contains(&one.number));
        (self.queue, self.next) = (chosen.into(), None);
    }

    /// Adds the credit of a block that puts `bytes` of values.
    pub(crate) fn earn(&mut self, bytes: u64) {
        let credit = self
            .credit
            .saturating_add(bytes)
            .saturating_add(CREDIT_BYTES);
        self.credit = credit.min(CREDIT_BYTES_MAX);
    }

    /// Takes the next values of one victim: at most `count`, and as many as the credit allows if all
    /// of them are live. Empty if there are none, or if the credit is too small.
    pub(crate) fn take(&mut self, segments: &Values, count: usize) -> Vec<Candidate> {
        let mut taken = Vec::new();
        while let Some(victim) = self.queue.front().copied() {
            let scan = match self.next {
                None => segments.scan(victim.number),
                Some(place) => segments.scan_from(place),
            };
            let (mut credit, mut rest) = (self.credit, None);
            for found in scan.into_iter().flatten() {
                let Ok((key, place, len)) = found else {
                    self.give_up(victim.number);
                    return taken;
                };
                let left = credit.checked_sub(Values::stored_bytes(len));
                match left {
                    Some(left) if taken.len() < count.min(CANDIDATES_AT_ONCE) => credit = left,
                    _ => {
                        rest = Some(place);
                        break;
                    }
                }
                taken.push(Candidate { key, place });
            }
            self.next = rest;
            if rest.is_none() {
                self.queue.pop_front();
            }
            if rest.is_some() || !taken.is_empty() {
                break;
            }
        }
        taken
    }

    /// Notes that a value was moved. A victim whose live values were all moved is done.
    pub(crate) fn moved(&mut self, value: &StoredValue) {
        let bytes = Values::stored_bytes(value.len);
        self.credit = self.credit.saturating_sub(bytes);
        if let Some(victim) = self.queue.front_mut()
            && victim.number == Values::segment_of(value.place)
        {
            victim.live_bytes = victim.live_bytes.saturating_sub(bytes);
            if victim.live_bytes == 0 {
                self.queue.pop_front();
                self.next = None;
            }
        }
    }

    /// Leaves a segment as it is from now on, because it can't be emptied.
    pub(crate) fn give_up(&mut self, number: u32) {
        self.stuck.insert(number);
        if self.queue.front().is_some_and(|one| one.number == number) {
            self.queue.pop_front();
            self.next = None;
        }
    }
}

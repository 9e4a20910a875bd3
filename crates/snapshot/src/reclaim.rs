//! When a segment may go: what merges left behind that may still be needed.
//!
//! A page is in the snapshots of a range of *generations*: from the merge that wrote it to the one
//! that replaced it. So is a segment, from its first page's generation to that in which its last
//! one died. It may go when
//! - all of its pages are dead for both checkpoints that are kept, and
//! - no snapshot of a generation in that range is held by anybody.
//!
//! A view that is held for long keeps what was there when it was made, and nothing that came or
//! went since.

use crate::read::snapshot::Snapshot;
use cambium_store::{LentFiles, PageAddr, Segments};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// See the module's head. Generations are counted from the opening of the database.
#[derive(Default)]
pub struct Reclaim {
    /// Of the newest snapshot.
    generation: u64,
    /// Pages that the newest checkpoint no longer names, but the one before it does.
    retired: Vec<PageAddr>,
    /// Earlier snapshots with their generations, which views may hold.
    snapshots: Vec<(u64, Weak<Snapshot>)>,
    segments: HashMap<u32, GenerationRange>,
    /// What other processes may read still.
    pub lent: LentFiles,
}

/// The generations that a segment was of use to.
#[derive(Clone, Copy, Default)]
struct GenerationRange {
    /// The first snapshot that can have a page in it.
    from: u64,
    /// The first one that has none of those of its pages that are dead.
    to: u64,
}

impl Reclaim {
    /// With pages that only the checkpoint before the newest names, and the segments there are.
    pub fn new(retired: Vec<PageAddr>, segments: &Segments) -> Self {
        let lives = segments.live().into_iter();
        Self {
            retired,
            segments: lives
                .map(|one| (one.segment, GenerationRange::default()))
                .collect(),
            ..Self::default()
        }
    }

    /// Pages that only the checkpoint before the newest names.
    pub fn retired(&self) -> &[PageAddr] {
        &self.retired
    }

    /// A checkpoint has become durable that does not name the pages `dead` of the `old` snapshot.
    pub fn advance(&mut self, old: &Arc<Snapshot>, dead: Vec<PageAddr>, segments: &Segments) {
        // The pages retired before are those that the newest snapshot until now did without.
        for addr in std::mem::replace(&mut self.retired, dead) {
            segments.mark_dead(addr);
            let life = self.segments.entry(addr.segment()).or_default();
            life.to = life.to.max(self.generation);
        }
        self.snapshots.push((self.generation, Arc::downgrade(old)));
        self.snapshots.retain(|(_, older)| older.strong_count() > 0);
        self.generation += 1;
        let (from, to) = (self.generation, 0);
        for one in segments.live() {
            self.segments
                .entry(one.segment)
                .or_insert(GenerationRange { from, to });
        }
    }

    /// Whether a snapshot that somebody holds may lead to a segment without a live page.
    pub fn is_needed(&self, segment: u32) -> bool {
        let Some(GenerationRange { from, to }) = self.segments.get(&segment).copied() else {
            return false;
        };
        let is_held = |(generation, older): &(u64, Weak<Snapshot>)| {
            (from..to).contains(generation) && older.strong_count() > 0
        };
        self.snapshots.iter().any(is_held)
    }

    /// Segments that are gone: their numbers are used again.
    pub fn forget(&mut self, removed: &[u32]) {
        for segment in removed {
            self.segments.remove(segment);
        }
    }

    /// Earlier snapshots that somebody holds.
    pub fn held_snapshots(&self) -> usize {
        let held = self.snapshots.iter();
        held.filter(|(_, older)| older.strong_count() > 0).count()
    }
}

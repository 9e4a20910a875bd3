//! Reclaiming segments: decides when a segment without live pages can be removed.
//!
//! A page belongs to the snapshots of a range of *generations*, from the merge that wrote it to the
//! merge that replaced it. The range of a segment spans those of its pages. A segment can be
//! removed when
//! - both kept checkpoints name none of its pages, and
//! - no snapshot of a generation in its range is held.
//!
//! So a view that is held for long keeps the segments that its own snapshot needs, but none that
//! were begun after it, and none whose pages were all replaced before it.

use crate::read::snapshot::Snapshot;
use cambium_store::{PageAddr, Segments, UnlinkedFiles};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// Tracks which segments may still be read. Generations are counted from the opening of the
/// database.
#[derive(Default)]
pub struct Reclaimer {
    /// Generation of the newest snapshot.
    generation: u64,
    /// Retired pages: the newest checkpoint no longer names them, but the one before it does.
    retired: Vec<PageAddr>,
    /// Earlier snapshots that views may hold, with their generations.
    snapshots: Vec<(u64, Weak<Snapshot>)>,
    /// Ranges by number of the segment.
    segments: HashMap<u32, GenerationRange>,
    /// Removed files that other processes may still read.
    pub lent: UnlinkedFiles,
}

/// The generations whose snapshots may name a dead page of a segment.
#[derive(Clone, Copy, Default)]
struct GenerationRange {
    /// First generation that can have a page in the segment.
    from: u64,
    /// First generation after that which names none of the segment's dead pages.
    to: u64,
}

impl Reclaimer {
    /// Creates the tracker of an opened database. `retired` are the pages that only the checkpoint
    /// before the newest names.
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

    /// Returns the retired pages: those that only the checkpoint before the newest names.
    pub fn retired(&self) -> &[PageAddr] {
        &self.retired
    }

    /// Records a new durable checkpoint. `old` is the snapshot before it, and `dead` are the pages
    /// of that which the checkpoint no longer names: they become retired, and the pages retired
    /// before become dead.
    pub fn advance(&mut self, old: &Arc<Snapshot>, dead: Vec<PageAddr>, segments: &Segments) {
        // The snapshot `old` was the first that did not name the pages retired before.
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

    /// Whether a snapshot that is still held may name a page of `segment`, which has no live page.
    pub fn is_needed(&self, segment: u32) -> bool {
        let Some(GenerationRange { from, to }) = self.segments.get(&segment).copied() else {
            return false;
        };
        let is_held = |(generation, older): &(u64, Weak<Snapshot>)| {
            (from..to).contains(generation) && older.strong_count() > 0
        };
        self.snapshots.iter().any(is_held)
    }

    /// Forgets removed segments, whose numbers are used again.
    pub fn forget(&mut self, removed: &[u32]) {
        for segment in removed {
            self.segments.remove(segment);
        }
    }

    /// Number of earlier snapshots that are still held.
    pub fn held_snapshots(&self) -> usize {
        let held = self.snapshots.iter();
        held.filter(|(_, older)| older.strong_count() > 0).count()
    }
}

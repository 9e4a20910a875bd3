//! What a database is made of, in numbers.

use crate::{db::handle::Db, tries::base::Intermediate};
use cambium_disk::DiskDescription;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::StateError;
use cambium_trie::SHARDS;

/// Sizes and counts of an open database. Bytes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The newest block of the canonical chain.
    pub head: BlockId,
    /// The newest block whose state is in pages.
    pub snapshot: BlockId,
    /// The oldest block that can be the head again: what is older has left the log, or may.
    pub kept_from: BlockNumber,
    /// Blocks above the snapshot, or above the state being merged.
    pub layers: usize,
    /// Memory of their values.
    pub overlay_bytes: usize,
    /// Memory of their tries.
    pub delta_bytes: usize,
    /// Memory of the index.
    pub index_bytes: usize,
    /// Bytes of those parts of the index that are on disk, to be read when they are needed: the
    /// index is larger than its share of the memory. 0 if all of it is in memory.
    pub index_bytes_on_disk: u64,
    /// Pages that the index names.
    pub pages: u64,
    /// Memory of the cache of entries: accounts and slots that were read singly.
    pub entry_cache_bytes: usize,
    /// Memory of cached contract codes.
    pub code_cache_bytes: u64,
    /// Memory of cached pages.
    pub page_cache_bytes: u64,
    /// States of old blocks that views have brought back, and hold.
    pub old_states: usize,
    /// Memory that views keep although the engine is done with it: old states, and layers that are
    /// merged.
    pub pinned_bytes: usize,
    /// Earlier snapshots that views hold: segments that only these need stay.
    pub held_snapshots: usize,
    /// Blocks of the log that wait for an ancestor whose record was lost.
    pub waiting_blocks: usize,
    /// The merge under way, if there is one.
    pub merging: Option<Merging>,
    /// Pages that could not be read, and are still in use or in the way.
    pub unreadable_pages: usize,
    /// Segment files.
    pub segments: usize,
    /// Bytes in segments.
    pub segment_bytes: u64,
    /// Bytes in segments of pages that are in use.
    pub segment_live_bytes: u64,
    /// Bytes of segments that were removed and that other processes, which read, may keep the space of:
    /// [`Options::reader_lag`](crate::Options::reader_lag).
    pub lent_bytes: u64,
    /// How many segments are up to a tenth in use, up to two tenths, and so on.
    pub segments_by_live: [usize; 10],
    /// Contract codes.
    pub codes: usize,
    /// How the disk does its work.
    pub disk: DiskDescription,
}

/// A merge of layers into the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merging {
    /// Memory of the layers that are being merged: values and tries.
    pub bytes: usize,
    /// Parts of the state whose pages are written.
    pub parts_done: u64,
    /// All of them.
    pub parts: u64,
}

impl Db {
    /// Sizes and counts.
    pub fn stats(&self) -> Result<Stats, StateError> {
        let (head, snapshot, merging, layers, overlay_bytes) = {
            let current = self.inner.layers.current.read();
            let (tree, base) = (&current.tree, &current.base);
            (
                tree.head().block,
                base.snapshot.clone(),
                base.intermediate.as_deref().map(|it| self.merging(it)),
                tree.len(),
                current.overlay.bytes(),
            )
        };
        let (held_snapshots, lent_bytes) = {
            let reclaim = self.inner.store.reclaim.lock();
            (reclaim.held_snapshots(), reclaim.lent.bytes())
        };
        let segments = self.inner.store.pages.segments.live();
        let mut segments_by_live = [0; 10];
        for segment in &segments {
            let tenths = segment.live_bytes * 10 / segment.bytes.max(1);
            segments_by_live[tenths.min(9) as usize] += 1;
        }
        Ok(Stats {
            head,
            snapshot: snapshot.block,
            kept_from: self
                .inner
                .journal
                .kept()
                .number
                .max(self.inner.journal.genesis.number),
            layers,
            overlay_bytes,
            delta_bytes: self.inner.layers.delta.bytes(),
            index_bytes: snapshot.index.memory_bytes(),
            index_bytes_on_disk: snapshot.index.bytes_on_disk(),
            pages: snapshot.index.pages(),
            entry_cache_bytes: snapshot.entries.memory_bytes(),
            code_cache_bytes: self.inner.store.code_cache.bytes(),
            page_cache_bytes: self.inner.store.pages.cached_bytes(),
            old_states: self.inner.past.count(),
            pinned_bytes: self.inner.pinned_bytes(),
            held_snapshots,
            waiting_blocks: self.inner.journal.blocks.orphans(),
            merging,
            unreadable_pages: self.inner.store.pages.unreadable(),
            segments: segments.len(),
            segment_bytes: segments.iter().map(|segment| segment.bytes).sum(),
            segment_live_bytes: segments.iter().map(|segment| segment.live_bytes).sum(),
            lent_bytes,
            segments_by_live,
            codes: self.inner.store.codes.count(),
            disk: self.inner.store.disk.describe(),
        })
    }

    /// How far the merge of `intermediate` is, which is part of the base as long as the caller
    /// looks at it: so all that is counted as merged are the merges before, and parts of this one.
    fn merging(&self, intermediate: &Intermediate) -> Merging {
        let counters = &self.inner.store.counters;
        let parts = SHARDS as u64;
        Merging {
            bytes: intermediate.overlay.bytes() + intermediate.tries.memory_bytes(),
            parts_done: counters.merge_parts.get() - counters.merges.get() * parts,
            parts,
        }
    }
}

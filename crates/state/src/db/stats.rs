//! Sizes and counts of an open database.

use crate::{db::handle::Db, tries::base::Intermediate};
use cambium_disk::DiskDescription;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::StateError;
use cambium_store::ValueStats;
use cambium_trie::SHARDS;

/// Sizes and counts of an open database. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The newest block of the canonical chain.
    pub head: BlockId,
    /// The newest block whose state is in pages.
    pub snapshot: BlockId,
    /// The oldest block that can be the head again. Older blocks have left the log, or soon will.
    pub kept_from: BlockNumber,
    /// Number of blocks above the snapshot, or above the state being merged.
    pub layers: usize,
    /// Memory of the values of these blocks.
    pub overlay_bytes: usize,
    /// Memory of the tries of these blocks.
    pub delta_bytes: usize,
    /// Memory of the index.
    pub index_bytes: usize,
    /// Size of the parts of the index that are read from disk when needed, since the index exceeds
    /// its share of the memory. 0 if the whole index is in memory.
    pub index_bytes_on_disk: u64,
    /// Number of pages in the index.
    pub pages: u64,
    /// Memory of the value cache (accounts and slots).
    pub value_cache_bytes: usize,
    /// Memory of the code cache.
    pub code_cache_bytes: u64,
    /// Memory of the page cache.
    pub page_cache_bytes: u64,
    /// Number of old states that were restored for views and are still held by them.
    pub restored_states: usize,
    /// Memory that only views still hold: old states, and layers that were merged.
    pub pinned_bytes: usize,
    /// Number of earlier snapshots that views hold, whose segments can't be removed.
    pub held_snapshots: usize,
    /// Number of orphans: blocks of the log that wait for an ancestor whose record was lost.
    pub orphan_blocks: usize,
    /// The merge under way, if there is one.
    pub merging: Option<Merging>,
    /// Number of pages that could not be read and are still in use, or not removed yet.
    pub unreadable_pages: usize,
    /// Number of segment files.
    pub segments: usize,
    /// Size of all segments.
    pub segment_bytes: u64,
    /// Size of the pages in segments that are in use.
    pub segment_live_bytes: u64,
    /// Size of removed segments whose space is kept for readers in other processes:
    /// [`Options::reader_lag`](crate::Options::reader_lag).
    pub reader_held_bytes: u64,
    /// Number of segments of which up to a tenth is in use, up to two tenths, and so on.
    pub segments_by_live: [usize; 10],
    /// Number of contract codes.
    pub codes: usize,
    /// Segments of values that are stored apart from their leaves.
    pub values: ValueStats,
    /// How the disk reads and writes.
    pub disk: DiskDescription,
}

/// Progress of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merging {
    /// Memory of the layers being merged, values and tries.
    pub bytes: usize,
    /// Number of shards of the state whose pages are written.
    pub parts_done: u64,
    /// Number of all shards.
    pub parts: u64,
}

impl Db {
    /// Sizes and counts of the database.
    ///
    /// # Errors
    ///
    /// None today.
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
        let (held_snapshots, reader_held_bytes) = {
            let reclaim = self.inner.store.reclaim.lock();
            (reclaim.held_snapshots(), reclaim.lent.bytes())
        };
        let values = self.inner.store.values.as_ref();
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
            value_cache_bytes: snapshot.value_cache.memory_bytes(),
            code_cache_bytes: self.inner.store.code_cache.bytes(),
            page_cache_bytes: self.inner.store.pages.cached_bytes(),
            restored_states: self.inner.past.count(),
            pinned_bytes: self.inner.pinned_bytes(),
            held_snapshots,
            orphan_blocks: self.inner.journal.blocks.orphans(),
            merging,
            unreadable_pages: self.inner.store.pages.unreadable(),
            segments: segments.len(),
            segment_bytes: segments.iter().map(|segment| segment.bytes).sum(),
            segment_live_bytes: segments.iter().map(|segment| segment.live_bytes).sum(),
            reader_held_bytes,
            segments_by_live,
            codes: self.inner.store.codes.count(),
            values: values.map(|it| it.segments.stats()).unwrap_or_default(),
            disk: self.inner.store.disk.describe(),
        })
    }

    /// Progress of the merge of `intermediate`. The caller has seen `intermediate` in the base, so
    /// that the merge is not counted as ended yet: `merges` counts the ones before it.
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

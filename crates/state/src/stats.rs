//! What a database is made of, in numbers.

use crate::{db::Db, error::StateError, merge::places};
use cambium_primitives::BlockId;

/// Sizes and counts of an open database. Bytes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The newest block of the canonical chain.
    pub head: BlockId,
    /// The newest block whose state is in pages.
    pub snapshot: BlockId,
    /// Blocks above the snapshot, or above the state being merged.
    pub layers: usize,
    /// Memory of their values.
    pub overlay_bytes: usize,
    /// Memory of their tries.
    pub delta_bytes: usize,
    /// Memory of the resident index.
    pub index_bytes: usize,
    /// Pages that the index names.
    pub pages: u64,
    /// Memory of cached pages.
    pub page_cache_bytes: u64,
    /// Segment files.
    pub segments: usize,
    /// Bytes in segments.
    pub segment_bytes: u64,
    /// Bytes in segments of pages that are in use.
    pub segment_live_bytes: u64,
    /// Contract codes.
    pub codes: usize,
}

impl Db {
    /// Sizes and counts. Walks the resident index: milliseconds for a million pages.
    pub fn stats(&self) -> Result<Stats, StateError> {
        let (head, snapshot, layers, overlay_bytes) = {
            let current = self.inner.current.read();
            let (tree, base) = (&current.tree, &current.base);
            (
                tree.head().block,
                base.snapshot.clone(),
                tree.len(),
                current.overlay.bytes(),
            )
        };
        let pages = snapshot
            .index
            .iter()
            .map(|shard| places(shard).len() as u64);
        let segments = self.inner.pages.segments.live();
        Ok(Stats {
            head,
            snapshot: snapshot.block,
            layers,
            overlay_bytes,
            delta_bytes: self.inner.delta.lock().forest().memory_bytes(),
            index_bytes: snapshot.index_bytes(),
            pages: pages.sum(),
            page_cache_bytes: self.inner.pages.cached_bytes(),
            segments: segments.len(),
            segment_bytes: segments.iter().map(|segment| segment.bytes).sum(),
            segment_live_bytes: segments.iter().map(|segment| segment.live_bytes).sum(),
            codes: self.inner.codes.hashes().len(),
        })
    }
}

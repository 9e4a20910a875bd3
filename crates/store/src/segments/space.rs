//! The space that segments take: which of their pages are live, and what is removed.

use super::{
    addr::PageAddr,
    segment::{Segment, SegmentStats, name_of},
    set::Segments,
    table::Table,
};
use crate::StoreError;
use cambium_disk::DiskFile;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

/// A segment that was removed.
#[derive(Debug)]
pub struct RemovedSegment {
    /// Its number, as addresses had it.
    pub number: u32,
    /// Bytes appended to it.
    pub bytes: u64,
    /// Its file, which has no name any more. `None` if it was missing.
    pub file: Option<Arc<dyn DiskFile>>,
}

impl Segments {
    /// Notes that nothing current refers to a page any more. It stays readable. No effect if its
    /// segment is gone.
    pub fn mark_dead(&self, addr: PageAddr) {
        if let Some(segment) = self.segments().get(&addr.segment()) {
            let less = |live: u64| Some(live.saturating_sub(addr.len()));
            let _ = segment
                .live_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// How full each segment is, in order.
    pub fn live(&self) -> Vec<SegmentStats> {
        self.segments()
            .values()
            .map(|segment| segment.stats())
            .collect()
    }

    /// Removes the segments without a live page, except the one being appended to, for which
    /// `may_remove` agrees: it must not while a view, or one of the two checkpoints kept, can
    /// still lead to it. Returns those removed, whose numbers are used again. A removal need not
    /// survive a crash: what the table of the next opening does not know is removed then.
    pub fn remove_dead(
        &self,
        mut may_remove: impl FnMut(u32) -> bool,
    ) -> Result<Vec<RemovedSegment>, StoreError> {
        let writer = &mut *self.writer.lock();
        let active = writer.active.as_ref().map_or(0, |active| active.number);
        let mut removed = Vec::new();
        for segment in self.segments().values() {
            let number = segment.number;
            let live_bytes = segment.live_bytes.load(Ordering::Relaxed);
            if live_bytes > 0 || number == active || !may_remove(number) {
                continue;
            }
            if segment.file.is_some() {
                self.poison
                    .guard(|| Ok(self.disk.remove(&name_of(segment.sequence))?))?;
            }
            Arc::make_mut(&mut *self.segments.write()).remove(&number);
            writer.unsynced.retain(|unsynced| unsynced.number != number);
            removed.push(RemovedSegment {
                number,
                bytes: segment.bytes.load(Ordering::Relaxed),
                file: segment.file.clone(),
            });
        }
        Ok(removed)
    }

    /// The table for the checkpoint: of what is durable, so to be taken after [`Segments::sync`].
    /// In it the pages `dying` are dead, which are to be marked so once the checkpoint is durable.
    pub fn encode_table(&self, dying: &[PageAddr]) -> Vec<u8> {
        let mut dying_bytes = HashMap::<u32, u64>::new();
        for addr in dying {
            *dying_bytes.entry(addr.segment()).or_default() += addr.len();
        }
        let durable = |segment: &Arc<Segment>| {
            let bytes = segment.synced_bytes.load(Ordering::Acquire);
            let stats = segment.stats();
            let dying = dying_bytes.get(&stats.segment).copied().unwrap_or(0);
            let live_bytes = stats.live_bytes.saturating_sub(dying).min(bytes);
            (bytes > 0).then_some(SegmentStats {
                bytes,
                live_bytes,
                ..stats
            })
        };
        let next_sequence = self.writer.lock().next_sequence;
        let mut rows: Vec<_> = self.segments().values().filter_map(durable).collect();
        rows.sort_unstable_by_key(|row| row.sequence);
        Table {
            next_sequence,
            rows,
        }
        .encode()
    }

    /// The segments that a table of [`Segments::encode_table`] has, in the order of their sequence
    /// numbers.
    pub fn decode_table(table: &[u8]) -> Result<Vec<SegmentStats>, StoreError> {
        Ok(Table::read(table)?.rows)
    }
}

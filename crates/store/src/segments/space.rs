//! Space accounting: live and dead pages, removal of dead segments, and the checkpoint's table.

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
    /// Number that the segment had in addresses.
    pub number: u32,
    /// Number of bytes that were appended to it.
    pub bytes: u64,
    /// Its unlinked file. `None` if the file was missing.
    pub file: Option<Arc<dyn DiskFile>>,
}

impl Segments {
    /// Counts a page as dead: nothing current refers to it any more. It remains readable. Does
    /// nothing if its segment was removed.
    pub fn mark_dead(&self, addr: PageAddr) {
        if let Some(segment) = self.segments().get(&addr.segment()) {
            let less = |live: u64| Some(live.saturating_sub(addr.len()));
            let _ = segment
                .live_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Returns the fill level of each segment, in the order of segment numbers.
    pub fn live(&self) -> Vec<SegmentStats> {
        self.segments()
            .values()
            .map(|segment| segment.stats())
            .collect()
    }

    /// Removes the segments that have no live page, except the active one. `may_remove` is asked
    /// for each and must refuse while a view or one of the two kept checkpoints can refer to the
    /// segment. Returns the removed segments, whose numbers are reused. If a crash undoes a
    /// removal, [`Segments::settle`] repeats it, because the next checkpoint's table does not list
    /// the segment.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be removed, which poisons the segments, and
    /// [`StoreError::Poisoned`] after that.
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

    /// Encodes the table of durable segments for a checkpoint. Call it after [`Segments::sync`].
    /// The table counts the pages `dying` as dead. The caller marks them dead once the checkpoint
    /// is durable.
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

    /// Decodes a table made by [`Segments::encode_table`]. The rows are in the order of sequence
    /// numbers.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the table is damaged.
    pub fn decode_table(table: &[u8]) -> Result<Vec<SegmentStats>, StoreError> {
        Ok(Table::read(table)?.rows)
    }
}

//! Space accounting: references to segments, removal, and the checkpoint's table.

use super::{
    format::{name_of, value_bytes},
    place::Place,
    segment::{Needs, ValueSegment},
    set::Values,
    table::{Row, Table},
};
use crate::{StoreError, files::remove_if_exists};
use cambium_disk::DiskFile;
use cambium_primitives::BlockNumber;
use std::{
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering},
};

/// Size of all value segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueStats {
    /// Number of segments.
    pub segments: usize,
    /// Length of all segments in bytes.
    pub bytes: u64,
    /// Number of bytes in records of values that the state at the newest merge refers to.
    pub live_bytes: u64,
}

/// A segment that was removed.
#[derive(Debug)]
pub struct RemovedValues {
    /// Length of the segment in bytes.
    pub bytes: u64,
    /// Its unlinked file. `None` if the file was missing.
    pub file: Option<Arc<dyn DiskFile>>,
}

impl Values {
    /// Counts the value of `len` bytes at `place` as live: the state at the newest merge refers to
    /// it. Does nothing if there is no such segment.
    pub fn refer(&self, place: NonZeroU64, len: u32) {
        self.change_needs(place, |needs| {
            needs.live_bytes = needs.live_bytes.saturating_add(value_bytes(len));
        });
    }

    /// Counts a live value as dead: the state at the newest merge no longer refers to it, but the
    /// reverts of `block` do, which replaced it. A value that a merge brings and replaces at once
    /// is first referred to and then released. A block that moves a value replaces it by one with the
    /// same bytes.
    pub fn release(&self, place: NonZeroU64, len: u32, block: BlockNumber) {
        self.change_needs(place, |needs| {
            needs.live_bytes = needs.live_bytes.saturating_sub(value_bytes(len));
            needs.needed_until = needs.needed_until.max(Some(block));
        });
    }

    /// Keeps the segment of `place` for as long as `block` is kept, because that block refers to
    /// the value, though the state at the newest merge does not: a block of a side branch, say.
    pub fn need_until(&self, place: NonZeroU64, block: BlockNumber) {
        self.change_needs(place, |needs| {
            needs.needed_until = needs.needed_until.max(Some(block));
        });
    }

    fn change_needs(&self, place: NonZeroU64, change: impl FnOnce(&mut Needs)) {
        if let Some(segment) = self.segments().get(&Place::from_word(place).segment) {
            change(&mut segment.needs.lock());
        }
    }

    /// Encodes the table of segments for a checkpoint. Call it after [`Values::sync`]: it lists durable bytes only.
    /// Blocks after the checkpoint may refer to the segment `pinned_from` and later ones: it is the smallest to which
    /// they refer already, or else [`Values::newest`].
    pub fn encode_table(&self, pinned_from: u32) -> Vec<u8> {
        // No segment is begun meanwhile, so all with smaller numbers than the next are listed.
        let writer = self.writer.lock();
        let row = |stats: ValueSegment, bytes: u64| Row {
            number: stats.number,
            bytes,
            live_bytes: stats.live_bytes,
            needed_until: stats.needed_until,
        };
        let segments = self.segments();
        let rows = segments.values().map(|segment| {
            row(
                segment.stats(),
                segment.synced_bytes.load(Ordering::Acquire),
            )
        });
        Table {
            next_number: writer.next_number,
            pinned_from,
            rows: rows.collect(),
        }
        .encode()
    }

    /// Returns the unneeded segments: without live bytes, whose reverts are all of blocks below `kept_from`, and with
    /// numbers below `pinned_from`, the first segment to which a block may refer that is not merged yet. The newest
    /// segment is never one of them.
    ///
    /// `kept_from` must not exceed the block after the older one of the two kept checkpoints: then
    /// neither refers to these segments.
    pub fn removable(&self, kept_from: BlockNumber, pinned_from: u32) -> Vec<u32> {
        let segments = self.segments();
        let newest = segments.keys().next_back().copied().unwrap_or(0);
        let before = segments.range(..newest.min(pinned_from));
        let stats = before.map(|(_, segment)| segment.stats());
        stats
            .filter(|it| it.live_bytes == 0 && it.needed_until.is_none_or(|to| to < kept_from))
            .map(|it| it.number)
            .collect()
    }

    /// Removes a segment that is [`Values::removable`], once the checkpoint is durable whose merge
    /// made it so. Returns `None` if there is no such segment, it has live bytes, or it is the
    /// newest. A removal that a crash undoes is repeated: by [`Values::settle`] if the checkpoint
    /// does not list the segment, and else by the caller, because it is removable again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be removed, which poisons the values, and
    /// [`StoreError::Poisoned`] after that.
    pub fn remove(&self, number: u32) -> Result<Option<RemovedValues>, StoreError> {
        let _writer = self.writer.lock();
        let segments = self.segments();
        let newest = segments.keys().next_back().copied();
        let Some(segment) = segments.get(&number) else {
            return Ok(None);
        };
        if newest == Some(number) || segment.stats().live_bytes > 0 {
            return Ok(None);
        }
        self.poison
            .guard(|| Ok(remove_if_exists(&*self.disk, &name_of(number))?))?;
        self.change_segments(|segments| _ = segments.remove(&number));
        Ok(Some(RemovedValues {
            bytes: segment.stats().bytes,
            file: segment.file(),
        }))
    }

    /// Returns up to `limit` segments with the smallest share of live bytes, the smallest first:
    /// those from which moving the live values frees the most. Leaves out segments without live
    /// bytes, those from `pinned_from` on, which unmerged blocks keep anyway, and the newest.
    pub fn sparse(&self, limit: usize, pinned_from: u32) -> Vec<ValueSegment> {
        let segments = self.segments();
        let newest = segments.keys().next_back().copied().unwrap_or(0);
        let before = segments.range(..newest.min(pinned_from));
        let mut sparse: Vec<_> = before
            .map(|(_, segment)| segment.stats())
            .filter(|it| it.live_bytes > 0)
            .collect();
        // The product of one's live bytes and the other's length compares shares without rounding.
        sparse.sort_by(|a, b| {
            let share = |it: &ValueSegment, other: &ValueSegment| {
                u128::from(it.live_bytes) * u128::from(other.bytes)
            };
            share(a, b).cmp(&share(b, a))
        });
        sparse.truncate(limit);
        sparse
    }

    /// Returns the fill level of each segment, in the order of their numbers.
    pub fn list(&self) -> Vec<ValueSegment> {
        let segments = self.segments();
        segments.values().map(|segment| segment.stats()).collect()
    }

    /// Returns the size of all segments.
    pub fn stats(&self) -> ValueStats {
        let add = |all: ValueStats, one: ValueSegment| ValueStats {
            segments: all.segments + 1,
            bytes: all.bytes.saturating_add(one.bytes),
            live_bytes: all.live_bytes.saturating_add(one.live_bytes),
        };
        self.list().into_iter().fold(ValueStats::default(), add)
    }
}

//! Segments: append-only files of leaf pages.

use crate::{Page, StoreError};
use cambium_disk::Disk;
use std::{num::NonZeroU64, sync::Arc};

/// Where a page is: segment number, offset and length, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageAddr(NonZeroU64);

impl PageAddr {
    /// The address as one number: for the index and for checkpoints.
    pub const fn to_u64(self) -> u64 {
        self.0.get()
    }

    /// The reverse of [`PageAddr::to_u64`]. `None` for 0; that it leads anywhere is found out when it is read.
    pub fn from_u64(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }

    /// Number of the segment.
    pub const fn segment(self) -> u32 {
        unimplemented!()
    }

    /// Offset in the segment, in bytes.
    pub const fn offset(self) -> u64 {
        unimplemented!()
    }

    /// Space taken in the segment, in bytes: the page's length rounded up to 16.
    pub const fn len(self) -> usize {
        unimplemented!()
    }

    /// Never: every page has bytes.
    pub const fn is_empty(self) -> bool {
        false
    }
}

/// How segments are laid out.
#[derive(Clone, Debug)]
pub struct SegmentOptions {
    /// A new segment is begun when a page would lead beyond this. At most 256 MiB.
    pub segment_bytes_max: u64,
    /// Pages are gathered to writes of this size.
    pub buffer_bytes: usize,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            segment_bytes_max: 256 << 20,
            buffer_bytes: 4 << 20,
        }
    }
}

/// How full a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStats {
    /// Its number.
    pub segment: u32,
    /// Bytes appended to it.
    pub bytes: u64,
    /// Bytes of pages not yet dead.
    pub live_bytes: u64,
}

/// What opening had to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentsRecovery {
    /// Bytes after the checkpointed end, dropped.
    pub truncated_bytes: u64,
    /// Segments begun after the checkpoint, removed.
    pub removed_segments: u32,
}

/// All segments: one appends, any number of threads read.
#[derive(Debug)]
pub struct Segments {
    _disk: Arc<dyn Disk>,
}

impl Segments {
    /// Opens the segments as the checkpointed `table` (of [`Segments::encode_table`]) knows them,
    /// or an empty set without one. What was appended after the checkpoint is dropped.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: SegmentOptions,
        table: Option<&[u8]>,
    ) -> Result<(Self, SegmentsRecovery), StoreError> {
        _ = (disk, options, table);
        unimplemented!()
    }

    /// Appends a page, made by [`PageBuilder::finish`](crate::PageBuilder::finish). It can be read
    /// at once, and is durable after [`Segments::sync`].
    pub fn append(&self, page: &[u8]) -> Result<PageAddr, StoreError> {
        _ = page;
        unimplemented!()
    }

    /// Makes all pages appended so far durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Reads a page: one device read, or none if it is still buffered.
    pub fn read(&self, addr: PageAddr) -> Result<Page, StoreError> {
        _ = addr;
        unimplemented!()
    }

    /// Reads many pages, all in flight at once if the disk can; results in the order of `addrs`.
    pub fn read_batch(&self, addrs: &[PageAddr]) -> Vec<Result<Page, StoreError>> {
        _ = addrs;
        unimplemented!()
    }

    /// Notes that nothing current refers to a page any more. It stays readable.
    pub fn mark_dead(&self, addr: PageAddr) {
        _ = addr;
        unimplemented!()
    }

    /// How full each segment is, in order.
    pub fn live(&self) -> Vec<SegmentStats> {
        unimplemented!()
    }

    /// Removes the segments without a live page, except the one being appended to, for which
    /// `may_remove` agrees: it must not while a view, or one of the two checkpoints kept, can
    /// still lead to it. Returns those removed.
    pub fn remove_dead(&self, may_remove: impl FnMut(u32) -> bool) -> Result<Vec<u32>, StoreError> {
        _ = may_remove;
        unimplemented!()
    }

    /// The table for the checkpoint: to be taken after [`Segments::sync`], with no append between.
    pub fn encode_table(&self) -> Vec<u8> {
        unimplemented!()
    }
}

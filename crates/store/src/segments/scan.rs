//! Scan of all pages in a segment, whether or not anything refers to them.

use super::{
    addr::{PageAddr, UNIT_BYTES},
    segment::{HEADER_BYTES, Segment},
    set::Segments,
};
use crate::{
    Page, StoreError,
    page::{BEGIN_BYTES, len_if_page},
};
use cambium_disk::BLOCK_BYTES;
use std::sync::{Arc, atomic::Ordering};

/// Bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Iterator over the pages in a segment, made by [`Segments::scan`].
pub struct SegmentScan<'a> {
    segments: &'a Segments,
    segment: Arc<Segment>,
    /// Offset at which the next page may begin.
    at: u64,
    end: u64,
    /// Bytes of the segment from `start` on.
    bytes: Vec<u8>,
    start: u64,
}

impl Segments {
    /// Returns an iterator over all pages in a segment's file, in order, from the offset `from` on.
    /// Bytes that are not an intact page of this place are skipped. A range that can't be read
    /// yields an error, and the scan continues after it. Returns `None` if there is no such
    /// segment.
    pub fn scan(&self, segment: u32, from: u64) -> Option<SegmentScan<'_>> {
        let segment = Arc::clone(self.segments().get(&segment)?);
        Some(SegmentScan {
            segments: self,
            at: from.max(HEADER_BYTES).next_multiple_of(UNIT_BYTES),
            end: segment.flushed_bytes.load(Ordering::Acquire),
            segment,
            bytes: Vec::new(),
            start: 0,
        })
    }
}

impl SegmentScan<'_> {
    /// Reads `len` bytes at the current offset into the buffer. Returns false if the segment ends
    /// before that.
    fn fill(&mut self, len: usize) -> Result<bool, StoreError> {
        let needed = self.at + len as u64;
        if needed > self.end {
            return Ok(false);
        }
        if self.at < self.start || needed > self.start + self.bytes.len() as u64 {
            let file = match self.segment.file_up_to(needed) {
                Ok(file) => file,
                Err(what) => return Err(self.segments.corrupt_at(&self.segment, self.at, what)),
            };
            let until = (self.at + READ_BYTES.max(len as u64)).min(self.end);
            self.bytes.clear();
            self.bytes.resize((until - self.at) as usize, 0);
            self.start = self.at;
            if let Err(error) = file.read_at(&mut self.bytes, self.at) {
                self.bytes.clear();
                return Err(error.into());
            }
        }
        Ok(true)
    }

    /// Returns the page at the current offset, if there is an intact one.
    fn page(&mut self) -> Result<Option<(PageAddr, Page)>, StoreError> {
        if !self.fill(BEGIN_BYTES)? {
            return Ok(None);
        }
        let from = (self.at - self.start) as usize;
        let Some(len) = len_if_page(&self.bytes[from..]) else {
            return Ok(None);
        };
        let len = len.next_multiple_of(UNIT_BYTES as usize);
        if !self.fill(len)? {
            return Ok(None);
        }
        let from = (self.at - self.start) as usize;
        let addr = PageAddr::new(self.segment.number, self.at, len as u64);
        let bytes = self.bytes[from..from + len].to_vec();
        let page = self.segments.parse(&self.segment, addr, bytes);
        Ok(page.ok().map(|page| (addr, page)))
    }
}

impl Iterator for SegmentScan<'_> {
    type Item = Result<(PageAddr, Page), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.end {
            match self.page() {
                Ok(Some((addr, page))) => {
                    self.at = addr.end();
                    return Some(Ok((addr, page)));
                }
                Ok(None) => self.at += UNIT_BYTES,
                Err(error) => {
                    // A device fails to read at least a whole block.
                    self.at = (self.at + 1).next_multiple_of(BLOCK_BYTES as u64);
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

//! Scan of all pages in a segment, whether or not anything refers to them.

use super::{
    addr::{PageAddr, UNIT_BYTES},
    part::len_if_part,
    segment::{HEADER_BYTES, Segment},
    set::Segments,
};
use crate::{
    PAGE_BYTES_MAX, Page, StoreError,
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
    /// Bytes that are not an intact page of this place, and parts of an index, are skipped. A range that can't be read
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

    /// Returns what is at the current offset, if it is intact: a page, or `None` for a part of an index.
    fn record(&mut self) -> Result<Option<(PageAddr, Option<Page>)>, StoreError> {
        if !self.fill(BEGIN_BYTES)? {
            return Ok(None);
        }
        let from = (self.at - self.start) as usize;
        let begin = &self.bytes[from..];
        let (page, part) = (len_if_page(begin), len_if_part(begin));
        let Some(len) = page.or(part).filter(|len| *len <= PAGE_BYTES_MAX) else {
            return Ok(None);
        };
        let len = len.next_multiple_of(UNIT_BYTES as usize);
        if !self.fill(len)? {
            return Ok(None);
        }
        let from = (self.at - self.start) as usize;
        let addr = PageAddr::new(self.segment.number, self.at, len as u64);
        let bytes = self.bytes[from..from + len].to_vec();
        let record = match page {
            Some(_) => self.segments.parse(&self.segment, addr, bytes).map(Some),
            None => {
                let part = self.segments.unstamped(&self.segment, addr, bytes);
                part.map(|_| None)
            }
        };
        Ok(record.ok().map(|record| (addr, record)))
    }
}

impl Iterator for SegmentScan<'_> {
    type Item = Result<(PageAddr, Page), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.end {
            match self.record() {
                Ok(Some((addr, page))) => {
                    self.at = addr.end();
                    if let Some(page) = page {
                        return Some(Ok((addr, page)));
                    }
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

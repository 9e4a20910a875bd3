//! All pages of a segment, in their order, whether anything leads to them or not.

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

/// So much is read at once.
const READ_BYTES: u64 = 1 << 20;

/// Goes through a segment: see [`Segments::scan`].
pub struct SegmentScan<'a> {
    segments: &'a Segments,
    segment: Arc<Segment>,
    /// Where the next page may begin.
    at: u64,
    end: u64,
    /// What was read, from `start` on.
    bytes: Vec<u8>,
    start: u64,
}

impl Segments {
    /// Reads all pages of a segment that are in its file, in order, from `from` on, in large pieces.
    /// What is no page, or none of this place, is passed over. A range that can't be read is told
    /// as an error, and the scan goes on behind it. `None` if there is no such segment.
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
    /// Sees to it that `len` bytes at the place where the scan is are in memory. False if the
    /// segment ends before.
    fn fill(&mut self, len: usize) -> Result<bool, StoreError> {
        let needed = self.at + len as u64;
        if needed > self.end {
            return Ok(false);
        }
        if self.at < self.start || needed > self.start + self.bytes.len() as u64 {
            let file = match self.segment.file_to(needed) {
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

    /// The page at the place where the scan is, if there is one.
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
                    // Whole blocks: what a device can't read is one at least.
                    self.at = (self.at + 1).next_multiple_of(BLOCK_BYTES as u64);
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

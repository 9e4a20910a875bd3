//! Reading pages: single pages, batches, and spans of neighbours. Queues are in `queue.rs`.

use super::{
    addr::PageAddr,
    segment::{DIR, HEADER_BYTES, Segment, name_of},
    set::{SegmentMap, Segments},
    tail::apply_stamp,
};
use crate::{Page, StoreError};
use cambium_disk::{DiskFile, ReadRequest};
use std::sync::{Arc, atomic::Ordering};

/// Longest gap between pages that take one device read, in bytes: a block of the device.
const GAP_BYTES_MAX: u64 = 4096;
/// Longest span of such pages, in bytes.
const SPAN_BYTES_MAX: u64 = 64 << 10;

/// A record as it is in a segment's file, and whether it took a read of the device.
pub(super) type ReadRecord = (Arc<Segment>, Vec<u8>, bool);

/// A range of a segment that is read at once: pages and the gaps between them.
pub(super) struct Span<'a> {
    segment: &'a Segment,
    file: &'a Arc<dyn DiskFile>,
    offset: u64,
    bytes: Vec<u8>,
    /// Number of bytes to read from the file. The rest comes from the tail.
    in_file: usize,
}

/// Number of the first addresses in `addrs`, which is not empty, whose pages one device read may give: in ascending order in one segment.
fn neighbours(addrs: &[PageAddr]) -> usize {
    let first = addrs[0];
    let follows = |pair: &[PageAddr]| {
        let (before, next) = (pair[0], pair[1]);
        let is_near = (before.end()..=before.end() + GAP_BYTES_MAX).contains(&next.offset());
        next.segment() == first.segment()
            && is_near
            && next.end() <= first.offset() + SPAN_BYTES_MAX
    };
    1 + addrs.windows(2).take_while(|pair| follows(pair)).count()
}

impl Span<'_> {
    /// The bytes of one of its records.
    pub(super) fn bytes_of(&self, addr: PageAddr) -> &[u8] {
        let start = (addr.offset() - self.offset) as usize;
        &self.bytes[start..start + addr.len() as usize]
    }

    pub(super) const fn segment(&self) -> &Segment {
        self.segment
    }

    /// Whether a part of it is read from the file.
    pub(super) const fn is_from_device(&self) -> bool {
        self.in_file > 0
    }
}

impl Segments {
    /// Reads a page, with one device read, or none if it is still in the buffer.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the page is damaged or missing, [`StoreError::ReaderBehind`] if
    /// another process has removed it, and [`StoreError::Disk`] if the read fails.
    pub fn read(&self, addr: PageAddr) -> Result<Page, StoreError> {
        let segments = self.segments();
        let segment = self.segment_of(&segments, addr)?;
        let mut bytes = vec![0; addr.len() as usize];
        let in_file = self.read_buffered(segment, addr, &mut bytes);
        if in_file > 0 {
            let file = self.file_of(segment, addr)?;
            let read = file.read_at(&mut bytes[..in_file], addr.offset());
            read.map_err(|error| self.read_error(segment, error))?;
        }
        self.parse(segment, addr, bytes)
    }

    /// Reads many pages, with all reads in flight at once if the disk supports that. Pages that follow each other in `addrs` and
    /// are close together in a segment take one device read. The results are in the order of `addrs`, with errors as in
    /// [`Segments::read`].
    pub fn read_batch(&self, addrs: &[PageAddr]) -> Vec<Result<Page, StoreError>> {
        let mut spans = Vec::with_capacity(addrs.len());
        let mut left = addrs;
        while !left.is_empty() {
            let (span, others) = left.split_at(neighbours(left));
            spans.push(span);
            left = others;
        }
        self.read_spans(&spans)
    }

    /// Reads pages, each with a device read of its own.
    fn read_singly(&self, addrs: &[PageAddr]) -> Vec<Result<Page, StoreError>> {
        let count_buffered = &mut |pages| {
            self.reads_buffered.fetch_add(pages, Ordering::Relaxed);
        };
        let read = self.read_records(addrs, count_buffered);
        let parse = |(addr, read): (&PageAddr, Result<ReadRecord, StoreError>)| {
            read.and_then(|(segment, bytes, _)| self.parse(&segment, *addr, bytes))
        };
        addrs.iter().zip(read).map(parse).collect()
    }

    /// Reads records as they are in the files. Returns each with its segment, and whether it took a read of the device. Shows
    /// the number of the others to `buffered`.
    pub(super) fn read_records(
        &self,
        addrs: &[PageAddr],
        buffered: &mut dyn FnMut(u64),
    ) -> Vec<Result<ReadRecord, StoreError>> {
        let segments = self.segments();
        let bytes_for = |addr: &PageAddr| {
            let segment = self.segment_of(&segments, *addr)?;
            Ok((segment.clone(), vec![0; addr.len() as usize], false))
        };
        let mut missing = Vec::new();
        let mut found: Vec<Result<ReadRecord, StoreError>> = addrs.iter().map(bytes_for).collect();
        let mut requests = Vec::with_capacity(addrs.len());
        let mut requested = Vec::with_capacity(addrs.len());
        let mut in_buffer = 0;
        for (at, (addr, found)) in addrs.iter().zip(&mut found).enumerate() {
            if let Ok((segment, bytes, is_from_device)) = found {
                let in_file = self.read_tail(segment, *addr, bytes);
                if in_file == 0 {
                    in_buffer += 1;
                    continue;
                }
                *is_from_device = true;
                match segment.file_up_to(addr.end()) {
                    Ok(file) => {
                        let bytes = &mut bytes[..in_file];
                        requests.push(ReadRequest::new(&**file, addr.offset(), bytes));
                        requested.push(at);
                    }
                    Err(what) => missing.push((at, self.corrupt(segment.sequence, *addr, what))),
                }
            }
        }
        buffered(in_buffer);
        self.read_requests(&mut requests);
        let failed = |(request, at): (ReadRequest<'_>, _)| Some((at, request.outcome.err()?));
        let failures: Vec<_> = requests
            .into_iter()
            .zip(requested)
            .filter_map(failed)
            .collect();
        for (at, error) in failures {
            if let Ok((segment, ..)) = &found[at] {
                found[at] = Err(self.read_error(segment, error));
            }
        }
        for (at, error) in missing {
            found[at] = Err(error);
        }
        found
    }

    /// Reads spans of pages, each with one device read. The pages of a span are in one segment, in
    /// order and close together. All reads are in flight at once if the disk supports that. The
    /// results are in the order of the spans, with errors as in [`Segments::read`]. If the read of
    /// a span fails, its pages are read one by one.
    pub fn read_spans(&self, spans: &[&[PageAddr]]) -> Vec<Result<Page, StoreError>> {
        let segments = self.segments();
        let mut read: Vec<_> = spans
            .iter()
            .map(|span| self.begin_span(&segments, span))
            .collect();
        let mut outcomes = self.read_each_span(read.iter_mut().flatten()).into_iter();
        let mut pages = Vec::with_capacity(spans.iter().map(|span| span.len()).sum());
        let (mut buffered, mut together) = (0, 0);
        for (addrs, span) in spans.iter().zip(read) {
            let is_read = span.is_some() && outcomes.next().unwrap_or(false);
            let Some(span) = span.filter(|_| is_read) else {
                pages.extend(self.read_singly(addrs));
                continue;
            };
            let before = pages.len();
            if let [addr] = addrs {
                pages.push(self.parse(span.segment, *addr, span.bytes));
                buffered += u64::from(span.in_file == 0);
                continue;
            }
            let parse =
                |addr: &PageAddr| self.parse(span.segment, *addr, span.bytes_of(*addr).to_vec());
            pages.extend(addrs.iter().map(parse));
            // Whoever asked counts the intact ones alone.
            let intact = pages[before..].iter().filter(|page| page.is_ok()).count() as u64;
            match span.is_from_device() {
                true => together += intact.saturating_sub(1),
                false => buffered += intact,
            }
        }
        self.reads_buffered.fetch_add(buffered, Ordering::Relaxed);
        self.read_together.fetch_add(together, Ordering::Relaxed);
        pages
    }

    /// Reads what spans have in files, all at once, and returns of each whether that succeeded.
    pub(super) fn read_each_span<'a, 'b: 'a>(
        &self,
        spans: impl Iterator<Item = &'a mut Span<'b>>,
    ) -> Vec<bool> {
        let (mut requests, mut are_read) = (Vec::new(), Vec::new());
        for span in spans {
            are_read.push(span.in_file == 0);
            if span.in_file > 0 {
                let bytes = &mut span.bytes[..span.in_file];
                requests.push(ReadRequest::new(&**span.file, span.offset, bytes));
            }
        }
        self.read_requests(&mut requests);
        let mut outcomes = requests.into_iter().map(|read| read.outcome.is_ok());
        for is_read in are_read.iter_mut().filter(|is_read| !**is_read) {
            *is_read = outcomes.next().unwrap_or(false);
        }
        are_read
    }

    /// Prepares a span for reading, and copies what is still in the tail. Returns `None` if a part
    /// of it is lost.
    pub(super) fn begin_span<'a>(
        &self,
        segments: &'a SegmentMap,
        span: &[PageAddr],
    ) -> Option<Span<'a>> {
        let (first, last) = (span.first()?, span.last()?);
        let segment = self.segment_of(segments, *first).ok()?;
        self.segment_of(segments, *last).ok()?;
        let mut bytes = vec![0; last.end().checked_sub(first.offset())? as usize];
        let mut in_file = bytes.len();
        if last.end() > segment.flushed_bytes.load(Ordering::Acquire) {
            in_file = self.tail.read(segment, first.offset(), &mut bytes);
        }
        Some(Span {
            segment,
            file: self.file_of(segment, *last).ok()?,
            offset: first.offset(),
            bytes,
            in_file,
        })
    }

    /// Returns the number of pages that were read entirely from the buffer since opening.
    pub fn reads_buffered(&self) -> u64 {
        self.reads_buffered.load(Ordering::Relaxed)
    }

    /// Returns the number of pages that were read by the device read of another page since opening.
    pub fn read_together(&self) -> u64 {
        self.read_together.load(Ordering::Relaxed)
    }

    fn read_requests(&self, requests: &mut [ReadRequest<'_>]) {
        self.reading.fetch_add(requests.len(), Ordering::Relaxed);
        self.disk.read_batch(requests);
        self.reading.fetch_sub(requests.len(), Ordering::Relaxed);
    }

    pub(super) fn segment_of<'a>(
        &self,
        segments: &'a SegmentMap,
        addr: PageAddr,
    ) -> Result<&'a Arc<Segment>, StoreError> {
        let Some(segment) = segments.get(&addr.segment()) else {
            let (number, offset) = (addr.segment(), addr.offset());
            let file = format!("segment {number} of {}", self.disk.display_path(DIR));
            let what = "an address refers to this place, but the segment does not exist";
            return Err(StoreError::corrupt(file, offset, what));
        };
        let bytes = segment.bytes.load(Ordering::Acquire);
        if addr.offset() >= HEADER_BYTES && addr.end() <= bytes {
            return Ok(segment);
        }
        let what = "an address refers to this place, beyond the end of the segment";
        Err(self.corrupt(segment.sequence, addr, what))
    }

    /// Copies the part of a page that is still in the tail. Returns how many bytes at the page's
    /// start are in the file instead.
    pub(super) fn read_buffered(
        &self,
        segment: &Segment,
        addr: PageAddr,
        bytes: &mut [u8],
    ) -> usize {
        let in_file = self.read_tail(segment, addr, bytes);
        if in_file == 0 {
            self.reads_buffered.fetch_add(1, Ordering::Relaxed);
        }
        in_file
    }

    /// Does the same as [`Self::read_buffered`], and counts nothing.
    fn read_tail(&self, segment: &Segment, addr: PageAddr, bytes: &mut [u8]) -> usize {
        match addr.end() <= segment.flushed_bytes.load(Ordering::Acquire) {
            true => bytes.len(),
            false => self.tail.read(segment, addr.offset(), bytes),
        }
    }

    /// Returns the file that holds the page at `addr`, or an error if the page is lost.
    pub(super) fn file_of<'a>(
        &self,
        segment: &'a Segment,
        addr: PageAddr,
    ) -> Result<&'a Arc<dyn DiskFile>, StoreError> {
        let file = segment.file_up_to(addr.end());
        file.map_err(|what| self.corrupt(segment.sequence, addr, what))
    }

    pub(super) fn parse(
        &self,
        segment: &Segment,
        addr: PageAddr,
        mut bytes: Vec<u8>,
    ) -> Result<Page, StoreError> {
        let sequence = segment.sequence;
        apply_stamp(
            &mut bytes,
            PageAddr::stamp(self.salt, sequence, addr.offset()),
        );
        Page::parse(bytes).map_err(|e| self.corrupt(sequence, addr, &e.to_string()))
    }

    fn corrupt(&self, sequence: u64, addr: PageAddr, what: &str) -> StoreError {
        StoreError::damaged_pages(&*self.disk, &name_of(sequence), addr.offset(), what)
    }
}

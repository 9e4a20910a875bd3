//! Parts of an index on disk: records beside the pages, whose content this crate does not interpret.
//!
//! They are appended, counted as live or dead, and removed as pages are, and have addresses of the same kind. Whoever keeps an
//! address knows which of the two is there.

use super::{
    addr::PageAddr,
    read::Span,
    segment::{Segment, name_of},
    set::{SegmentMap, Segments},
    tail::apply_stamp,
};
use crate::StoreError;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

// Part of an index. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     xxh3-64 of all that follows, to the end of the record
// 8       4     length of the record
// 12      1     kind: 129, which is the format of no page
// 13            the part
const KIND: u8 = 129;
const CHECKED_FROM: usize = 8;
const KIND_AT: usize = 12;
/// Bytes of a record before the part itself.
pub const PART_HEAD_BYTES: usize = 13;

/// A part that was read.
#[derive(Debug)]
pub struct StoredPart {
    /// The record, whose checksum was verified.
    record: Vec<u8>,
    /// Whether it took a read of the device. Otherwise the record was still in the write buffer, or was read together with
    /// another one.
    pub is_from_device: bool,
}

impl StoredPart {
    /// The part's own bytes, as [`encode_part`] was given them.
    pub fn bytes(&self) -> &[u8] {
        &self.record[PART_HEAD_BYTES..]
    }

    /// The record as [`Segments::append`] takes it.
    pub fn record(&self) -> &[u8] {
        &self.record
    }
}

/// Encodes the part that `write` appends to the record given to it, for [`Segments::append`].
pub fn encode_part(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut record = vec![0; PART_HEAD_BYTES];
    write(&mut record);
    let len = u32::try_from(record.len()).expect("a part under 4 GiB");
    record[CHECKED_FROM..KIND_AT].copy_from_slice(&len.to_le_bytes());
    record[KIND_AT] = KIND;
    let sum = xxh3_64(&record[CHECKED_FROM..]);
    record[..CHECKED_FROM].copy_from_slice(&sum.to_le_bytes());
    record
}

/// Returns the length of the record of a part that may begin with these bytes. Its checksum is not verified.
pub(super) fn len_if_part(bytes: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes(bytes.get(CHECKED_FROM..KIND_AT)?.try_into().ok()?) as usize;
    let is_part = bytes.get(KIND_AT) == Some(&KIND) && len >= PART_HEAD_BYTES;
    is_part.then_some(len)
}

/// Verifies a record, padded with zeros, and cuts it to its length.
fn verify(mut record: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    let len = len_if_part(&record).filter(|len| *len <= record.len());
    record.truncate(len.ok_or("no part of the index is there")?);
    let sum = record[..CHECKED_FROM].try_into().expect("8 bytes");
    match u64::from_le_bytes(sum) == xxh3_64(&record[CHECKED_FROM..]) {
        true => Ok(record),
        false => Err("the checksum of a part of the index does not match"),
    }
}

/// Most bytes between two parts that are read together, and most bytes that are read together: reading what is between them
/// takes less than another read.
const GAP_BYTES_MAX: u64 = 16 << 10;
const TOGETHER_BYTES_MAX: u64 = 256 << 10;

/// Divides sorted addresses into groups of neighbours that are read together.
fn close_together(addrs: &[PageAddr]) -> impl Iterator<Item = &[PageAddr]> {
    let mut rest = addrs;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let is_next = |pair: &[PageAddr]| {
            let (before, next) = (pair[0], pair[1]);
            next.segment() == before.segment()
                && (before.end()..=before.end() + GAP_BYTES_MAX).contains(&next.offset())
                && next.end() - first.offset() <= TOGETHER_BYTES_MAX
        };
        let count = 1 + rest.windows(2).take_while(|pair| is_next(pair)).count();
        let (group, others) = rest.split_at(count);
        rest = others;
        Some(group)
    })
}

impl Segments {
    /// Reads parts of an index, with all reads in flight at once if the disk supports that, and one read for parts that are close
    /// together. The results are in the order of `addrs`, with errors as in [`Segments::read`].
    pub fn read_parts(&self, addrs: &[PageAddr]) -> Vec<Result<StoredPart, StoreError>> {
        let mut order: Vec<usize> = (0..addrs.len()).collect();
        order.sort_unstable_by_key(|at| addrs[*at]);
        let sorted: Vec<_> = order.iter().map(|at| addrs[*at]).collect();
        let segments = self.segments();
        let groups: Vec<_> = close_together(&sorted)
            .map(|group| (group, self.begin_group(&segments, group)))
            .collect();
        let (alone, mut spans): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(_, span)| span.is_none());
        let spanned = spans.iter_mut().filter_map(|(_, span)| span.as_mut());
        let read = self.read_each_span(spanned);
        let mut found: HashMap<PageAddr, Result<StoredPart, StoreError>> = HashMap::new();
        let mut left: Vec<PageAddr> = alone
            .into_iter()
            .flat_map(|(group, _)| group.to_vec())
            .collect();
        for ((group, span), is_read) in spans.into_iter().zip(read) {
            let Some(span) = span.filter(|_| is_read) else {
                left.extend(group);
                continue;
            };
            for (at, addr) in group.iter().enumerate() {
                let bytes = span.bytes_of(*addr).to_vec();
                let record = self.unstamped(span.segment(), *addr, bytes);
                let part = record.map(|record| StoredPart {
                    record,
                    is_from_device: at == 0 && span.is_from_device(),
                });
                found.insert(*addr, part);
            }
        }
        for (addr, read) in left.iter().zip(self.read_records(&left, &mut |_| {})) {
            let part = read.and_then(|(segment, bytes, is_from_device)| {
                let record = self.unstamped(&segment, *addr, bytes)?;
                Ok(StoredPart {
                    record,
                    is_from_device,
                })
            });
            found.insert(*addr, part);
        }
        let mut taken = |addr: &PageAddr| {
            let part = found.remove(addr);
            // An address that comes twice.
            part.unwrap_or_else(|| Err(self.corrupt_part(*addr, "two parts at one place")))
        };
        addrs.iter().map(&mut taken).collect()
    }

    /// Prepares to read parts that are close together with one read. Returns `None` for a single one, or if a part is lost.
    fn begin_group<'a>(&self, segments: &'a SegmentMap, group: &[PageAddr]) -> Option<Span<'a>> {
        match group.len() {
            0 | 1 => None,
            _ => self.begin_span(segments, group),
        }
    }

    /// Creates an error for the part at `addr`, whose record is intact.
    pub fn corrupt_part(&self, addr: PageAddr, what: &str) -> StoreError {
        match self.segments().get(&addr.segment()) {
            Some(segment) => self.corrupt_at(segment, addr.offset(), what),
            None => StoreError::corrupt("segments".to_owned(), addr.offset(), what),
        }
    }

    /// Verifies the record of a part as it is in the file, and removes its padding.
    pub(super) fn unstamped(
        &self,
        segment: &Segment,
        addr: PageAddr,
        mut bytes: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let (sequence, offset) = (segment.sequence, addr.offset());
        apply_stamp(&mut bytes, PageAddr::stamp(self.salt, sequence, offset));
        verify(bytes).map_err(|what| {
            StoreError::damaged_pages(&*self.disk, &name_of(sequence), offset, what)
        })
    }
}

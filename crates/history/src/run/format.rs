//! The format of a run's file.
//!
//! ```text
//! pages     4096 bytes each: sorted entries
//! fences    which page has a position, in whole blocks
//! filter    which keys there are, in whole blocks; may be missing
//! waypoints hashes of some of the blocks, in whole blocks: each the number, 8 bytes, and the hash
//! trailer   one block of 4096 bytes
//! ```
//!
//! A page. Numbers are little-endian, `varint` is LEB128:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       xxh3-64 of the rest, with a seed from the run's identity and the page's number
//! 8       2       number of entries
//! 10      1       1 if the last entry is the first one of the next page, too: an account or a slot
//!                 whose changes go on there; else 0
//! 11              entries, and of each:
//!         1       number of bytes that its key shares with the key before
//!         1       number of further bytes of the key
//!                 these bytes
//!         varint  block, less the run's first
//!         varint  length of the value
//!                 value: a compact account, or a slot's bytes, big-endian without leading zeros;
//!                 no bytes for an absent account and for zero; of nodes, see `node.rs`
//! then            zeros
//! ```
//!
//! The trailer:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       "CamHist", line feed
//! 8       4       format: 3
//! 12      4       which nodes it has: 0 for none; else one entry of a branch out of so many is whole
//! 16      8       identity of the run
//! 24      8       first block
//! 32      8       last block
//! 40      8       number of entries
//! 48      8       number of pages
//! 56      8       length of the fences
//! 64      8       xxh3-64 of the fences
//! 72      8       length of the filter; 0 if there is none
//! 80      8       xxh3-64 of the filter
//! 88      8       number of waypoints
//! 96      8       xxh3-64 of the waypoints
//! 104     8       number of keys that have entries
//! 112     8       xxh3-64 of all before
//! ```

use crate::{
    entry::{self, Entry, NUMBER_BYTES, Position, ValueVisitor, key_of, number_of},
    node::WholeNodes,
};
use cambium_disk::whole_blocks;
use cambium_primitives::{BlockNumber, DecodeError, Reader, put_varint};
use cambium_runs::{PAGE_BYTES, TrailerFormat, page_sum};
use std::ops::RangeInclusive;

/// Size of a waypoint: a block's number and hash.
pub(crate) const WAYPOINT_BYTES: usize = 40;
const PAGE_HEAD_BYTES: usize = 11;
/// Least size of an entry: two lengths of the key's parts, the block, and the value's length.
const ENTRY_BYTES_MIN: usize = 4;
pub(crate) const FORMAT: u32 = 3;
const TRAILER: TrailerFormat<12> = TrailerFormat {
    magic: b"CamHist\n",
    format: FORMAT,
};

/// The trailer of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) identity: u64,
    pub(crate) nodes: Option<WholeNodes>,
    pub(crate) blocks: RangeInclusive<BlockNumber>,
    pub(crate) entries: u64,
    pub(crate) pages: u64,
    pub(crate) fences_bytes: u64,
    pub(crate) fences_sum: u64,
    pub(crate) filter_bytes: u64,
    pub(crate) filter_sum: u64,
    pub(crate) waypoints: u64,
    pub(crate) waypoints_sum: u64,
    pub(crate) keys: u64,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; PAGE_BYTES] {
        let numbers = [
            self.identity,
            *self.blocks.start(),
            *self.blocks.end(),
            self.entries,
            self.pages,
            self.fences_bytes,
            self.fences_sum,
            self.filter_bytes,
            self.filter_sum,
            self.waypoints,
            self.waypoints_sum,
            self.keys,
        ];
        TRAILER.encode(WholeNodes::to_number(self.nodes), numbers)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (nodes, numbers) = TRAILER.decode(bytes)?;
        let [identity, first, last, entries, pages, rest @ ..] = numbers;
        let [
            fences_bytes,
            fences_sum,
            filter_bytes,
            filter_sum,
            rest @ ..,
        ] = rest;
        let [waypoints, waypoints_sum, keys] = rest;
        Ok(Self {
            identity,
            nodes: WholeNodes::from_number(nodes),
            blocks: first..=last,
            entries,
            pages,
            fences_bytes,
            fences_sum,
            filter_bytes,
            filter_sum,
            waypoints,
            waypoints_sum,
            keys,
        })
    }

    /// Length of the whole file, in bytes. `None` if there is no such length.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        let max = u64::MAX - 2 * PAGE_BYTES as u64;
        let waypoints = self.waypoints.checked_mul(WAYPOINT_BYTES as u64)?;
        if self.fences_bytes.max(self.filter_bytes).max(waypoints) > max {
            return None;
        }
        let pages = self.pages.checked_mul(PAGE_BYTES as u64)?;
        let fences = pages.checked_add(whole_blocks(self.fences_bytes))?;
        let filter = fences.checked_add(whole_blocks(self.filter_bytes))?;
        let waypoints = filter.checked_add(whole_blocks(waypoints))?;
        waypoints.checked_add(PAGE_BYTES as u64)
    }

    /// Whether a run can have these numbers of blocks, entries and keys. See [`ENTRY_BYTES_MIN`].
    pub(crate) fn is_possible(&self) -> bool {
        let entries_max = self
            .pages
            .saturating_mul((PAGE_BYTES / ENTRY_BYTES_MIN) as u64);
        let (first, last) = (*self.blocks.start(), *self.blocks.end());
        first <= last && last < u64::MAX && self.keys <= self.entries && self.entries <= entries_max
    }

    /// Offset of the fences.
    pub(crate) const fn fences_at(&self) -> u64 {
        self.pages * PAGE_BYTES as u64
    }

    /// Offset of the filter.
    pub(crate) const fn filter_at(&self) -> u64 {
        self.fences_at() + whole_blocks(self.fences_bytes)
    }

    /// Offset of the waypoints.
    pub(crate) const fn waypoints_at(&self) -> u64 {
        self.filter_at() + whole_blocks(self.filter_bytes)
    }
}

/// A page that is being filled.
pub(crate) struct PageBuilder {
    bytes: Vec<u8>,
    count: u16,
    first_block: BlockNumber,
    /// Position of the last entry.
    last: Vec<u8>,
}

impl PageBuilder {
    pub(crate) fn new(first_block: BlockNumber) -> Self {
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        bytes.resize(PAGE_HEAD_BYTES, 0);
        Self {
            bytes,
            count: 0,
            first_block,
            last: Vec::new(),
        }
    }

    /// Adds an entry if there is room for it beside `spare` bytes.
    pub(crate) fn push(&mut self, entry: &Entry<'_>, spare: usize) -> bool {
        let before = self.bytes.len();
        let key = key_of(entry.position);
        let last = match self.last.len() {
            0 => &[][..],
            _ => key_of(&self.last),
        };
        let shared = last.iter().zip(key).take_while(|(a, b)| a == b).count();
        self.bytes.push(shared as u8);
        self.bytes.push((key.len() - shared) as u8);
        self.bytes.extend_from_slice(&key[shared..]);
        let number = number_of(entry.position) - self.first_block;
        put_varint(&mut self.bytes, number);
        put_varint(&mut self.bytes, entry.value.len() as u64);
        self.bytes.extend_from_slice(entry.value);
        if self.bytes.len() + spare > PAGE_BYTES {
            self.bytes.truncate(before);
            return false;
        }
        self.count += 1;
        self.last.clear();
        self.last.extend_from_slice(entry.position);
        true
    }

    /// Position of the last entry; no bytes if there is none.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    /// Ends page `page` of a run, and begins the next one. `goes_on`: the last entry is the first
    /// one of the next page, too.
    pub(crate) fn finish(&mut self, identity: u64, page: u64, goes_on: bool, out: &mut Vec<u8>) {
        self.bytes.resize(PAGE_BYTES, 0);
        self.bytes[8..10].copy_from_slice(&self.count.to_le_bytes());
        self.bytes[10] = goes_on.into();
        let sum = page_sum(&self.bytes[8..], identity, page);
        self.bytes[..8].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        *self = Self::new(self.first_block);
    }
}

/// Largest size of the entry of an account or a slot that repeats the key of the one before: no byte
/// of the key.
pub(crate) const REPEATED_BYTES_MAX: usize = 2 + 10 + 1 + entry::VALUE_BYTES_MAX;

const _: () = assert!(entry::VALUE_BYTES_MAX < 128, "its length is one byte");

/// A page that was read, whose checksum is right.
pub(crate) struct Page<'a> {
    reader: Reader<'a>,
    left: u16,
    goes_on: bool,
    first_block: BlockNumber,
    position: Vec<u8>,
}

impl<'a> Page<'a> {
    /// Checks page `page` of the run that `trailer` describes.
    pub(crate) fn open(bytes: &'a [u8], trailer: &Trailer, page: u64) -> Result<Self, DecodeError> {
        let sum = Reader::new(bytes).u64()?;
        if page_sum(&bytes[8..], trailer.identity, page) != sum {
            return Err(Reader::new(bytes).error("the checksum of a page does not match"));
        }
        Self::of_checked(bytes, trailer)
    }

    /// A page whose checksum was found right before.
    pub(crate) fn of_checked(bytes: &'a [u8], trailer: &Trailer) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        reader.u64()?;
        let left = reader.u16()?;
        let goes_on = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.error("unknown flags of a page")),
        };
        Ok(Self {
            reader,
            left,
            goes_on,
            first_block: *trailer.blocks.start(),
            position: Vec::with_capacity(entry::POSITION_BYTES_MAX),
        })
    }

    /// Whether the last entry is the first one of the next page, too.
    pub(crate) const fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Number of entries that have not been read.
    pub(crate) const fn left(&self) -> u16 {
        self.left
    }

    /// Reads the next entry.
    pub(crate) fn next(&mut self) -> Result<Option<Entry<'_>>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let reader = &mut self.reader;
        let shared = usize::from(reader.u8()?);
        let more = usize::from(reader.u8()?);
        let before = self.position.len().saturating_sub(NUMBER_BYTES);
        if shared > before {
            return Err(reader.error("an entry shares more bytes than there are before it"));
        }
        let rest = reader.take(more)?;
        self.position.truncate(shared);
        self.position.extend_from_slice(rest);
        if !entry::is_key(&self.position) {
            return Err(reader.error("an entry whose key is that of nothing"));
        }
        let number = self.first_block.checked_add(reader.varint()?);
        let number = number.ok_or_else(|| reader.error("a block number over 64 bits"))?;
        self.position.extend_from_slice(&number.to_be_bytes());
        let len = reader.count(1)?;
        let value = reader.take(len)?;
        Ok(Some(Entry {
            position: &self.position,
            value,
        }))
    }

    /// The block and the value of the first entry at `from` or after it, if it has the same key.
    pub(crate) fn find(
        mut self,
        from: &Position,
    ) -> Result<Option<(BlockNumber, Vec<u8>)>, DecodeError> {
        let from = from.as_bytes();
        while let Some(entry) = self.next()? {
            if entry.position >= from {
                let is_same = key_of(entry.position) == key_of(from);
                return Ok(is_same.then(|| (number_of(entry.position), entry.value.to_vec())));
            }
        }
        Ok(None)
    }

    /// Visits the entries from `from` on that have the same key.
    pub(crate) fn each(
        mut self,
        from: &Position,
        visit: ValueVisitor<'_>,
    ) -> Result<EndOfPage, DecodeError> {
        let from = from.as_bytes();
        while let Some(entry) = self.next()? {
            if entry.position < from {
                continue;
            }
            if key_of(entry.position) != key_of(from) {
                return Ok(EndOfPage::OtherKey);
            }
            if visit(entry.value)?.is_break() {
                return Ok(EndOfPage::Broken);
            }
        }
        Ok(EndOfPage::GoesOn)
    }
}

/// How a visit of the entries of a key in one page ended.
pub(crate) enum EndOfPage {
    /// The visitor broke off.
    Broken,
    /// There are no more entries of the key.
    OtherKey,
    /// The next page may have more.
    GoesOn,
}

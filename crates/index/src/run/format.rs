//! The format of a run's file.
//!
//! ```text
//! hashes    pages of 4096 bytes: entries of hashes
//! logs      pages of 4096 bytes: entries of logs
//! fences    of each page its first key, 8 bytes, and from which block on it has that, 4 bytes; in whole
//!           blocks of 4096 bytes
//! filter    which keys the entries of hashes have, in whole blocks; may be missing
//! extents   where the data of the blocks is, in whole blocks
//! trailer   one block
//! ```
//!
//! The trailer. Numbers are little-endian:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       "CamIndx", line feed
//! 8       4       format: 1
//! 12      4       zero
//! 16      8       identity of the run
//! 24      8       first block
//! 32      8       last block
//! 40      8       number of entries of hashes
//! 48      8       number of their pages
//! 56      8       number of entries of logs
//! 64      8       number of their pages
//! 72      8       xxh3-64 of the fences
//! 80      8       length of the filter; 0 if there is none
//! 88      8       xxh3-64 of the filter
//! 96      8       length of the extents
//! 104     8       xxh3-64 of the extents
//! 112     8       xxh3-64 of all before
//! ```

use crate::entry::{BLOCK_MAX, Entry, Kind};
use cambium_disk::whole_blocks;
use cambium_primitives::{BlockNumber, DecodeError, Reader};
use cambium_runs::{PAGE_BYTES, TrailerFormat};
use std::ops::RangeInclusive;

pub(crate) const FORMAT: u32 = 1;
const TRAILER: TrailerFormat<12> = TrailerFormat {
    magic: b"CamIndx\n",
    format: FORMAT,
};
/// Size of a fence.
const FENCE_BYTES: usize = 12;

/// Entries and pages of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) entries: u64,
    pub(crate) pages: u64,
}

/// The trailer of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) identity: u64,
    pub(crate) blocks: RangeInclusive<BlockNumber>,
    pub(crate) hashes: Section,
    pub(crate) logs: Section,
    pub(crate) fences_sum: u64,
    pub(crate) filter_bytes: u64,
    pub(crate) filter_sum: u64,
    pub(crate) extents_bytes: u64,
    pub(crate) extents_sum: u64,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; PAGE_BYTES] {
        let numbers = [
            self.identity,
            *self.blocks.start(),
            *self.blocks.end(),
            self.hashes.entries,
            self.hashes.pages,
            self.logs.entries,
            self.logs.pages,
            self.fences_sum,
            self.filter_bytes,
            self.filter_sum,
            self.extents_bytes,
            self.extents_sum,
        ];
        TRAILER.encode(0, numbers)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (_, [identity, first, last, numbers @ ..]) = TRAILER.decode(bytes)?;
        let [entries, pages, log_entries, log_pages, sums @ ..] = numbers;
        let [
            fences_sum,
            filter_bytes,
            filter_sum,
            extents_bytes,
            extents_sum,
        ] = sums;
        if first > last || last > BLOCK_MAX {
            return Err(DecodeError {
                what: "a run of no blocks",
                offset: TrailerFormat::<12>::BYTES,
            });
        }
        Ok(Self {
            identity,
            blocks: first..=last,
            hashes: Section { entries, pages },
            logs: Section {
                entries: log_entries,
                pages: log_pages,
            },
            fences_sum,
            filter_bytes,
            filter_sum,
            extents_bytes,
            extents_sum,
        })
    }

    /// Number of all pages. Saturates: no file is as long.
    const fn pages(&self) -> u64 {
        self.hashes.pages.saturating_add(self.logs.pages)
    }

    /// Offset of the fences.
    pub(crate) const fn fences_at(&self) -> u64 {
        self.pages().saturating_mul(PAGE_BYTES as u64)
    }

    /// Length of the fences.
    pub(crate) const fn fences_bytes(&self) -> u64 {
        self.pages().saturating_mul(FENCE_BYTES as u64)
    }

    /// Offset of the filter.
    pub(crate) const fn filter_at(&self) -> u64 {
        self.fences_at()
            .saturating_add(whole_blocks(self.fences_bytes()))
    }

    /// Offset of the extents.
    pub(crate) const fn extents_at(&self) -> u64 {
        self.filter_at()
            .saturating_add(whole_blocks(self.filter_bytes))
    }

    /// Length of the whole file, in bytes.
    pub(crate) const fn file_bytes(&self) -> u64 {
        let extents = whole_blocks(self.extents_bytes);
        let trailer_at = self.extents_at().saturating_add(extents);
        trailer_at.saturating_add(PAGE_BYTES as u64)
    }

    /// The section of a kind, and its first page in the file.
    pub(crate) const fn section(&self, kind: Kind) -> (u64, Section) {
        match kind {
            Kind::Hashes => (0, self.hashes),
            Kind::Logs => (self.hashes.pages, self.logs),
        }
    }
}

/// The first key of each page of a section, and from which block on the page has it: its first block if the
/// page before has the key, too, and else 0. By them a page is found without a read.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    keys: Vec<u64>,
    blocks: Vec<u32>,
}

impl Fences {
    /// Adds the fence of a page that begins with `first`. `goes_on` says whether the page before has the key.
    pub(crate) fn push(&mut self, first: Entry, goes_on: bool) {
        self.keys.push(first.key);
        self.blocks.push(if goes_on { first.block } else { 0 });
    }

    /// The first key of a page, if there is such a page.
    pub(crate) fn key(&self, page: u64) -> Option<u64> {
        self.keys.get(usize::try_from(page).ok()?).copied()
    }

    /// Memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.keys.capacity() * 8 + self.blocks.capacity() * 4) as u64
    }

    /// The page, counted from the section's first, in which the first entry of `key` from `block` on is, or
    /// the one before if the key goes on there.
    pub(crate) fn page_of(&self, key: u64, block: u32) -> usize {
        // Pages that begin below it: the last of them may have it.
        let from = self.keys.partition_point(|first| *first < key);
        let to = from + self.keys[from..].partition_point(|first| *first == key);
        let below = self.blocks[from..to].partition_point(|first| *first <= block);
        (from + below).saturating_sub(1)
    }

    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        for (key, block) in self.keys.iter().zip(&self.blocks) {
            out.extend_from_slice(&key.to_le_bytes());
            out.extend_from_slice(&block.to_le_bytes());
        }
    }

    /// Decodes the next `pages` fences.
    pub(crate) fn read(reader: &mut Reader<'_>, pages: u64) -> Result<Self, DecodeError> {
        let pages = usize::try_from(pages).unwrap_or(usize::MAX);
        if pages > reader.remaining() / FENCE_BYTES {
            return Err(reader.error("fewer fences than pages"));
        }
        let mut fences = Self {
            keys: Vec::with_capacity(pages),
            blocks: Vec::with_capacity(pages),
        };
        let mut last = None;
        for _ in 0..pages {
            let fence = (reader.u64()?, reader.u32()?);
            // Two transactions of one block may have keys that are equal.
            if last > Some(fence) {
                return Err(reader.error("fences out of order"));
            }
            last = Some(fence);
            fences.keys.push(fence.0);
            fences.blocks.push(fence.1);
        }
        Ok(fences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Trailer {
        Trailer {
            identity: 1,
            blocks: 2..=3,
            hashes: Section {
                entries: 4,
                pages: 5,
            },
            logs: Section {
                entries: 6,
                pages: 7,
            },
            fences_sum: 8,
            filter_bytes: 9,
            filter_sum: 10,
            extents_bytes: 11,
            extents_sum: 12,
        }
    }

    #[test]
    fn trailers_survive_and_every_changed_byte_is_found() {
        let bytes = sample().encode();
        assert_eq!(Trailer::decode(&bytes), Ok(sample()));
        for at in 0..TrailerFormat::<12>::BYTES {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert!(Trailer::decode(&bytes).is_err(), "byte {at}");
        }
        assert_eq!(sample().file_bytes(), (5 + 7 + 1 + 1 + 1 + 1) * 4_096);
    }

    #[test]
    fn a_page_is_found_by_its_first_entry() {
        let mut fences = Fences::default();
        for (key, block, goes_on) in [
            (1, 5, false),
            (3, 2, true),
            (3, 8, true),
            (3, 9, true),
            (7, 1, false),
        ] {
            let place = 0;
            fences.push(Entry { key, block, place }, goes_on);
        }
        let page_of = |key, block| fences.page_of(key, block);
        assert_eq!(page_of(0, 9), 0);
        assert_eq!(page_of(2, 0), 0);
        assert_eq!(page_of(3, 0), 0);
        assert_eq!(page_of(3, 7), 1);
        assert_eq!(page_of(3, 8), 2);
        assert_eq!(page_of(3, 99), 3);
        assert_eq!(page_of(5, 0), 3);
        assert_eq!(page_of(7, 0), 4);
        assert_eq!(page_of(7, 1), 4);
        assert_eq!(page_of(9, 0), 4);
        let mut bytes = Vec::new();
        fences.encode_to(&mut bytes);
        let read = Fences::read(&mut Reader::new(&bytes), 5).unwrap();
        assert_eq!((&read.keys, &read.blocks), (&fences.keys, &fences.blocks));
        assert!(Fences::read(&mut Reader::new(&bytes), u64::MAX).is_err());
        bytes[0] = 9;
        assert!(Fences::read(&mut Reader::new(&bytes), 5).is_err());
    }
}

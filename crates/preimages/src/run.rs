//! Runs: files of sorted preimages, which never change.
//!
//! ```text
//! addresses  pages of 4096 bytes
//! slots      pages of 4096 bytes
//! fences     of each page the first 8 bytes of its first hash; in whole blocks of 4096 bytes
//! trailer    one block
//! ```
//!
//! The trailer. Numbers are little-endian:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       "CamPrei", line feed
//! 8       4       format: 1
//! 12      4       zero
//! 16      8       identity of the run
//! 24      8       number of addresses
//! 32      8       number of slots
//! 40      8       xxh3-64 of the fences
//! 48      8       xxh3-64 of all before
//! ```

use crate::{
    PreimagesError,
    kind::{Entry, Kind, prefix_of},
    page::{ReadPage, entries_per_page, finish_page},
};
use alloy_primitives::B256;
use cambium_disk::{Disk, WritePace, whole_blocks};
use cambium_primitives::DecodeError;
use cambium_runs::{FileReader, FileWriter, PAGE_BYTES, TrailerFormat};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const FORMAT: u32 = 1;
const TRAILER: TrailerFormat<4> = TrailerFormat {
    magic: b"CamPrei\n",
    format: FORMAT,
};
const TRAILER_BYTES: usize = TrailerFormat::<4>::BYTES;
/// Size of a fence.
const FENCE_BYTES: u64 = 8;
/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Most preimages of one kind: no disk has room for more.
const ENTRIES_MAX: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trailer {
    identity: u64,
    /// Number of preimages of each kind.
    entries: [u64; 2],
    fences_sum: u64,
}

impl Trailer {
    fn encode(&self) -> [u8; PAGE_BYTES] {
        let [addresses, slots] = self.entries;
        TRAILER.encode(0, [self.identity, addresses, slots, self.fences_sum])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (_, [identity, addresses, slots, fences_sum]) = TRAILER.decode(bytes)?;
        let trailer = Self {
            identity,
            entries: [addresses, slots],
            fences_sum,
        };
        if trailer.entries.iter().any(|entries| *entries > ENTRIES_MAX) {
            return Err(DecodeError {
                what: "an impossible number of preimages",
                offset: TRAILER_BYTES,
            });
        }
        Ok(trailer)
    }

    const fn pages(&self, kind: Kind) -> u64 {
        self.entries[kind as usize].div_ceil(entries_per_page(kind) as u64)
    }

    const fn pages_in_all(&self) -> u64 {
        self.pages(Kind::Address) + self.pages(Kind::Slot)
    }

    /// The first page of a kind.
    const fn first_page(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Address => 0,
            Kind::Slot => self.pages(Kind::Address),
        }
    }

    const fn file_bytes(&self) -> u64 {
        let fences = whole_blocks(self.pages_in_all() * FENCE_BYTES);
        (self.pages_in_all() + 1) * PAGE_BYTES as u64 + fences
    }
}

/// A run in a file.
pub(crate) struct RunFile {
    file: FileReader,
    trailer: Trailer,
    /// Of each page the first 8 bytes of its first hash.
    fences: Vec<u64>,
}

impl RunFile {
    /// Opens a run.
    pub(crate) fn open(disk: &dyn Disk, name: &str, identity: u64) -> Result<Self, PreimagesError> {
        let file = FileReader::open(disk, name)?;
        let block = file.last_block()?;
        let (trailer_at, block) =
            block.ok_or_else(|| file.damaged(0, "it is too short to be a run"))?;
        let trailer =
            Trailer::decode(&block).map_err(|error| file.undecodable(trailer_at, &error))?;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if !is_zero(&block[TRAILER_BYTES..]) {
            let what = "there is more behind the trailer";
            return Err(file.damaged(trailer_at, what).into());
        }
        if trailer.file_bytes() != file.file_bytes() {
            let what = "the file has another length";
            return Err(file.damaged(trailer_at, what).into());
        }
        if trailer.identity != identity {
            return Err(file.missing().into());
        }
        let pages = trailer.pages_in_all();
        let fences_at = pages * PAGE_BYTES as u64;
        let mut bytes = vec![0; (trailer_at - fences_at) as usize];
        file.read(&mut bytes, fences_at)?;
        let behind = bytes.split_off((pages * FENCE_BYTES) as usize);
        if !is_zero(&behind) {
            let what = "there is more behind the fences";
            return Err(file.damaged(fences_at, what).into());
        }
        if xxh3_64(&bytes) != trailer.fences_sum {
            let what = "the checksum of the fences does not match";
            return Err(file.damaged(fences_at, what).into());
        }
        let fences = bytes.as_chunks::<8>().0.iter();
        Ok(Self {
            file,
            trailer,
            fences: fences.map(|fence| u64::from_le_bytes(*fence)).collect(),
        })
    }

    /// Number of preimages of a kind.
    pub(crate) const fn entries(&self, kind: Kind) -> u64 {
        self.trailer.entries[kind as usize]
    }

    pub(crate) const fn file_bytes(&self) -> u64 {
        self.trailer.file_bytes()
    }

    /// Memory of the fences, in bytes.
    pub(crate) const fn memory_bytes(&self) -> u64 {
        self.fences.len() as u64 * FENCE_BYTES
    }

    pub(crate) const fn pages(&self, kind: Kind) -> u64 {
        self.trailer.pages(kind)
    }

    /// The page of a kind that has `hash` if any has it: the last one that begins at or before it. `None` if
    /// it is before all.
    pub(crate) fn page_of(&self, kind: Kind, hash: &B256) -> Option<u64> {
        let prefix = prefix_of(hash);
        let first = self.trailer.first_page(kind) as usize;
        let fences = &self.fences[first..first + self.trailer.pages(kind) as usize];
        let after = fences.partition_point(|fence| *fence <= prefix);
        after.checked_sub(1).map(|page| page as u64)
    }

    /// Whether the page before this one may have `hash` as well: both have its first 8 bytes.
    pub(crate) fn may_begin_before(&self, kind: Kind, page: u64, hash: &B256) -> bool {
        let at = (self.trailer.first_page(kind) + page) as usize;
        page > 0 && self.fences[at] == prefix_of(hash)
    }

    /// Reads a page of a kind.
    pub(crate) fn read(&self, kind: Kind, page: u64) -> Result<ReadPage, PreimagesError> {
        let number = self.trailer.first_page(kind) + page;
        let offset = number * PAGE_BYTES as u64;
        let mut bytes = vec![0; PAGE_BYTES];
        self.file.read(&mut bytes, offset)?;
        let per_page = entries_per_page(kind);
        let left = self.entries(kind) - page * per_page as u64;
        let count = left.min(per_page as u64) as usize;
        let read = ReadPage::of(bytes, kind, count, self.trailer.identity, number);
        read.ok_or_else(|| self.damaged(kind, page, "the checksum of a page does not match"))
    }

    /// Reads the preimages of a page of a kind, with their hashes, sorted by these.
    fn read_sorted(&self, kind: Kind, page: u64) -> Result<Vec<Entry>, PreimagesError> {
        let entries = self.read(kind, page)?.entries();
        let number = self.trailer.first_page(kind) + page;
        let is_sorted = entries.windows(2).all(|two| two[0].hash < two[1].hash);
        let begins = entries.first().map(Entry::prefix);
        if !is_sorted || begins != self.fences.get(number as usize).copied() {
            return Err(self.unsorted(kind, page));
        }
        Ok(entries)
    }

    fn unsorted(&self, kind: Kind, page: u64) -> PreimagesError {
        let what = "preimages are not in the order of their hashes";
        self.damaged(kind, page, what)
    }

    fn damaged(&self, kind: Kind, page: u64, what: &str) -> PreimagesError {
        let number = self.trailer.first_page(kind) + page;
        self.file.damaged(number * PAGE_BYTES as u64, what).into()
    }
}

/// Reads all preimages of a kind in their order.
pub(crate) struct Cursor {
    run: Arc<RunFile>,
    kind: Kind,
    next: u64,
    entries: std::vec::IntoIter<Entry>,
    entry: Option<Entry>,
}

impl Cursor {
    /// At the first one.
    pub(crate) fn new(run: Arc<RunFile>, kind: Kind) -> Result<Self, PreimagesError> {
        let mut cursor = Self {
            run,
            kind,
            next: 0,
            entries: Vec::new().into_iter(),
            entry: None,
        };
        cursor.advance()?;
        Ok(cursor)
    }

    /// Returns the current entry; `None` behind the last one.
    pub(crate) const fn entry(&self) -> Option<&Entry> {
        self.entry.as_ref()
    }

    pub(crate) fn advance(&mut self) -> Result<(), PreimagesError> {
        let before = self.entry;
        self.entry = self.entries.next();
        if self.entry.is_none() && self.next < self.run.pages(self.kind) {
            self.entries = self.run.read_sorted(self.kind, self.next)?.into_iter();
            self.entry = self.entries.next();
            if self.entry <= before {
                return Err(self.run.unsorted(self.kind, self.next));
            }
            self.next += 1;
        }
        Ok(())
    }
}

/// Writes a run from preimages in the order of their hashes: addresses, then slots.
pub(crate) struct RunWriter {
    file: FileWriter,
    identity: u64,
    entries: [u64; 2],
    fences: Vec<u8>,
    page: Vec<u8>,
}

impl RunWriter {
    /// Creates the file `name`.
    pub(crate) fn create(
        disk: &dyn Disk,
        name: &str,
        identity: u64,
        pace: Arc<WritePace>,
    ) -> Result<Self, PreimagesError> {
        Ok(Self {
            file: FileWriter::create(disk, name, BUFFER_BYTES, pace)?,
            identity,
            entries: [0; 2],
            fences: Vec::new(),
            page: Vec::with_capacity(PAGE_BYTES),
        })
    }

    /// Adds the next preimage of a kind.
    pub(crate) fn push(&mut self, kind: Kind, entry: &Entry) -> Result<(), PreimagesError> {
        if self.page.is_empty() {
            self.fences.extend_from_slice(&entry.prefix().to_le_bytes());
        }
        self.page.extend_from_slice(&entry.preimage[..kind.bytes()]);
        self.entries[kind as usize] += 1;
        match self.page.len() == entries_per_page(kind) * kind.bytes() {
            true => self.end_page(),
            false => Ok(()),
        }
    }

    /// Ends the preimages of a kind.
    pub(crate) fn end_kind(&mut self) -> Result<(), PreimagesError> {
        match self.page.is_empty() {
            true => Ok(()),
            false => self.end_page(),
        }
    }

    fn end_page(&mut self) -> Result<(), PreimagesError> {
        let Self {
            file,
            page,
            identity,
            ..
        } = self;
        Ok(file.page(|number, out| {
            finish_page(page, *identity, number);
            out.append(page);
        })?)
    }

    /// Makes the file durable; its name is, once the directory is synced.
    pub(crate) fn finish(mut self) -> Result<(), PreimagesError> {
        let trailer = Trailer {
            identity: self.identity,
            entries: self.entries,
            fences_sum: xxh3_64(&self.fences),
        };
        self.file.section(&self.fences)?;
        let written = self.file.finish(&trailer.encode())?;
        debug_assert_eq!(written, trailer.file_bytes());
        Ok(())
    }
}

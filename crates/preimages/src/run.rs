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
    page::{PAGE_BYTES, ReadPage, entries_per_page, finish_page},
};
use alloy_primitives::B256;
use cambium_disk::{Access, Disk, DiskFile, whole_blocks};
use cambium_primitives::{DecodeError, Reader};
use cambium_store::WritePace;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"CamPrei\n";
pub(crate) const FORMAT: u32 = 1;
const SUMMED_BYTES: usize = 48;
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
    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let [addresses, slots] = self.entries;
        for number in [self.identity, addresses, slots, self.fences_sum] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out.resize(PAGE_BYTES, 0);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let sum = xxh3_64(reader.clone().take(SUMMED_BYTES)?);
        let (magic, format, _) = (reader.take(8)?, reader.u32()?, reader.u32()?);
        let trailer = Self {
            identity: reader.u64()?,
            entries: [reader.u64()?, reader.u64()?],
            fences_sum: reader.u64()?,
        };
        if magic != MAGIC || reader.u64()? != sum {
            return Err(reader.error("the checksum of a run's trailer does not match"));
        }
        if format != FORMAT {
            return Err(reader.error("a run in another format"));
        }
        if trailer.entries.iter().any(|entries| *entries > ENTRIES_MAX) {
            return Err(reader.error("an impossible number of preimages"));
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
    file: Arc<dyn DiskFile>,
    /// The file's path for messages.
    path: String,
    trailer: Trailer,
    /// Of each page the first 8 bytes of its first hash.
    fences: Vec<u64>,
}

impl RunFile {
    /// Opens a run.
    pub(crate) fn open(disk: &dyn Disk, name: &str, identity: u64) -> Result<Self, PreimagesError> {
        let path = disk.display_path(name);
        let missing = || PreimagesError::Missing { file: path.clone() };
        let file = match disk.open_with(name, Access::Direct) {
            Err(error) if error.is_not_found() => return Err(missing()),
            file => file?,
        };
        let damaged = |offset: u64, what: &str| PreimagesError::Damaged {
            file: path.clone(),
            offset,
            what: what.to_owned(),
        };
        let len = file.len()?;
        let Some(trailer_at) = len.checked_sub(PAGE_BYTES as u64) else {
            return Err(damaged(0, "it is too short to be a run"));
        };
        let mut block = vec![0; PAGE_BYTES];
        file.read_at(&mut block, trailer_at)?;
        let trailer = Trailer::decode(&block)
            .map_err(|error| damaged(trailer_at + error.offset as u64, error.what))?;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if !is_zero(&block[SUMMED_BYTES + 8..]) {
            return Err(damaged(trailer_at, "there is more behind the trailer"));
        }
        if trailer.file_bytes() != len {
            return Err(damaged(trailer_at, "the file has another length"));
        }
        if trailer.identity != identity {
            return Err(missing());
        }
        let pages = trailer.pages_in_all();
        let fences_at = pages * PAGE_BYTES as u64;
        let mut bytes = vec![0; (trailer_at - fences_at) as usize];
        file.read_at(&mut bytes, fences_at)?;
        let behind = bytes.split_off((pages * FENCE_BYTES) as usize);
        if !is_zero(&behind) {
            return Err(damaged(fences_at, "there is more behind the fences"));
        }
        if xxh3_64(&bytes) != trailer.fences_sum {
            return Err(damaged(
                fences_at,
                "the checksum of the fences does not match",
            ));
        }
        let fences = bytes.as_chunks::<8>().0.iter();
        Ok(Self {
            file,
            path: path.clone(),
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
        self.file.read_at(&mut bytes, offset)?;
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
        PreimagesError::Damaged {
            file: self.path.clone(),
            offset: (self.trailer.first_page(kind) + page) * PAGE_BYTES as u64,
            what: what.to_owned(),
        }
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

    /// What it is at; `None` behind the last one.
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
    file: Arc<dyn DiskFile>,
    identity: u64,
    entries: [u64; 2],
    fences: Vec<u8>,
    page: Vec<u8>,
    pages: u64,
    /// Whole blocks that are not written yet.
    buffer: Vec<u8>,
    written: u64,
    pace: Arc<WritePace>,
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
            file: disk.create_with(name, Access::Direct)?,
            identity,
            entries: [0; 2],
            fences: Vec::new(),
            page: Vec::with_capacity(PAGE_BYTES),
            pages: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES + PAGE_BYTES),
            written: 0,
            pace,
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
        finish_page(&mut self.page, self.identity, self.pages);
        self.buffer.append(&mut self.page);
        self.pages += 1;
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<(), PreimagesError> {
        match self.buffer.len() >= BUFFER_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), PreimagesError> {
        let (file, buffer, at) = (&self.file, &self.buffer, self.written);
        self.pace.write(|| file.write_at(buffer, at))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the file durable; its name is, once the directory is synced.
    pub(crate) fn finish(mut self) -> Result<(), PreimagesError> {
        let trailer = Trailer {
            identity: self.identity,
            entries: self.entries,
            fences_sum: xxh3_64(&self.fences),
        };
        let mut fences = std::mem::take(&mut self.fences);
        fences.resize(whole_blocks(fences.len() as u64) as usize, 0);
        for piece in fences.chunks(BUFFER_BYTES) {
            self.buffer.extend_from_slice(piece);
            self.flush_if_full()?;
        }
        self.buffer.extend_from_slice(&trailer.encode());
        self.flush()?;
        debug_assert_eq!(self.written, trailer.file_bytes());
        Ok(self.file.sync()?)
    }
}

//! Reading the file of a run.

use super::{
    format::{Fences, Trailer},
    page::decode_page,
};
use crate::{
    IndexError,
    counters::Counters,
    entry::{Entry, Kind},
    extents::Extents,
};
use cambium_disk::Disk;
use cambium_primitives::{BlockNumber, Reader};
use cambium_runs::{FileReader, KeyFilter, PAGE_BYTES};
use parking_lot::RwLock;
use std::{
    ops::{Range, RangeInclusive},
    sync::{Arc, OnceLock},
};

/// Most pages that a cursor reads at once.
const CURSOR_PAGES_MAX: u64 = 64;

/// A run in a file. It never changes.
pub(crate) struct RunFile {
    file: FileReader,
    trailer: Trailer,
    fences: [Fences; 2],
    /// In memory if there is room: see `Keeper::place_filters`.
    filter: RwLock<Option<KeyFilter>>,
    extents: Extents,
    /// Whether it has blocks whose receipts are not known; see [`RunFile::has_unknown`].
    has_unknown: OnceLock<bool>,
    counters: Arc<Counters>,
    /// Memory of fences and extents, in bytes.
    memory_bytes: u64,
}

impl RunFile {
    /// Opens a run, without its filter.
    pub(crate) fn open(
        disk: &dyn Disk,
        name: &str,
        identity: u64,
        counters: &Arc<Counters>,
    ) -> Result<Self, IndexError> {
        let file = FileReader::open(disk, name)?;
        let block = file.last_block()?;
        let (trailer_at, block) =
            block.ok_or_else(|| file.damaged(0, "it is too short to be a run"))?;
        let trailer =
            Trailer::decode(&block).map_err(|error| file.undecodable(trailer_at, &error))?;
        if trailer.file_bytes() != file.file_bytes() {
            let what = "the file has another length";
            return Err(file.damaged(trailer_at, what).into());
        }
        if trailer.identity != identity {
            return Err(file.missing().into());
        }
        let fences_at = trailer.fences_at();
        let what = "the checksum of the fences does not match";
        let (len, sum) = (trailer.fences_bytes(), trailer.fences_sum);
        let bytes = file.section(fences_at, len, sum, what)?;
        let mut reader = Reader::new(&bytes);
        let mut fences = |pages| {
            let fences = Fences::read(&mut reader, pages);
            fences.map_err(|error| file.undecodable(fences_at, &error))
        };
        let fences = [fences(trailer.hashes.pages)?, fences(trailer.logs.pages)?];
        let extents_at = trailer.extents_at();
        let what = "the checksum of the extents does not match";
        let (len, sum) = (trailer.extents_bytes, trailer.extents_sum);
        let bytes = file.section(extents_at, len, sum, what)?;
        let extents =
            Extents::decode(&bytes).map_err(|error| file.undecodable(extents_at, &error))?;
        let blocks = trailer.blocks.end() - trailer.blocks.start() + 1;
        if extents.blocks() != blocks {
            let what = "it has another number of blocks";
            return Err(file.damaged(extents_at, what).into());
        }
        let fences_bytes: u64 = fences.iter().map(Fences::memory_bytes).sum();
        let memory_bytes = extents.memory_bytes() + fences_bytes;
        Ok(Self {
            file,
            trailer,
            fences,
            filter: RwLock::default(),
            extents,
            has_unknown: OnceLock::new(),
            counters: counters.clone(),
            memory_bytes,
        })
    }

    pub(crate) const fn blocks(&self) -> &RangeInclusive<BlockNumber> {
        &self.trailer.blocks
    }

    pub(crate) const fn extents(&self) -> &Extents {
        &self.extents
    }

    /// The file's path for messages.
    pub(crate) fn path(&self) -> &str {
        self.file.path()
    }

    /// Number of entries of a kind.
    pub(crate) const fn entries(&self, kind: Kind) -> u64 {
        self.trailer.section(kind).1.entries
    }

    pub(crate) const fn file_bytes(&self) -> u64 {
        self.trailer.file_bytes()
    }

    /// Memory of fences, extents, and the filter if it is there, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let filter = if self.has_filter() {
            self.filter_bytes()
        } else {
            0
        };
        self.memory_bytes + filter
    }

    /// Whether an entry of hashes with the key may be in it.
    pub(crate) fn may_have(&self, key: u64) -> bool {
        let filter = self.filter.read();
        let filter = filter.as_ref();
        filter.is_none_or(|filter| filter.may_have(&key.to_le_bytes()))
    }

    /// Whether its filter is in memory.
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.read().is_some()
    }

    /// Length of its filter, in bytes; 0 if it has none.
    pub(crate) const fn filter_bytes(&self) -> u64 {
        self.trailer.filter_bytes
    }

    /// Reads the filter, if it is not in memory.
    pub(crate) fn load_filter(&self) -> Result<(), IndexError> {
        if !self.has_filter() {
            *self.filter.write() = self.read_filter()?;
        }
        Ok(())
    }

    /// Reads the filter from the file; `None` if it has none.
    pub(crate) fn read_filter(&self) -> Result<Option<KeyFilter>, IndexError> {
        let len = self.trailer.filter_bytes;
        if len == 0 {
            return Ok(None);
        }
        let (at, sum) = (self.trailer.filter_at(), self.trailer.filter_sum);
        let what = "the checksum of the filter does not match";
        let filter = KeyFilter::from_bytes(self.file.section(at, len, sum, what)?);
        let filter = filter.ok_or_else(|| self.file.damaged(at, "its filter is none"))?;
        Ok(Some(filter))
    }

    /// Frees the filter's memory.
    pub(crate) fn drop_filter(&self) {
        *self.filter.write() = None;
    }

    /// Pages that may have entries of `key` with these blocks, counted from the section's first.
    fn pages_of(&self, kind: Kind, key: u64, blocks: &RangeInclusive<u32>) -> Range<u64> {
        let fences = &self.fences[kind as usize];
        let page_of = |block| fences.page_of(key, block) as u64;
        let end = (page_of(*blocks.end()) + 1).min(self.trailer.section(kind).1.pages);
        page_of(*blocks.start()).min(end)..end
    }

    /// Number of pages in which entries of `key` with these blocks may be: what reading all of them takes.
    pub(crate) fn count_pages_of(&self, kind: Kind, key: u64, blocks: &RangeInclusive<u32>) -> u64 {
        let pages = self.pages_of(kind, key, blocks);
        pages.end - pages.start
    }

    /// A cursor over the entries of `key` with blocks of a range, of which `wanted` are: where these are fewer than the
    /// pages, it reads a page for each that it is moved to, and else pages that follow each other.
    pub(crate) fn seek(
        self: &Arc<Self>,
        kind: Kind,
        key: u64,
        blocks: &RangeInclusive<u32>,
        wanted: u64,
    ) -> Result<Cursor, IndexError> {
        let pages = self.pages_of(kind, key, blocks);
        let at_once = match wanted < pages.end - pages.start {
            true => 1,
            false => CURSOR_PAGES_MAX,
        };
        let mut cursor = Cursor::new(self.clone(), kind, pages, at_once);
        cursor.only = Some(key);
        cursor.skip_to(*blocks.start())?;
        Ok(cursor)
    }

    /// Whether there is an entry of logs with `key`, which is looked up once: always the same key.
    pub(crate) fn has_unknown(self: &Arc<Self>, key: u64) -> Result<bool, IndexError> {
        if let Some(has) = self.has_unknown.get() {
            return Ok(*has);
        }
        let has = self
            .seek(Kind::Logs, key, &(0..=u32::MAX), 0)?
            .entry()
            .is_some();
        Ok(*self.has_unknown.get_or_init(|| has))
    }

    /// A cursor over all entries of a kind.
    pub(crate) fn scan(self: &Arc<Self>, kind: Kind) -> Result<Cursor, IndexError> {
        let pages = 0..self.trailer.section(kind).1.pages;
        let mut cursor = Cursor::new(self.clone(), kind, pages, CURSOR_PAGES_MAX);
        cursor.fill()?;
        Ok(cursor)
    }
}

/// Reads the entries of one kind in their order.
pub(crate) struct Cursor {
    run: Arc<RunFile>,
    kind: Kind,
    /// The only key that is wanted, if it is one.
    only: Option<u64>,
    /// The next page and the end of the wanted ones, counted from the section's first.
    pages: Range<u64>,
    /// Most pages of a read.
    at_once: u64,
    /// Pages that were read and not decoded yet.
    bytes: Vec<u8>,
    /// Where the first of them begins in `bytes`.
    used: usize,
    entries: Vec<Entry>,
    at: usize,
}

impl Cursor {
    const fn new(run: Arc<RunFile>, kind: Kind, pages: Range<u64>, at_once: u64) -> Self {
        Self {
            run,
            kind,
            only: None,
            pages,
            at_once,
            bytes: Vec::new(),
            used: 0,
            entries: Vec::new(),
            at: 0,
        }
    }

    /// The entry that it is at; `None` behind the last one.
    pub(crate) fn entry(&self) -> Option<Entry> {
        let entry = self.entries.get(self.at).copied()?;
        self.only
            .is_none_or(|key| key == entry.key)
            .then_some(entry)
    }

    /// Whether it is at an entry of `block` with one of the places of `bits`.
    pub(crate) fn is_at(&self, block: u32, bits: u32) -> bool {
        let entry = self.entry();
        entry.is_some_and(|entry| entry.block == block && entry.place & bits != 0)
    }

    /// Moves on to the first entry of its key with `block` or a later one, from the entry that it is at.
    pub(crate) fn skip_to(&mut self, block: u32) -> Result<(), IndexError> {
        let Some(key) = self.only else {
            return Ok(());
        };
        loop {
            let rest = &self.entries[self.at..];
            self.at += rest.partition_point(|entry| (entry.key, entry.block) < (key, block));
            if self.at < self.entries.len() || self.pages.is_empty() {
                return Ok(());
            }
            let fences = &self.run.fences[self.kind as usize];
            let page = fences.page_of(key, block) as u64;
            // The page that may have it is not the one after those that were decoded: the key ends there.
            if page < self.pages.start && fences.key(self.pages.start) != Some(key) {
                self.pages.start = self.pages.end;
                return Ok(());
            }
            let skipped = page.saturating_sub(self.pages.start);
            let skipped = skipped.min(self.pages.end - self.pages.start);
            self.pages.start += skipped;
            let read = self.bytes.len() - self.used;
            self.used += (skipped as usize).saturating_mul(PAGE_BYTES).min(read);
            self.fill()?;
        }
    }

    pub(crate) fn advance(&mut self) -> Result<(), IndexError> {
        self.at += 1;
        if self.at < self.entries.len() {
            return Ok(());
        }
        let fences = &self.run.fences[self.kind as usize];
        match self.only {
            // The next page begins with a later key: no read is needed to know it.
            Some(key) if fences.key(self.pages.start) != Some(key) => {
                self.entries.clear();
                Ok(())
            }
            _ => self.fill(),
        }
    }

    /// Decodes the next page, and reads more if none is left.
    fn fill(&mut self) -> Result<(), IndexError> {
        self.at = 0;
        self.entries.clear();
        let (first, _) = self.run.trailer.section(self.kind);
        if self.used == self.bytes.len() {
            let pages = self.at_once.min(self.pages.end - self.pages.start);
            if pages == 0 {
                return Ok(());
            }
            self.bytes.resize(pages as usize * PAGE_BYTES, 0);
            let offset = (first + self.pages.start) * PAGE_BYTES as u64;
            self.run.file.read(&mut self.bytes, offset)?;
            self.run.counters.count_index_read();
            self.used = 0;
        }
        let page = first + self.pages.start;
        let bytes = &self.bytes[self.used..self.used + PAGE_BYTES];
        let first_block = *self.run.trailer.blocks.start() as u32;
        let identity = self.run.trailer.identity;
        let decoded = decode_page(bytes, identity, page, first_block, &mut self.entries);
        let at = page * PAGE_BYTES as u64;
        decoded.map_err(|error| self.run.file.undecodable(at, &error))?;
        self.used += PAGE_BYTES;
        self.pages.start += 1;
        Ok(())
    }
}

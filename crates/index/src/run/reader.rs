//! Reading the file of a run.

use super::{
    format::{Fences, Trailer},
    page::{PAGE_BYTES, decode_page},
};
use crate::{
    IndexError,
    counters::Counters,
    entry::{Entry, Kind},
    extents::Extents,
};
use cambium_disk::{Access, Disk, DiskFile};
use cambium_primitives::{BlockNumber, DecodeError, Reader};
use cambium_store::KeyFilter;
use parking_lot::RwLock;
use std::{ops::RangeInclusive, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

/// Pages that a cursor reads at once, after its first.
const CURSOR_PAGES_MAX: u64 = 64;

/// A run in a file. It never changes.
pub(crate) struct RunFile {
    file: Arc<dyn DiskFile>,
    /// The file's path for messages.
    path: String,
    trailer: Trailer,
    fences: [Fences; 2],
    /// In memory as far as there is room: see `Keeper::place_filters`.
    filter: RwLock<Option<KeyFilter>>,
    extents: Extents,
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
        let path = disk.display_path(name);
        let missing = || IndexError::Missing { file: path.clone() };
        let file = match disk.open_with(name, Access::Direct) {
            Err(error) if error.is_not_found() => return Err(missing()),
            file => file?,
        };
        let damaged = |offset: u64, what: &str| IndexError::Damaged {
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
        if trailer.file_bytes() != len {
            return Err(damaged(trailer_at, "the file has another length"));
        }
        if trailer.identity != identity {
            return Err(missing());
        }
        let read = |offset: u64, len: u64, sum: u64, what: &str| {
            let mut bytes = vec![0; len as usize];
            file.read_at(&mut bytes, offset)?;
            match xxh3_64(&bytes) == sum {
                true => Ok(bytes),
                false => Err(damaged(offset, what)),
            }
        };
        let at = |offset: u64| {
            move |error: DecodeError| damaged(offset + error.offset as u64, error.what)
        };
        let fences_at = trailer.fences_at();
        let bytes = read(
            fences_at,
            trailer.fences_bytes(),
            trailer.fences_sum,
            "the checksum of the fences does not match",
        )?;
        let mut reader = Reader::new(&bytes);
        let mut fences = |pages| Fences::read(&mut reader, pages).map_err(at(fences_at));
        let fences = [fences(trailer.hashes.pages)?, fences(trailer.logs.pages)?];
        let bytes = read(
            trailer.extents_at(),
            trailer.extents_bytes,
            trailer.extents_sum,
            "the checksum of the extents does not match",
        )?;
        let extents = Extents::decode(&bytes).map_err(at(trailer.extents_at()))?;
        let blocks = trailer.blocks.end() - trailer.blocks.start() + 1;
        if extents.blocks() != blocks {
            return Err(damaged(
                trailer.extents_at(),
                "it has another number of blocks",
            ));
        }
        let fences_bytes: u64 = fences.iter().map(Fences::memory_bytes).sum();
        let memory_bytes = extents.memory_bytes() + fences_bytes;
        Ok(Self {
            file,
            path,
            trailer,
            fences,
            filter: RwLock::default(),
            extents,
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
        &self.path
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
        let offset = self.trailer.filter_at();
        let damaged = |what: &str| IndexError::Damaged {
            file: self.path.clone(),
            offset,
            what: what.to_owned(),
        };
        let mut bytes = vec![0; len as usize];
        self.file.read_at(&mut bytes, offset)?;
        if xxh3_64(&bytes) != self.trailer.filter_sum {
            return Err(damaged("the checksum of the filter does not match"));
        }
        let filter = KeyFilter::from_bytes(bytes);
        filter
            .map(Some)
            .ok_or_else(|| damaged("its filter is none"))
    }

    /// Frees the filter's memory.
    pub(crate) fn drop_filter(&self) {
        *self.filter.write() = None;
    }

    /// A cursor over the entries of `key` from `block` on.
    pub(crate) fn seek(
        self: &Arc<Self>,
        kind: Kind,
        key: u64,
        block: u32,
    ) -> Result<Cursor, IndexError> {
        let page = self.fences[kind as usize].page_of(key, block) as u64;
        let mut cursor = Cursor::new(self.clone(), kind, page, 1);
        cursor.fill()?;
        cursor.only = Some(key);
        while cursor.is_before(key, block) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    /// A cursor over all entries of a kind.
    pub(crate) fn scan(self: &Arc<Self>, kind: Kind) -> Result<Cursor, IndexError> {
        let mut cursor = Cursor::new(self.clone(), kind, 0, CURSOR_PAGES_MAX);
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
    /// The next page, counted from the section's first.
    next: u64,
    /// Pages of the next read.
    at_once: u64,
    /// Pages that were read and not decoded yet.
    bytes: Vec<u8>,
    /// Where the first of them begins in `bytes`.
    used: usize,
    entries: Vec<Entry>,
    at: usize,
}

impl Cursor {
    const fn new(run: Arc<RunFile>, kind: Kind, next: u64, at_once: u64) -> Self {
        Self {
            run,
            kind,
            only: None,
            next,
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

    /// Whether it is at an entry before those of `key` from `block` on.
    fn is_before(&self, key: u64, block: u32) -> bool {
        let entry = self.entries.get(self.at);
        entry.is_some_and(|entry| (entry.key, entry.block) < (key, block))
    }

    pub(crate) fn advance(&mut self) -> Result<(), IndexError> {
        self.at += 1;
        if self.at < self.entries.len() {
            return Ok(());
        }
        let fences = &self.run.fences[self.kind as usize];
        match self.only {
            // The next page begins with a later key: no read is needed to know it.
            Some(key) if fences.key(self.next) != Some(key) => {
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
        let (first, section) = self.run.trailer.section(self.kind);
        if self.used == self.bytes.len() {
            let pages = self.at_once.min(section.pages.saturating_sub(self.next));
            if pages == 0 {
                return Ok(());
            }
            self.bytes.resize(pages as usize * PAGE_BYTES, 0);
            let offset = (first + self.next) * PAGE_BYTES as u64;
            self.run.file.read_at(&mut self.bytes, offset)?;
            self.run.counters.count_index_read();
            self.used = 0;
            self.at_once = (self.at_once * 4).min(CURSOR_PAGES_MAX);
        }
        let page = first + self.next;
        let bytes = &self.bytes[self.used..self.used + PAGE_BYTES];
        let first_block = *self.run.trailer.blocks.start() as u32;
        let identity = self.run.trailer.identity;
        decode_page(bytes, identity, page, first_block, &mut self.entries).map_err(|error| {
            IndexError::Damaged {
                file: self.run.path.clone(),
                offset: page * PAGE_BYTES as u64 + error.offset as u64,
                what: error.what.to_owned(),
            }
        })?;
        self.used += PAGE_BYTES;
        self.next += 1;
        Ok(())
    }
}

//! Reading the file of a run: one page for a key, or all in order.

use super::{
    fences::Fences,
    format::{EndOfPage, Page, Trailer, WAYPOINT_BYTES},
    pages::{PageReads, PagesAhead, ReadPage},
};
use crate::{
    HistoryError,
    entry::{self, Entry, Key, ValueVisitor},
    node::WholeNodes,
};
use alloy_primitives::B256;
use cambium_disk::DiskFile;
use cambium_primitives::{BlockId, BlockNumber, DecodeError};
use cambium_runs::{FileReader, KeyFilter, PAGE_BYTES};
use std::{
    ops::{ControlFlow, RangeInclusive},
    sync::Arc,
};

/// A run in a file. It never changes.
pub(crate) struct RunFile {
    file: FileReader,
    trailer: Trailer,
    fences: Fences,
    filter: Option<KeyFilter>,
    /// Pages that a cursor reads at once.
    cursor_pages: u64,
    reads: Arc<PageReads>,
    /// Memory that `reads` counts for it, in bytes.
    counted_bytes: u64,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        self.reads.take_index_bytes(self.counted_bytes);
    }
}

impl RunFile {
    /// Opens the run `identity` in the file `name`. The filter is kept in memory if it takes at most
    /// `filter_bytes_max` bytes. Cursors read `buffer_bytes` bytes at once.
    pub(crate) fn open(
        reads: Arc<PageReads>,
        name: &str,
        identity: u64,
        filter_bytes_max: u64,
        buffer_bytes: usize,
    ) -> Result<Self, HistoryError> {
        let file = FileReader::open(&*reads.disk, name)?;
        let len = file.file_bytes();
        let is_whole = len.is_multiple_of(PAGE_BYTES as u64);
        let block = if is_whole { file.last_block()? } else { None };
        let (at, block) =
            block.ok_or_else(|| file.damaged(len, "the end of the run is missing"))?;
        let trailer = Trailer::decode(&block).map_err(|error| file.undecodable(at, &error))?;
        if trailer.identity != identity {
            return Err(file.missing().into());
        }
        if trailer.file_bytes() != Some(len) || trailer.pages == 0 {
            let what = "the run's length is not what its trailer says";
            return Err(file.damaged(at, what).into());
        }
        if !trailer.is_possible() {
            let what = "the trailer tells of blocks or entries that a run can't have";
            return Err(file.damaged(at, what).into());
        }
        let mut run = Self {
            file,
            trailer,
            fences: Fences::default(),
            filter: None,
            cursor_pages: (buffer_bytes / PAGE_BYTES).max(1) as u64,
            reads,
            counted_bytes: 0,
        };
        run.load(filter_bytes_max)?;
        Ok(run)
    }

    /// Reads fences and filter.
    fn load(&mut self, filter_bytes_max: u64) -> Result<(), HistoryError> {
        let trailer = &self.trailer;
        let at = trailer.fences_at();
        let fences = self.section(at, trailer.fences_bytes, trailer.fences_sum)?;
        let fences = Fences::decode(&fences).map_err(|error| self.file.undecodable(at, &error))?;
        if fences.pages() as u64 != trailer.pages {
            let what = "there is not a fence for each page";
            return Err(self.file.damaged(at, what).into());
        }
        if (1..=filter_bytes_max).contains(&trailer.filter_bytes) {
            let at = trailer.filter_at();
            let filter = self.section(at, trailer.filter_bytes, trailer.filter_sum)?;
            let filter = KeyFilter::from_bytes(filter)
                .ok_or_else(|| self.file.damaged(at, "a filter is not of whole blocks"))?;
            self.filter = Some(filter);
        }
        self.fences = fences;
        self.reads.add_index_bytes(self.memory_bytes());
        self.counted_bytes = self.memory_bytes();
        Ok(())
    }

    /// Reads a part of the file, which is no longer than the file.
    fn section(&self, at: u64, len: u64, sum: u64) -> Result<Vec<u8>, HistoryError> {
        Ok(self
            .file
            .section(at, len, sum, "a checksum does not match")?)
    }

    /// The blocks whose changes it has.
    pub(crate) const fn blocks(&self) -> &RangeInclusive<BlockNumber> {
        &self.trailer.blocks
    }

    /// Which nodes it has, if any.
    pub(crate) const fn nodes(&self) -> Option<WholeNodes> {
        self.trailer.nodes
    }

    /// Number that identifies the run.
    pub(crate) const fn identity(&self) -> u64 {
        self.trailer.identity
    }

    pub(crate) fn file(&self) -> &(dyn DiskFile + 'static) {
        self.file.file()
    }

    pub(crate) fn reads(&self) -> &Arc<PageReads> {
        &self.reads
    }

    /// The file's path for messages.
    pub(crate) fn path(&self) -> &str {
        self.file.path()
    }

    /// Some of its blocks, in their order.
    pub(crate) fn waypoints(&self) -> Result<Vec<BlockId>, HistoryError> {
        let trailer = &self.trailer;
        let len = trailer.waypoints * WAYPOINT_BYTES as u64;
        let bytes = self.section(trailer.waypoints_at(), len, trailer.waypoints_sum)?;
        let ids = bytes.chunks_exact(WAYPOINT_BYTES).map(|id| {
            let (number, hash) = id.split_at(8);
            let number = BlockNumber::from_le_bytes(number.try_into().expect("eight bytes"));
            BlockId::new(number, B256::from_slice(hash))
        });
        Ok(ids.collect())
    }

    /// Number of keys that have entries.
    pub(crate) const fn keys(&self) -> u64 {
        self.trailer.keys
    }

    /// Number of entries.
    pub(crate) const fn entries(&self) -> u64 {
        self.trailer.entries
    }

    /// Length of the file, in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.trailer.file_bytes().unwrap_or_default()
    }

    /// Memory of its fences and its filter, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let filter = self
            .filter
            .as_ref()
            .map_or(0, |filter| filter.as_bytes().len());
        (self.fences.bytes() + filter) as u64
    }

    /// Whether it may have entries of a key. False means that it has none.
    pub(crate) fn may_have(&self, key: &Key) -> bool {
        let filter = self.filter.as_ref();
        filter.is_none_or(|filter| filter.may_have(key.as_bytes()))
    }

    /// The pages that a look-up of a key reads first: number of the first one, and how many. Entries of
    /// nodes are not repeated at the ends of pages, so theirs are two.
    pub(crate) fn pages_of(&self, key: &Key, from: BlockNumber) -> (u64, usize) {
        let page = self.fences.page_of(key.at(from).as_bytes()) as u64;
        match entry::is_value(key.as_bytes()) {
            true => (page, 1),
            false => (page, (self.trailer.pages - page).min(2) as usize),
        }
    }

    /// Reads a page, unless it was read ahead or is in the cache, and with it the pages that follow,
    /// `count` in all, which are put to those that were read ahead.
    fn read(
        &self,
        number: u64,
        count: usize,
        ahead: &PagesAhead,
        more: &mut PagesAhead,
    ) -> Result<ReadPage, HistoryError> {
        let place = (self.identity(), number);
        let found = more.find(place).or_else(|| ahead.find(place));
        if let Some(page) = found.or_else(|| self.reads.cached(place)) {
            return Ok(page);
        }
        let mut bytes = vec![0; count * PAGE_BYTES];
        self.file.read(&mut bytes, number * PAGE_BYTES as u64)?;
        self.reads.count_batch(1);
        more.add_all(place, &bytes);
        more.find(place).ok_or_else(|| {
            let at = number * PAGE_BYTES as u64;
            self.file.damaged(at, "there is no such page").into()
        })
    }

    /// Checks a page that was read, and hands it to `look`.
    fn with_page<T>(
        &self,
        number: u64,
        page: &ReadPage,
        look: impl FnOnce(Page<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, HistoryError> {
        let opened = match page.is_checked {
            true => Page::of_checked(&page.bytes, &self.trailer),
            false => Page::open(&page.bytes, &self.trailer, number),
        };
        let outcome = opened.and_then(|opened| {
            self.reads.keep((self.identity(), number), page);
            look(opened)
        });
        let at = number * PAGE_BYTES as u64;
        Ok(outcome.map_err(|error| self.file.undecodable(at, &error))?)
    }

    /// The block of a key's first change in block `from` or later, and the value that it had before. Reads at most one
    /// page.
    pub(crate) fn find(
        &self,
        key: &Key,
        from: BlockNumber,
        ahead: &PagesAhead,
    ) -> Result<Option<(BlockNumber, Vec<u8>)>, HistoryError> {
        if !self.may_have(key) {
            return Ok(None);
        }
        let (number, count) = self.pages_of(key, from);
        let page = self.read(number, count, ahead, &mut PagesAhead::default())?;
        self.with_page(number, &page, |page| page.find(&key.at(from)))
    }

    /// Visits what a key had before each of its changes in block `from` or later, until `visit`
    /// breaks.
    pub(crate) fn each(
        &self,
        key: &Key,
        from: BlockNumber,
        ahead: &PagesAhead,
        visit: ValueVisitor<'_>,
    ) -> Result<ControlFlow<()>, HistoryError> {
        if !self.may_have(key) {
            return Ok(ControlFlow::Continue(()));
        }
        let position = key.at(from);
        let (first, _) = self.pages_of(key, from);
        let mut more = PagesAhead::default();
        for number in first..self.trailer.pages {
            let count = (self.trailer.pages - number).min(2) as usize;
            let page = self.read(number, count, ahead, &mut more)?;
            match self.with_page(number, &page, |page| page.each(&position, visit))? {
                EndOfPage::Broken => return Ok(ControlFlow::Break(())),
                EndOfPage::OtherKey => return Ok(ControlFlow::Continue(())),
                EndOfPage::GoesOn => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// As [`RunFile::each`], with the pages that were read ahead or are in the cache, and no others.
    pub(crate) fn each_at_hand(
        &self,
        key: &Key,
        from: BlockNumber,
        ahead: &PagesAhead,
        visit: ValueVisitor<'_>,
    ) -> Result<AtHand, HistoryError> {
        if !self.may_have(key) {
            return Ok(AtHand::Continued);
        }
        let position = key.at(from);
        let (first, mut count) = self.pages_of(key, from);
        for number in first..self.trailer.pages {
            let place = (self.identity(), number);
            let Some(page) = ahead.find(place).or_else(|| self.reads.cached(place)) else {
                return Ok(AtHand::Missing(number, count));
            };
            match self.with_page(number, &page, |page| page.each(&position, visit))? {
                EndOfPage::Broken => return Ok(AtHand::Broken),
                EndOfPage::OtherKey => break,
                EndOfPage::GoesOn => count = (self.trailer.pages - number - 1).min(2) as usize,
            }
        }
        Ok(AtHand::Continued)
    }

    /// Reads all entries from `position` on.
    pub(crate) fn cursor(self: &Arc<Self>, position: &[u8]) -> Result<FileCursor, HistoryError> {
        let mut cursor = FileCursor {
            run: self.clone(),
            pages: Vec::new(),
            next_page: self.fences.page_of(position) as u64,
            entries: Vec::new(),
            starts: Vec::new(),
            at: 0,
        };
        cursor.read_page()?;
        while cursor
            .entry()
            .is_some_and(|entry| entry.position < position)
        {
            cursor.advance()?;
        }
        Ok(cursor)
    }
}

/// How a visit of the pages at hand ended.
pub(crate) enum AtHand {
    /// The visitor broke off.
    Broken,
    /// There are no more entries of the key.
    Continued,
    /// The page of this number is missing. The caller should read this many pages from there on.
    Missing(u64, usize),
}

/// Reads the entries of a run in order.
pub(crate) struct FileCursor {
    run: Arc<RunFile>,
    /// Pages that were read ahead, the last of which comes before `next_page`.
    pages: Vec<u8>,
    next_page: u64,
    /// The entries of one page, packed.
    entries: Vec<u8>,
    starts: Vec<u32>,
    at: usize,
}

impl FileCursor {
    /// The entry that it is at; `None` at the end.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let start = *self.starts.get(self.at)? as usize;
        Some(entry::packed_at(&self.entries, start))
    }

    pub(crate) fn advance(&mut self) -> Result<(), HistoryError> {
        self.at += 1;
        match self.at < self.starts.len() {
            true => Ok(()),
            false => self.read_page(),
        }
    }

    /// Decodes the next page, if there is one.
    fn read_page(&mut self) -> Result<(), HistoryError> {
        let run = self.run.clone();
        self.entries.clear();
        self.starts.clear();
        self.at = 0;
        let page = self.next_page;
        if page == run.trailer.pages {
            return Ok(());
        }
        if self.pages.is_empty() {
            let count = run.cursor_pages.min(run.trailer.pages - page);
            self.pages.resize(count as usize * PAGE_BYTES, 0);
            run.file.read(&mut self.pages, page * PAGE_BYTES as u64)?;
        }
        let bytes = &self.pages[..PAGE_BYTES];
        let decoded = Page::open(bytes, &run.trailer, page).and_then(|mut page| {
            // The copy of the next page's first entry is left to that page.
            let last = u16::from(page.goes_on());
            while page.left() > last
                && let Some(entry) = page.next()?
            {
                entry::check(&entry)?;
                self.starts.push(self.entries.len() as u32);
                entry.pack(&mut self.entries);
            }
            Ok(())
        });
        let at = page * PAGE_BYTES as u64;
        decoded.map_err(|error| run.file.undecodable(at, &error))?;
        self.pages.drain(..PAGE_BYTES);
        self.next_page += 1;
        Ok(())
    }
}

/// Reads every page of a run, and its filter: checksums, the order of entries, and their number.
pub(crate) fn check(run: &Arc<RunFile>) -> Result<(), HistoryError> {
    // The filter may be left out of memory.
    let trailer = &run.trailer;
    let len = trailer.filter_bytes;
    run.section(trailer.filter_at(), len, trailer.filter_sum)?;
    let mut cursor = run.cursor(&[])?;
    let (mut entries, mut last) = (0, Vec::new());
    while let Some(entry) = cursor.entry() {
        let number = entry::number_of(entry.position);
        if entry.position <= &last[..] || !run.blocks().contains(&number) {
            let at = (cursor.next_page - 1) * PAGE_BYTES as u64;
            return Err(run.file.damaged(at, "an entry is out of order").into());
        }
        last.clear();
        last.extend_from_slice(entry.position);
        entries += 1;
        cursor.advance()?;
    }
    match entries == run.entries() {
        true => Ok(()),
        false => {
            let what = "the number of entries is not what the trailer says";
            Err(run.file.damaged(0, what).into())
        }
    }
}

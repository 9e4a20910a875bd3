//! Leaf pages as the engine reads and writes them: bytes become accounts and slots here.

use crate::base::{
    counters::{Counter, Counters},
    error::StateError,
    layout::addr_of,
};
use cambium_primitives::Path;
use cambium_store::{Page, PageAddr, Segments, StoreError};
use cambium_trie::Stub;
use parking_lot::Mutex;
use quick_cache::{Weighter, sync::Cache};
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    thread,
    time::Duration,
};

/// Weighs a page by its bytes and what holding it costs.
#[derive(Clone)]
struct PageWeight;

impl Weighter<PageAddr, Arc<Page>> for PageWeight {
    fn weight(&self, _: &PageAddr, page: &Arc<Page>) -> u64 {
        page.size_bytes() as u64 + 96
    }
}

/// A page, and where it is.
pub type PlacedPage = (PageAddr, Arc<Page>);

/// Pages at hand for paths that come in order.
#[derive(Default)]
pub struct PagesAhead {
    /// In the order of their prefixes, none of which is under another.
    pages: Vec<PlacedPage>,
    /// How many of these have been passed.
    passed: usize,
}

impl PagesAhead {
    /// The page of which the subtrie at `path` is a part. For a path before the last one asked for
    /// there may be none.
    pub fn over(&mut self, path: &Path) -> Option<&PlacedPage> {
        let is_over = |page: &Page| path.starts_with(page.prefix());
        let later = |(_, page): &PlacedPage| is_over(page) || page.prefix() > path;
        let ahead = &self.pages[self.passed..];
        self.passed += ahead.iter().position(later).unwrap_or(ahead.len());
        let page = self.pages.get(self.passed);
        page.filter(|(_, page)| is_over(page))
    }
}

/// What a page is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadFor {
    /// Values of accounts and slots.
    Value,
    /// Updating tries.
    Trie,
    /// A merge.
    Merge,
    /// A proof or a witness.
    Proof,
    /// A check.
    Check,
}

/// Pages on disk and those kept in memory.
pub struct Pages {
    /// The files that pages are in.
    pub segments: Segments,
    cache: Cache<PageAddr, Arc<Page>, PageWeight>,
    /// Counters of the database that the pages are of.
    pub counters: Arc<Counters>,
    unreadable: Mutex<Unreadable>,
}

/// Pages that could not be read.
#[derive(Default)]
struct Unreadable {
    /// No more than [`UNREADABLE_MAX`].
    pages: BTreeSet<PageAddr>,
    segments: HashSet<u32>,
}

/// So many pages that can't be read are remembered: where there are more, a whole file is lost.
const UNREADABLE_MAX: usize = 1 << 16;
/// How long a merge, or what must not fail half-way, waits before it tries once more to read what
/// could not be read.
pub const RETRY_AFTER: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
];

/// Does what reads and changes nothing until it has read all, again if the disk fails in a way that
/// may pass.
pub fn retried<T>(mut work: impl FnMut() -> Result<T, StateError>) -> Result<T, StateError> {
    for pause in RETRY_AFTER {
        match work() {
            Err(error) if error.may_pass() => thread::sleep(pause),
            done => return done,
        }
    }
    work()
}

impl Pages {
    /// Pages in `segments`, with a cache of `cache_bytes`.
    pub fn new(segments: Segments, cache_bytes: u64, counters: Arc<Counters>) -> Self {
        let entries = (cache_bytes / 1024).max(16) as usize;
        let cache = Cache::with_weighter(entries, cache_bytes, PageWeight);
        Self {
            segments,
            cache,
            counters,
            unreadable: Mutex::default(),
        }
    }

    /// How many pages could not be read, and are still there.
    pub fn unreadable(&self) -> usize {
        self.unreadable.lock().pages.len()
    }

    /// The segments that have such pages.
    pub fn unreadable_segments(&self) -> HashSet<u32> {
        self.unreadable.lock().segments.clone()
    }

    fn note_unreadable(&self, addr: PageAddr) {
        let mut unreadable = self.unreadable.lock();
        unreadable.segments.insert(addr.segment());
        if unreadable.pages.len() < UNREADABLE_MAX {
            unreadable.pages.insert(addr);
        }
    }

    /// Forgets all pages of segments that are gone: their numbers are used again.
    pub fn forget_segments(&self, segments: &[u32]) {
        if segments.is_empty() {
            return;
        }
        let is_there = |addr: &PageAddr| !segments.contains(&addr.segment());
        self.cache.retain(|addr, _| is_there(addr));
        let mut unreadable = self.unreadable.lock();
        unreadable.pages.retain(is_there);
        unreadable
            .segments
            .retain(|segment| !segments.contains(segment));
    }

    /// What came of reading the page at `addr`. A merge tries again what may pass: it is not to
    /// fail for an error that others would only have to report.
    fn outcome(
        &self,
        read: Result<Page, StoreError>,
        addr: PageAddr,
        why: ReadFor,
    ) -> Result<Page, StoreError> {
        let mut read = read;
        if why == ReadFor::Merge {
            for pause in RETRY_AFTER {
                if read.is_ok() {
                    break;
                }
                thread::sleep(pause);
                read = self.segments.read(addr);
            }
        }
        if let Err(error) = &read
            && (why == ReadFor::Merge || error.is_corruption())
        {
            self.note_unreadable(addr);
        }
        read
    }

    /// Reads spans of pages to be moved. Those that can't be read stay where they are.
    pub fn read_to_move(&self, spans: &[&[PageAddr]]) -> Vec<Option<Page>> {
        let addrs = spans.iter().copied().flatten();
        let read = self.segments.read_spans(spans).into_iter();
        read.zip(addrs)
            .map(|(page, addr)| {
                let page = self.outcome(page, *addr, ReadFor::Merge).ok()?;
                self.counters.page_reads_merge.add(1);
                self.counters.page_bytes_read.add(page.size_bytes() as u64);
                Some(page)
            })
            .collect()
    }

    /// The page behind a stub at `prefix`, from the cache or with one device read.
    pub fn read(&self, stub: &Stub, prefix: &Path, why: ReadFor) -> Result<Arc<Page>, StateError> {
        if let Some(page) = self.cached(stub, prefix)? {
            return Ok(page);
        }
        let page = Arc::new(self.read_uncached(stub, prefix, why)?);
        self.cache.insert(addr_of(stub, prefix)?, page.clone());
        Ok(page)
    }

    /// The page behind a stub at `prefix`, if it is in the cache.
    pub fn cached(&self, stub: &Stub, prefix: &Path) -> Result<Option<Arc<Page>>, StateError> {
        let page = self.cache.get(&addr_of(stub, prefix)?);
        let counter = match &page {
            Some(_) => &self.counters.page_cache_hits,
            None => &self.counters.page_cache_misses,
        };
        counter.add(1);
        Ok(page)
    }

    /// The pages behind stubs at their prefixes, none of which is in the cache: all in flight at
    /// once. They are in the cache then, unless they are read for tries, which hold what they have
    /// taken apart, for a merge, which replaces it, or for a check, which reads everything.
    pub fn read_batch(
        &self,
        stubs: &[(&Stub, Path)],
        why: ReadFor,
    ) -> Vec<Result<Arc<Page>, StateError>> {
        if stubs.is_empty() {
            return Vec::new();
        }
        let addrs: Result<Vec<_>, _> = stubs
            .iter()
            .map(|(stub, prefix)| addr_of(stub, prefix))
            .collect();
        let addrs = match addrs {
            Ok(addrs) => addrs,
            Err(error) => return vec![Err(error)],
        };
        let pages = self.segments.read_batch(&addrs);
        let each = pages.into_iter().zip(stubs).zip(&addrs);
        each.map(|((page, (_, prefix)), addr)| {
            let page = self.outcome(page, *addr, why)?;
            let page = Arc::new(self.checked(page, *addr, prefix, why)?);
            if !matches!(why, ReadFor::Trie | ReadFor::Merge | ReadFor::Check) {
                self.cache.insert(*addr, page.clone());
            }
            Ok(page)
        })
        .collect()
    }

    /// Pages behind stubs at their prefixes, in the order of these: those found already, and all
    /// others read at once.
    pub fn ahead(
        &self,
        found: Vec<(Stub, Path, Option<Arc<Page>>)>,
        why: ReadFor,
    ) -> Result<PagesAhead, StateError> {
        let missing = found.iter().filter(|(.., page)| page.is_none());
        let missing: Vec<_> = missing.map(|(stub, path, _)| (stub, *path)).collect();
        let mut read = self.read_batch(&missing, why).into_iter();
        let placed = found.iter().filter_map(|(stub, path, page)| {
            let page = match page {
                Some(page) => Ok(page.clone()),
                None => read.next()?,
            };
            Some(page.and_then(|page| Ok((addr_of(stub, path)?, page))))
        });
        let pages = placed.collect::<Result<_, _>>()?;
        Ok(PagesAhead { pages, passed: 0 })
    }

    /// The page behind a stub at `prefix`, from the disk.
    pub fn read_uncached(
        &self,
        stub: &Stub,
        prefix: &Path,
        why: ReadFor,
    ) -> Result<Page, StateError> {
        let addr = addr_of(stub, prefix)?;
        let page = self.outcome(self.segments.read(addr), addr, why)?;
        self.checked(page, addr, prefix, why)
    }

    /// Counts a page that was read, and refuses one that belongs elsewhere.
    fn checked(
        &self,
        page: Page,
        addr: PageAddr,
        prefix: &Path,
        why: ReadFor,
    ) -> Result<Page, StateError> {
        let counter: &Counter = match why {
            ReadFor::Value => &self.counters.page_reads_value,
            ReadFor::Trie => &self.counters.page_reads_trie,
            ReadFor::Merge => &self.counters.page_reads_merge,
            ReadFor::Proof => &self.counters.page_reads_proof,
            ReadFor::Check => &self.counters.page_reads_check,
        };
        counter.add(1);
        self.counters.page_bytes_read.add(page.size_bytes() as u64);
        let found = *page.prefix();
        if found != *prefix {
            return Err(StateError::WrongPage {
                place: addr.to_u64(),
                found: Box::new(found),
                expected: Box::new(*prefix),
            });
        }
        Ok(page)
    }

    /// Puts the page at `addr` into the cache, which has replaced the one at `before`: what has
    /// been changed is likely to be read.
    pub fn replace(&self, before: PageAddr, addr: PageAddr, page: Page) {
        self.cache.remove(&before);
        self.cache.insert(addr, Arc::new(page));
    }

    /// If the page at `before` is in the cache, what is at `addr` from now on takes its place.
    pub fn move_cached(&self, before: PageAddr, addr: PageAddr, page: Page) {
        if self.cache.remove(&before).is_some() {
            self.cache.insert(addr, Arc::new(page));
        }
    }

    /// Takes a page out of the cache that nothing current refers to any more.
    pub fn forget(&self, addr: PageAddr) {
        self.cache.remove(&addr);
    }

    /// Limits the memory of cached pages.
    pub fn set_cache_bytes(&self, bytes: u64) {
        if self.cache.capacity() != bytes {
            self.cache.set_capacity(bytes);
        }
    }

    /// Bytes of pages held in memory.
    pub fn cached_bytes(&self) -> u64 {
        self.cache.weight()
    }
}

//! Leaf pages: reads through the page cache, singly and in batches, and bookkeeping of the pages
//! that can't be read.

use crate::{
    base::{
        counters::{Counter, Counters},
        error::StateError,
        layout::addr_of_stub,
    },
    resident::{Peeked, ResidentPages},
};
use cambium_primitives::Path;
use cambium_store::{Page, PageAddr, Segments, StoreError};
use cambium_trie::{PartialTrie, Stub};
use parking_lot::Mutex;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter, sync::Cache};
use rustc_hash::FxBuildHasher;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Share of the page cache for pages that were used more than once.
const HOT_FRACTION: f64 = 0.75;

/// Memory that a cached page takes besides its own, in bytes: two allocations, and its entries in the tables of the cache.
const CACHE_BYTES_PER_PAGE: u64 = 160;

/// Bytes of pages after which the cache is asked again how much room it has: each time takes the locks of all of its parts.
const ROOM_BYTES: i64 = 1 << 20;

/// Weighs a page by its size plus the overhead of the cache, in bytes.
#[derive(Clone)]
struct PageWeight;

impl Weighter<PageAddr, Arc<Page>> for PageWeight {
    fn weight(&self, _: &PageAddr, page: &Arc<Page>) -> u64 {
        page.size_bytes() as u64 + CACHE_BYTES_PER_PAGE
    }
}

/// Notes the pages that the cache evicts while others hold them.
#[derive(Clone)]
struct NoteEvicted(Arc<ResidentPages>);

impl Lifecycle<PageAddr, Arc<Page>> for NoteEvicted {
    /// The first two pages, to be dropped without the lock of the cache.
    type RequestState = [Option<Arc<Page>>; 2];

    fn on_evict(&self, state: &mut Self::RequestState, addr: PageAddr, page: Arc<Page>) {
        self.0.add_if_held(addr, &page);
        if let Some(free) = state.iter_mut().find(|free| free.is_none()) {
            *free = Some(page);
        }
    }
}

/// A page that a merge moves.
pub(crate) enum MovedPage {
    Cached(Arc<Page>),
    Read(Page),
}

impl MovedPage {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Cached(page) => page.as_bytes(),
            Self::Read(page) => page.as_bytes(),
        }
    }
}

/// A page with its address.
pub type PlacedPage = (PageAddr, Arc<Page>);

/// Pages in memory, for look-ups by paths in ascending order.
#[derive(Default)]
pub struct PrefetchedPages {
    /// Sorted by prefix. No prefix starts with another.
    pages: Vec<PlacedPage>,
    /// Index of the first page that later look-ups may need.
    passed: usize,
}

impl PrefetchedPages {
    /// Returns the page that contains the subtrie at `path`, if there is one. Paths must come in
    /// ascending order: for an earlier path, the page may already have been passed.
    pub fn over(&mut self, path: &Path) -> Option<&PlacedPage> {
        let is_over = |page: &Page| path.starts_with(&page.prefix());
        let later = |(_, page): &PlacedPage| is_over(page) || page.prefix() > *path;
        let ahead = &self.pages[self.passed..];
        self.passed += ahead.iter().position(later).unwrap_or(ahead.len());
        let page = self.pages.get(self.passed);
        page.filter(|(_, page)| is_over(page))
    }
}

/// Cause of a page read. It selects the counter, whether a failed read is tried again, and whether
/// [`Pages::read_batch`] caches the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadCause {
    /// A read of an account or a slot.
    Value,
    /// A read ahead of execution.
    Ahead,
    /// An update of a trie.
    Trie,
    /// A merge.
    Merge,
    /// A proof or a witness.
    Proof,
    /// A check of the snapshot.
    Check,
}

/// The leaf pages on disk, and a cache of them.
pub struct Pages {
    /// The files that contain the pages.
    pub segments: Segments,
    cache: Cache<PageAddr, Arc<Page>, PageWeight, DefaultHashBuilder, NoteEvicted>,
    /// The pages in memory that are not in the cache.
    resident: Arc<ResidentPages>,
    /// Bytes that were free in the cache when it was last asked, at most [`ROOM_BYTES`], or -1 if none were, less those of the pages
    /// since.
    room: AtomicI64,
    /// Memory of the pages that pins hold, in bytes.
    pinned_bytes: AtomicU64,
    /// The most that pins have held since the memory budget was divided, in bytes.
    pinned_bytes_peak: AtomicU64,
    /// Counters of the database.
    pub counters: Arc<Counters>,
    unreadable: Mutex<Unreadable>,
}

/// Pages that could not be read.
#[derive(Default)]
struct Unreadable {
    /// At most [`UNREADABLE_MAX`] addresses.
    pages: BTreeSet<PageAddr>,
    /// Numbers of all segments that contain an unreadable page.
    segments: HashSet<u32>,
}

/// Maximum number of unreadable pages that are remembered. If there are more, a whole file is lost.
const UNREADABLE_MAX: usize = 1 << 16;
/// Pauses before the second, third and fourth attempt of a read that may fail temporarily.
pub const RETRY_PAUSES: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
];

/// Runs `work`, and runs it again, up to three times, after each error that may be transient
/// ([`StateError::is_transient`]). `work` must not change anything before its reads have succeeded.
///
/// # Errors
///
/// The error of the last attempt.
pub fn retry_transient<T>(
    mut work: impl FnMut() -> Result<T, StateError>,
) -> Result<T, StateError> {
    for pause in RETRY_PAUSES {
        match work() {
            Err(error) if error.is_transient() => thread::sleep(pause),
            done => return done,
        }
    }
    work()
}

impl Pages {
    /// Creates the reader of the pages in `segments`, with a cache of `cache_bytes` bytes.
    pub fn new(segments: Segments, cache_bytes: u64, counters: Arc<Counters>) -> Self {
        // Pages of four accounts weigh less than 400 bytes. A table that grows later holds twice its memory meanwhile.
        let entries = (cache_bytes / 384).max(16) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries)
            .weight_capacity(cache_bytes)
            .hot_allocation(HOT_FRACTION)
            .build()
            .expect("all required options are set");
        let resident = Arc::new(ResidentPages::default());
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), NoteEvicted(resident.clone()));
        let cache = Cache::with_options(options, PageWeight, hasher, lifecycle);
        Self {
            segments,
            cache,
            resident,
            room: AtomicI64::new(i64::MIN / 2),
            pinned_bytes: AtomicU64::new(0),
            pinned_bytes_peak: AtomicU64::new(0),
            counters,
            unreadable: Mutex::default(),
        }
    }

    /// Number of pages that could not be read, in segments that still exist.
    pub fn unreadable(&self) -> usize {
        self.unreadable.lock().pages.len()
    }

    /// Numbers of the segments that contain pages which could not be read.
    pub fn unreadable_segments(&self) -> HashSet<u32> {
        self.unreadable.lock().segments.clone()
    }

    pub(crate) fn note_unreadable(&self, addr: PageAddr) {
        let mut unreadable = self.unreadable.lock();
        unreadable.segments.insert(addr.segment());
        if unreadable.pages.len() < UNREADABLE_MAX {
            unreadable.pages.insert(addr);
        }
    }

    /// Drops all pages of the removed segments from the cache: their numbers are used again.
    pub fn forget_segments(&self, segments: &[u32]) {
        if segments.is_empty() {
            return;
        }
        let is_there = |addr: &PageAddr| !segments.contains(&addr.segment());
        self.cache.retain(|addr, _| is_there(addr));
        self.resident.retain(is_there);
        let mut unreadable = self.unreadable.lock();
        unreadable.pages.retain(is_there);
        unreadable
            .segments
            .retain(|segment| !segments.contains(segment));
    }

    /// Tries a failed read of the page at `addr` again if it is for a merge: a failed merge would
    /// stop the engine, while other readers only report the error. Records the page as unreadable
    /// if it is damaged, or if a merge can't read it.
    fn retry_for_merge(
        &self,
        read: Result<Page, StoreError>,
        addr: PageAddr,
        why: ReadCause,
    ) -> Result<Page, StoreError> {
        let mut read = read;
        if why == ReadCause::Merge {
            for pause in RETRY_PAUSES {
                if read.is_ok() {
                    break;
                }
                thread::sleep(pause);
                read = self.segments.read(addr);
            }
        }
        if let Err(error) = &read
            && (why == ReadCause::Merge || error.is_corruption())
        {
            self.note_unreadable(addr);
        }
        read
    }

    /// Returns pages that a merge moves, from the cache or the device. Pages that follow each other there take one read. Returns
    /// one element for each address, in order: `None` for a page that can't be read.
    pub(crate) fn to_move(&self, addrs: &[PageAddr]) -> Vec<Option<MovedPage>> {
        let mut pages: Vec<_> = addrs
            .iter()
            .map(|addr| self.cache.peek(addr).map(MovedPage::Cached))
            .collect();
        let missing = |(_, page): &(&PageAddr, &mut Option<MovedPage>)| page.is_none();
        let (wanted, places): (Vec<_>, Vec<_>) =
            addrs.iter().zip(&mut pages).filter(missing).unzip();
        let wanted: Vec<_> = wanted.into_iter().copied().collect();
        let read = self.segments.read_batch(&wanted).into_iter();
        for ((page, addr), place) in read.zip(wanted).zip(places) {
            if let Ok(page) = self.retry_for_merge(page, addr, ReadCause::Merge) {
                self.counters.page_reads_merge.add(1);
                self.counters.page_bytes_read.add(page.size_bytes() as u64);
                *place = Some(MovedPage::Read(page));
            }
        }
        pages
    }

    /// Returns the page of the blinded node `stub` at `prefix`, from the cache or with one device
    /// read. The page is cached.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the page can't be read, [`StateError::WrongPage`] if it is of
    /// another subtrie, and [`StateError::Broken`] if the stub has no place.
    pub fn read(
        &self,
        stub: &Stub,
        prefix: &Path,
        why: ReadCause,
    ) -> Result<Arc<Page>, StateError> {
        if let Some(page) = self.cached(stub, prefix)? {
            return Ok(page);
        }
        let start = Instant::now();
        let page = Arc::new(self.read_uncached(stub, prefix, why)?);
        if why == ReadCause::Value {
            self.count_wait(start.elapsed());
        }
        self.insert(addr_of_stub(stub, prefix)?, &page);
        Ok(page)
    }

    /// Returns the page of the blinded node `stub` at `prefix`, if it is in memory: in the cache,
    /// pinned, or held by tries of new blocks. Waits for it if it is being read ahead.
    ///
    /// # Errors
    ///
    /// [`StateError::Broken`] if the stub has no place.
    pub fn cached(&self, stub: &Stub, prefix: &Path) -> Result<Option<Arc<Page>>, StateError> {
        let addr = addr_of_stub(stub, prefix)?;
        let page = self.cache.get(&addr).or_else(|| self.use_resident(addr));
        let counter = match &page {
            Some(_) => &self.counters.page_cache_hits,
            None => &self.counters.page_cache_misses,
        };
        counter.add(1);
        Ok(page)
    }

    /// Caches a page that was read for use.
    fn insert(&self, addr: PageAddr, page: &Arc<Page>) {
        self.cache.insert(addr, page.clone());
        match self.cache.contains_key(&addr) {
            true => self.resident.supersede(addr),
            // It is too large for the cache.
            false => self.resident.add(addr, page),
        }
    }

    /// Whether a page is in memory. It is not used by that, and nothing is counted.
    pub(crate) fn has(&self, addr: PageAddr) -> bool {
        self.cache.contains_key(&addr) || self.resident.has(addr)
    }

    /// Returns a page that is in memory, but not in the cache.
    fn use_resident(&self, addr: PageAddr) -> Option<Arc<Page>> {
        let found = self.resident.get(addr)?;
        if let Some(waited) = found.waited {
            self.count_wait(waited);
        }
        if found.is_first_use {
            self.counters.pages_ahead_used.add(1);
            self.insert(addr, &found.page);
        }
        Some(found.page)
    }

    fn count_wait(&self, waited: Duration) {
        self.counters.page_waits.add(1);
        self.counters.page_wait_ns.add(waited.as_nanos() as u64);
    }

    /// Looks for a page in order to read it ahead, without waiting for it. If it is absent, it
    /// counts as being read until [`Pages::end_ahead`], for which other readers wait.
    pub(crate) fn peek(&self, addr: PageAddr) -> Peeked {
        match self.cache.peek(&addr) {
            Some(page) => Peeked::There(page),
            None => self.resident.peek(addr),
        }
    }

    /// Ends the read ahead of the page at `addr`, of the subtrie at `prefix`, and returns the page.
    ///
    /// # Errors
    ///
    /// As [`Pages::read`].
    pub(crate) fn end_ahead(
        &self,
        addr: PageAddr,
        prefix: &Path,
        read: Result<Page, StoreError>,
    ) -> Result<Arc<Page>, StateError> {
        let page = self
            .retry_for_merge(read, addr, ReadCause::Ahead)
            .map_err(StateError::from)
            .and_then(|page| self.verified(page, addr, prefix, ReadCause::Ahead))
            .map(Arc::new);
        self.resident.end_reading(addr, page.as_ref().ok());
        page
    }

    /// Gives up the read ahead of the page at `addr`: other readers wait for it no longer.
    pub(crate) fn give_up_ahead(&self, addr: PageAddr) {
        self.resident.end_reading(addr, None);
    }

    /// Whether the page at `addr` is being read ahead.
    pub(crate) fn is_being_read(&self, addr: PageAddr) -> bool {
        self.resident.is_being_read(addr)
    }

    /// Returns the page at `addr` if it is in memory, which does not count as its use.
    pub(crate) fn find(&self, addr: PageAddr) -> Option<Arc<Page>> {
        let cached = self.cache.peek(&addr);
        cached.or_else(|| self.resident.find(addr))
    }

    /// Memory of the pages that pins hold, in bytes. A page that several pins hold counts for each.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// The most that pins have held since the last call, in bytes.
    pub fn take_pinned_bytes_peak(&self) -> u64 {
        let now = self.pinned_bytes();
        self.pinned_bytes_peak.swap(now, Ordering::Relaxed).max(now)
    }

    fn add_pinned_bytes(&self, bytes: u64) {
        let before = self.pinned_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.pinned_bytes_peak
            .fetch_max(before + bytes, Ordering::Relaxed);
    }

    /// Reads the pages of blinded nodes at their prefixes, all in flight at once and past the
    /// cache. Returns a result for each, in order; or a single error if one of the stubs has no
    /// place.
    ///
    /// The pages are cached, unless they are read for a merge (which replaces them) or for a check (which
    /// reads everything once). Those for tries, which hold them, are cached if there is room: if the
    /// tries are dropped without a merge, they are needed again.
    pub fn read_batch(
        &self,
        stubs: &[(&Stub, Path)],
        why: ReadCause,
    ) -> Vec<Result<Arc<Page>, StateError>> {
        if stubs.is_empty() {
            return Vec::new();
        }
        let addrs: Result<Vec<_>, _> = stubs
            .iter()
            .map(|(stub, prefix)| addr_of_stub(stub, prefix))
            .collect();
        let addrs = match addrs {
            Ok(addrs) => addrs,
            Err(error) => return vec![Err(error)],
        };
        let pages = self.segments.read_batch(&addrs);
        let each = pages.into_iter().zip(stubs).zip(&addrs);
        each.map(|((page, (_, prefix)), addr)| {
            let page = self.retry_for_merge(page, *addr, why)?;
            let page = Arc::new(self.verified(page, *addr, prefix, why)?);
            match why {
                ReadCause::Merge | ReadCause::Check => {}
                ReadCause::Trie if !self.has_room(&page) => self.resident.add(*addr, &page),
                _ => self.insert(*addr, &page),
            }
            Ok(page)
        })
        .collect()
    }

    /// Collects pages for look-ups in path order. `found` must be sorted by prefix; its elements
    /// that have no page yet are read in one batch.
    ///
    /// # Errors
    ///
    /// Those of [`Pages::read`].
    pub fn prefetch(
        &self,
        found: Vec<(Stub, Path, Option<Arc<Page>>)>,
        why: ReadCause,
    ) -> Result<PrefetchedPages, StateError> {
        let missing = found.iter().filter(|(.., page)| page.is_none());
        let missing: Vec<_> = missing.map(|(stub, path, _)| (stub, *path)).collect();
        let mut read = self.read_batch(&missing, why).into_iter();
        let placed = found.iter().filter_map(|(stub, path, page)| {
            let page = match page {
                Some(page) => Ok(page.clone()),
                None => read.next()?,
            };
            Some(page.and_then(|page| Ok((addr_of_stub(stub, path)?, page))))
        });
        let pages = placed.collect::<Result<_, _>>()?;
        Ok(PrefetchedPages { pages, passed: 0 })
    }

    /// Reads the page of the blinded node `stub` at `prefix` from disk, past the cache.
    ///
    /// # Errors
    ///
    /// Those of [`Pages::read`].
    pub fn read_uncached(
        &self,
        stub: &Stub,
        prefix: &Path,
        why: ReadCause,
    ) -> Result<Page, StateError> {
        let addr = addr_of_stub(stub, prefix)?;
        let page = self.retry_for_merge(self.segments.read(addr), addr, why)?;
        self.verified(page, addr, prefix, why)
    }

    /// Counts a page that was read, and rejects it unless its prefix is `prefix`.
    fn verified(
        &self,
        page: Page,
        addr: PageAddr,
        prefix: &Path,
        why: ReadCause,
    ) -> Result<Page, StateError> {
        let counter: &Counter = match why {
            ReadCause::Value => &self.counters.page_reads_value,
            ReadCause::Ahead => &self.counters.page_reads_ahead,
            ReadCause::Trie => &self.counters.page_reads_trie,
            ReadCause::Merge => &self.counters.page_reads_merge,
            ReadCause::Proof => &self.counters.page_reads_proof,
            ReadCause::Check => &self.counters.page_reads_check,
        };
        counter.add(1);
        self.counters.page_bytes_read.add(page.size_bytes() as u64);
        let found = page.prefix();
        if found != *prefix {
            return Err(StateError::WrongPage {
                place: addr.to_u64(),
                found: Box::new(found),
                expected: Box::new(*prefix),
            });
        }
        Ok(page)
    }

    /// Caches the page at `addr`, which replaces the one at `before`, if that one is cached or the
    /// cache has room: a merge changes more pages than are worth evicting others for. The old page
    /// stays until [`Pages::forget`]: blocks read it until the merge has ended.
    pub fn replace(&self, before: PageAddr, addr: PageAddr, page: Page) {
        if self.has_room(&page) || self.cache.contains_key(&before) {
            self.cache.insert(addr, Arc::new(page));
        }
    }

    /// Whether a page can be cached without evicting others. The cache is asked once for each [`ROOM_BYTES`] of pages: others
    /// that are cached meanwhile may take the room, and room that is freed is noticed as late.
    fn has_room(&self, page: &Page) -> bool {
        let bytes = (page.size_bytes() as u64 + CACHE_BYTES_PER_PAGE) as i64;
        let before = self.room.fetch_sub(bytes, Ordering::Relaxed);
        if before >= bytes {
            return true;
        }
        // It was full when it was asked.
        if before < 0 && before - bytes >= -ROOM_BYTES {
            return false;
        }
        let room = self.cache.capacity() as i64 - self.cache.weight() as i64;
        let known = match room > bytes {
            true => (room - bytes).min(ROOM_BYTES),
            false => -1,
        };
        self.room.store(known, Ordering::Relaxed);
        room > bytes
    }

    /// Caches a page that was moved to `addr`, if it came from the cache, where it stays at its old address as well, as
    /// [`Pages::replace`] leaves it.
    pub(crate) fn move_cached(&self, page: MovedPage, addr: PageAddr) {
        if let MovedPage::Cached(page) = page {
            self.cache.insert(addr, page);
        }
    }

    /// Removes a page from the cache that the newest snapshot no longer names.
    pub fn forget(&self, addr: PageAddr) {
        if let Some((_, page)) = self.cache.remove(&addr) {
            self.resident.add_if_held(addr, &page);
        }
    }

    /// Sets the memory limit of the page cache, in bytes.
    pub fn set_cache_bytes(&self, bytes: u64) {
        if self.cache.capacity() != bytes {
            self.cache.set_capacity(bytes);
        }
    }

    /// Memory of the cached pages, in bytes.
    pub fn cached_bytes(&self) -> u64 {
        self.cache.weight()
    }
}

/// Pages that a block needs, kept in memory until the block has its root: those read ahead for it,
/// and those that its execution has read.
pub struct PagePin {
    pages: Arc<Pages>,
    pinned: Mutex<Pinned>,
    /// Memory of all pins from which on this one takes no more pages, in bytes.
    bytes_max: u64,
}

#[derive(Default)]
struct Pinned {
    pages: HashMap<PageAddr, Arc<Page>, FxBuildHasher>,
    /// Those read ahead for this pin.
    ahead: Vec<PageAddr>,
    /// Parts of the index above the pages, if it is on disk.
    parts: HashSet<HeldPart>,
    bytes: u64,
}

/// A part of the index, which is the same only as itself.
struct HeldPart(Arc<PartialTrie>);

impl PartialEq for HeldPart {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HeldPart {}

impl Hash for HeldPart {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl PagePin {
    /// A pin that holds no pages yet. While all pins together have `bytes_max` bytes or more, it
    /// takes no more: a block may read any number of pages.
    pub fn new(pages: Arc<Pages>, bytes_max: u64) -> Self {
        Self {
            pages,
            pinned: Mutex::default(),
            bytes_max,
        }
    }

    /// Memory of its pages, in bytes.
    pub fn bytes(&self) -> u64 {
        self.pinned.lock().bytes
    }

    /// Keeps a page, if there is room for it.
    pub(crate) fn keep(&self, addr: PageAddr, page: &Arc<Page>) {
        if self.pages.pinned_bytes() < self.bytes_max {
            self.keep_as(addr, page, false);
        }
    }

    /// Keeps a page that was read ahead for this pin, if there is room for it.
    pub(crate) fn keep_ahead(&self, addr: PageAddr, page: &Arc<Page>) {
        match self.pages.pinned_bytes() < self.bytes_max {
            true => self.keep_as(addr, page, true),
            // Unless a reader waits for it, it leaves memory at once.
            false => self.pages.counters.pages_ahead_wasted.add(1),
        }
    }

    /// Keeps a part of the index, if there is room for it.
    pub(crate) fn keep_part(&self, part: &Arc<PartialTrie>) {
        if self.pages.pinned_bytes() >= self.bytes_max {
            return;
        }
        let mut pinned = self.pinned.lock();
        if pinned.parts.insert(HeldPart(part.clone())) {
            let bytes = part.memory_bytes() as u64;
            pinned.bytes += bytes;
            self.pages.add_pinned_bytes(bytes);
        }
    }

    fn keep_as(&self, addr: PageAddr, page: &Arc<Page>, ahead: bool) {
        let mut pinned = self.pinned.lock();
        if pinned.pages.insert(addr, page.clone()).is_none() {
            let bytes = page.size_bytes() as u64;
            pinned.bytes += bytes;
            self.pages.add_pinned_bytes(bytes);
        }
        if ahead {
            pinned.ahead.push(addr);
        }
    }
}

impl Drop for PagePin {
    fn drop(&mut self) {
        let pinned = std::mem::take(self.pinned.get_mut());
        let counters = &self.pages.counters;
        let bytes = pinned.bytes;
        self.pages.pinned_bytes.fetch_sub(bytes, Ordering::Relaxed);
        for addr in pinned.ahead {
            // Another pin may still wait for its use.
            let is_last = pinned
                .pages
                .get(&addr)
                .is_some_and(|page| Arc::strong_count(page) == 1);
            if is_last && self.pages.resident.is_unused(addr) {
                counters.pages_ahead_wasted.add(1);
            }
        }
    }
}

impl fmt::Debug for PagePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        f.debug_struct("PagePin").field("bytes", &bytes).finish()
    }
}

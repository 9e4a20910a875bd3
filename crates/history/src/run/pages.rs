//! Pages that were read: those that many look-ups need are kept in a cache.

use cambium_disk::Disk;
use cambium_runs::PAGE_BYTES;
use quick_cache::{Weighter, sync::Cache};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A place in a run, by which a page is found: the run's identity, and the page's number.
pub(crate) type Place = (u64, u64);

/// A page that was read.
#[derive(Clone)]
pub(crate) struct ReadPage {
    pub(crate) bytes: Arc<[u8]>,
    /// Whether its checksum was found right.
    pub(crate) is_checked: bool,
}

/// Pages for which the cache gets room when it is made, at most; it grows.
const PAGES_EXPECTED_MAX: u64 = 1 << 20;
/// Memory for one page of the cache beside its bytes.
const OVERHEAD_BYTES: u64 = 96;

#[derive(Clone)]
struct PageWeight;

impl Weighter<Place, Arc<[u8]>> for PageWeight {
    fn weight(&self, _: &Place, bytes: &Arc<[u8]>) -> u64 {
        bytes.len() as u64 + OVERHEAD_BYTES
    }
}

/// Shared by all runs of a history for reading: the disk, a cache of pages, and counters.
pub(crate) struct PageReads {
    pub(crate) disk: Arc<dyn Disk>,
    cache: Cache<Place, Arc<[u8]>, PageWeight>,
    reads: AtomicU64,
    waits: AtomicU64,
    index_bytes: AtomicU64,
}

impl PageReads {
    /// The cache takes at most `cache_bytes` bytes.
    pub(crate) fn new(disk: Arc<dyn Disk>, cache_bytes: u64) -> Self {
        let pages = (cache_bytes / PAGE_BYTES as u64).min(PAGES_EXPECTED_MAX) as usize;
        Self {
            disk,
            cache: Cache::with_weighter(pages, cache_bytes, PageWeight),
            reads: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            index_bytes: AtomicU64::new(0),
        }
    }

    /// A page of the cache.
    pub(crate) fn cached(&self, place: Place) -> Option<ReadPage> {
        let bytes = self.cache.get(&place)?;
        Some(ReadPage {
            bytes,
            is_checked: true,
        })
    }

    /// Keeps a page whose checksum is right.
    pub(crate) fn keep(&self, place: Place, page: &ReadPage) {
        if !page.is_checked {
            self.cache.insert(place, page.bytes.clone());
        }
    }

    /// Counts device reads that were made at once.
    pub(crate) fn count_batch(&self, reads: usize) {
        self.reads.fetch_add(reads as u64, Ordering::Relaxed);
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Device reads for single keys.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Number of times that a thread waited for them, once for those of a batch.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Counts memory of fences and filters, in bytes.
    pub(crate) fn add_index_bytes(&self, bytes: u64) {
        self.index_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts fences and filters that are gone.
    pub(crate) fn take_index_bytes(&self, bytes: u64) {
        self.index_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Memory of fences and filters, in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index_bytes.load(Ordering::Relaxed)
    }

    /// Memory of the cache, in bytes.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.weight()
    }
}

/// Pages that were read before they are needed.
#[derive(Default)]
pub(crate) struct PagesAhead {
    pages: BTreeMap<Place, ReadPage>,
}

impl PagesAhead {
    /// No pages.
    pub(crate) const NONE: Self = Self {
        pages: BTreeMap::new(),
    };

    pub(crate) fn add(&mut self, place: Place, page: ReadPage) {
        self.pages.insert(place, page);
    }

    /// Adds pages that follow each other, from their bytes.
    pub(crate) fn add_all(&mut self, (identity, first): Place, bytes: &[u8]) {
        for (number, bytes) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            let page = ReadPage {
                bytes: bytes.into(),
                is_checked: false,
            };
            self.add((identity, number), page);
        }
    }

    pub(crate) fn find(&self, place: Place) -> Option<ReadPage> {
        self.pages.get(&place).cloned()
    }

    /// Adds the pages of another batch.
    pub(crate) fn append(&mut self, mut more: Self) {
        self.pages.append(&mut more.pages);
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }
}

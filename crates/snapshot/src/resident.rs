//! Which pages are in memory besides those in the cache, held by any pin or trie, and which are being read ahead.
//!
//! Pages are shared: the cache, a pin, and the tries of new blocks may hold the same one. The table here holds none of
//! them. It finds a page that the cache has no longer, or never had, by its address while any other holds it, so that no page
//! is read twice while it is in memory.

use cambium_store::{Page, PageAddr};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// Number of maps, each with a lock of its own, so that threads rarely contend.
const SHARDS: usize = 64;
/// Entries of a shard below which dropped pages are not searched for.
const SWEEP_MIN: usize = 64;
/// Longest wait for a page that is being read ahead. After it the caller reads the page itself.
const ARRIVAL_MAX: Duration = Duration::from_secs(1);

/// The table of pages in memory that are not in the cache.
pub(crate) struct ResidentPages(Box<[Shard]>);

#[derive(Default)]
struct Shard {
    entries: Mutex<Entries>,
    /// Signalled when a page that was being read has arrived, or will not.
    arrived: Condvar,
}

#[derive(Default)]
struct Entries {
    pages: HashMap<PageAddr, Resident, FxBuildHasher>,
    /// Number of entries at which those of dropped pages are removed.
    sweep_at: usize,
}

enum Resident {
    /// A read ahead is under way.
    Reading,
    There {
        page: Weak<Page>,
        /// Whether it was read ahead and has not been used since.
        is_unused: bool,
    },
}

/// A page that was found in memory.
pub(crate) struct FoundPage {
    pub(crate) page: Arc<Page>,
    /// Whether it was read ahead, and this is its first use.
    pub(crate) is_first_use: bool,
    /// How long the caller waited for its arrival.
    pub(crate) waited: Option<Duration>,
}

/// Result of a look-up for reading ahead at an address.
pub(crate) enum Peeked {
    There(Arc<Page>),
    /// A read ahead is under way.
    Reading,
    /// Not in memory. It counts as being read from now on.
    Absent,
}

impl Default for ResidentPages {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl ResidentPages {
    /// Returns the page at `addr` for use. Waits for it if it is being read ahead.
    pub(crate) fn get(&self, addr: PageAddr) -> Option<FoundPage> {
        let shard = self.shard(addr);
        let mut entries = shard.entries.lock();
        let mut since = None;
        loop {
            match entries.pages.get_mut(&addr)? {
                Resident::There { page, is_unused } => {
                    return Some(FoundPage {
                        page: page.upgrade()?,
                        is_first_use: std::mem::take(is_unused),
                        waited: since.map(|since: Instant| since.elapsed()),
                    });
                }
                Resident::Reading => {
                    let since = since.get_or_insert_with(Instant::now);
                    let until = *since + ARRIVAL_MAX;
                    if shard.arrived.wait_until(&mut entries, until).timed_out() {
                        return None;
                    }
                }
            }
        }
    }

    /// Whether the page at `addr` is in memory.
    pub(crate) fn has(&self, addr: PageAddr) -> bool {
        let entries = self.entries(addr);
        matches!(entries.pages.get(&addr), Some(Resident::There { page, .. }) if page.strong_count() > 0)
    }

    /// Looks for a page in order to read it ahead. Never waits.
    pub(crate) fn peek(&self, addr: PageAddr) -> Peeked {
        let mut entries = self.entries(addr);
        match entries.pages.get(&addr) {
            Some(Resident::Reading) => return Peeked::Reading,
            Some(Resident::There { page, .. }) => {
                if let Some(page) = page.upgrade() {
                    return Peeked::There(page);
                }
            }
            None => {}
        }
        entries.put(addr, Resident::Reading);
        Peeked::Absent
    }

    /// Whether a read ahead of the page is under way.
    pub(crate) fn is_being_read(&self, addr: PageAddr) -> bool {
        matches!(self.entries(addr).pages.get(&addr), Some(Resident::Reading))
    }

    /// Returns the page at `addr` if it is there, which does not count as its use.
    pub(crate) fn find(&self, addr: PageAddr) -> Option<Arc<Page>> {
        match self.entries(addr).pages.get(&addr)? {
            Resident::There { page, .. } => page.upgrade(),
            Resident::Reading => None,
        }
    }

    /// Ends the read ahead of a page: with the page, or without it if the read failed.
    pub(crate) fn end_reading(&self, addr: PageAddr, page: Option<&Arc<Page>>) {
        let shard = self.shard(addr);
        let mut entries = shard.entries.lock();
        if let Entry::Occupied(mut entry) = entries.pages.entry(addr)
            && matches!(entry.get(), Resident::Reading)
        {
            match page {
                Some(page) => drop(entry.insert(Resident::There {
                    page: Arc::downgrade(page),
                    is_unused: true,
                })),
                None => drop(entry.remove()),
            }
        }
        drop(entries);
        shard.arrived.notify_all();
    }

    /// Adds a page that was read for use.
    pub(crate) fn add(&self, addr: PageAddr, page: &Arc<Page>) {
        let there = Resident::There {
            page: Arc::downgrade(page),
            is_unused: false,
        };
        // A read ahead of it that is still under way finds the entry taken.
        self.entries(addr).put(addr, there);
        self.shard(addr).arrived.notify_all();
    }

    /// Adds a page that leaves the cache, if anybody else holds it.
    pub(crate) fn add_if_held(&self, addr: PageAddr, page: &Arc<Page>) {
        if Arc::strong_count(page) > 1 {
            self.add(addr, page);
        }
    }

    /// Removes the entry of a page that is in the cache now. A read ahead of it that is still under way finds none.
    pub(crate) fn supersede(&self, addr: PageAddr) {
        let shard = self.shard(addr);
        let was_there = shard.entries.lock().pages.remove(&addr).is_some();
        if was_there {
            shard.arrived.notify_all();
        }
    }

    /// Whether a page that was read ahead is still unused.
    pub(crate) fn is_unused(&self, addr: PageAddr) -> bool {
        let entries = self.entries(addr);
        let entry = entries.pages.get(&addr);
        matches!(
            entry,
            Some(Resident::There {
                is_unused: true,
                ..
            })
        )
    }

    /// Removes the pages that `stays` rejects. Their addresses may be reused for other pages.
    pub(crate) fn retain(&self, stays: impl Fn(&PageAddr) -> bool) {
        for shard in &self.0 {
            let mut entries = shard.entries.lock();
            entries.pages.retain(|addr, _| stays(addr));
            shard.arrived.notify_all();
        }
    }

    fn shard(&self, addr: PageAddr) -> &Shard {
        // Fibonacci hashing: the high bits depend on all bits of the address.
        let hash = addr.to_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> 58) as usize % SHARDS]
    }

    fn entries(&self, addr: PageAddr) -> MutexGuard<'_, Entries> {
        self.shard(addr).entries.lock()
    }
}

impl Entries {
    fn put(&mut self, addr: PageAddr, page: Resident) {
        self.pages.insert(addr, page);
        if self.pages.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.pages.retain(|_, page| match page {
                Resident::Reading => true,
                Resident::There { page, .. } => page.strong_count() > 0,
            });
            self.sweep_at = 2 * self.pages.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_primitives::Path;
    use cambium_store::PageBuilder;
    use std::thread;

    fn addr(n: u64) -> PageAddr {
        PageAddr::from_u64((n + 1) << 16 | 1).unwrap()
    }

    fn page() -> Arc<Page> {
        Arc::new(PageBuilder::new(&Path::EMPTY).build())
    }

    #[test]
    fn a_page_is_found_for_as_long_as_somebody_holds_it() {
        let resident = ResidentPages::default();
        let pages: Vec<_> = (0..1_000).map(|_| page()).collect();
        for (n, page) in (0..).zip(&pages) {
            resident.add(addr(n), page);
        }
        let found = |n| resident.get(addr(n)).is_some();
        assert!((0..1_000).all(found));
        drop(pages);
        assert!(!(0..1_000).any(found));
        let kept: Vec<_> = (0..10_000).map(|_| page()).collect();
        for (n, page) in (2_000..).zip(&kept[..10]) {
            resident.add(addr(n), page);
        }
        for n in 3_000..13_000 {
            resident.add(addr(n), &page());
        }
        let left: usize = resident
            .0
            .iter()
            .map(|shard| shard.entries.lock().pages.len())
            .sum();
        assert!(
            left < 2 * SHARDS * SWEEP_MIN,
            "{left} entries of pages that are gone"
        );
        assert!((2_000..2_010).all(found));
    }

    #[test]
    fn whoever_needs_a_page_that_is_read_ahead_waits_for_it_and_uses_it_once() {
        let resident = ResidentPages::default();
        assert!(matches!(resident.peek(addr(1)), Peeked::Absent));
        assert!(matches!(resident.peek(addr(1)), Peeked::Reading));
        let page = page();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| resident.get(addr(1)));
            while !waiting.is_finished() && resident.is_being_read(addr(1)) {
                thread::sleep(Duration::from_millis(2));
                resident.end_reading(addr(1), Some(&page));
            }
            let found = waiting.join().unwrap().unwrap();
            assert!(Arc::ptr_eq(&found.page, &page) && found.is_first_use);
        });
        assert!(!resident.is_unused(addr(1)));
        assert!(!resident.get(addr(1)).unwrap().is_first_use);
        assert!(matches!(resident.peek(addr(1)), Peeked::There(_)));
    }

    #[test]
    fn a_read_ahead_that_fails_leaves_the_page_to_others() {
        let resident = ResidentPages::default();
        assert!(matches!(resident.peek(addr(1)), Peeked::Absent));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| resident.get(addr(1)));
            thread::sleep(Duration::from_millis(5));
            resident.end_reading(addr(1), None);
            assert!(waiting.join().unwrap().is_none());
        });
        // Another thread has read it meanwhile, which the read ahead must not replace.
        let (mine, other) = (page(), page());
        assert!(matches!(resident.peek(addr(1)), Peeked::Absent));
        resident.add(addr(1), &other);
        resident.end_reading(addr(1), Some(&mine));
        let found = resident.get(addr(1)).unwrap();
        assert!(Arc::ptr_eq(&found.page, &other) && !found.is_first_use);
    }

    #[test]
    fn addresses_that_come_to_stand_for_other_pages_are_forgotten() {
        let resident = ResidentPages::default();
        let page = page();
        (0..100).for_each(|n| resident.add(addr(n), &page));
        resident.retain(|kept| kept.to_u64() > addr(49).to_u64());
        let found = (0..100).filter(|n| resident.get(addr(*n)).is_some());
        assert_eq!(found.count(), 50);
    }
}

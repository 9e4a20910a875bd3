//! Which pages are in memory, whoever holds them, and which are being read ahead.
//!
//! Pages are shared: a cache, a pin, and the tries of new blocks may hold the same one. The table
//! here holds none of them. It finds a page by its address for as long as somebody holds it, so that
//! no page is read twice while it is in memory.

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
/// Entries of a shard below which pages that nobody holds any more are not looked for.
const SWEEP_MIN: usize = 64;
/// Longest wait for a page that is being read ahead. After it the caller reads the page itself.
const ARRIVAL_MAX: Duration = Duration::from_secs(1);

/// The table of pages in memory.
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
    /// Number of entries at which those of pages that nobody holds are removed.
    sweep_at: usize,
}

enum Resident {
    /// A read ahead is under way.
    Reading,
    There {
        page: Weak<Page>,
        /// Whether it was read ahead, and nobody has used it since.
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

/// What reading ahead finds at an address.
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

    /// Whether a page that was read ahead has not been used so far.
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

    /// Removes pages, unless they are to stay. Their addresses may come to stand for other pages.
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

//! Reads ahead of execution, by completion: a caller asks for keys one at a time, and does other
//! work until their pages have arrived.

use crate::{
    base::{error::StateError, key::Key, layout::addr_of_stub},
    index::{HeldParts, IndexLookup, PartInMemory},
    pages::{PagePin, Pages},
    read::snapshot::Snapshot,
    resident::Peeked,
};
use cambium_primitives::Path;
use cambium_store::{FinishedPage, PageAddr, PageQueue};
use cambium_trie::Stub;
use rustc_hash::FxBuildHasher;
use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::Arc,
    task::Poll,
    thread,
    time::Duration,
};

/// Parts of an index that are read together at the latest: until then, other work comes first.
const PARTS_TOGETHER: usize = 32;
/// Pause before another look at pages that another reader reads ahead.
const ELSEWHERE_PAUSE: Duration = Duration::from_micros(100);

/// Reads pages ahead and pins them. It belongs to one thread, which polls it.
pub struct AheadReader {
    pages: Arc<Pages>,
    queue: PageQueue,
    under_way: HashMap<PageAddr, UnderWay, FxBuildHasher>,
    /// Keys whose part of the index is on disk.
    below_parts: Vec<BelowPart>,
    /// Pages that another reader reads, with the tickets that wait for them here.
    elsewhere: Vec<(PageAddr, Arc<PagePin>, u64)>,
    finished: Vec<FinishedPage>,
}

/// A page that is being read.
struct UnderWay {
    prefix: Path,
    /// The pins to keep the page in. The read counts for the first.
    pins: Vec<Arc<PagePin>>,
    tickets: Vec<u64>,
    /// Keeps the page's segment from being removed, and its number from being used again.
    _snapshot: Arc<Snapshot>,
}

/// A key whose page can't be named before a part of the index is read.
struct BelowPart {
    path: Path,
    snapshot: Arc<Snapshot>,
    pin: Arc<PagePin>,
    ticket: Option<u64>,
}

/// Where the answer for a key is.
enum Place {
    /// The index alone answers: the key is absent, or its leaf is in the index.
    Index(cambium_trie::Lookup<'static>),
    Page(Stub, Path),
}

impl AheadReader {
    /// A reader of these pages with no reads under way, and up to `depth` of them in flight at once.
    pub fn new(pages: Arc<Pages>, depth: usize) -> Self {
        Self {
            queue: pages.segments.page_queue(depth),
            pages,
            under_way: HashMap::default(),
            below_parts: Vec::new(),
            elsewhere: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Number of reads under way.
    pub fn in_flight(&self) -> usize {
        self.under_way.len() + self.below_parts.len() + self.elsewhere.len()
    }

    /// Returns a value of the snapshot if it is in memory, and keeps its page in `pin` unless the
    /// value cache answers. Otherwise a read of the page begins, and [`AheadReader::poll`] returns
    /// `ticket` once it has ended; asking again then answers, or begins another read if that one
    /// failed.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a leaf can't be read.
    pub fn value<K: Key>(
        &mut self,
        snapshot: &Arc<Snapshot>,
        key: &K,
        pin: &Arc<PagePin>,
        ticket: u64,
    ) -> Result<Poll<K::Value>, StateError> {
        if let Some(value) = snapshot.value_cache.get(key) {
            return Ok(Poll::Ready(value));
        }
        let path = key.path();
        if self.is_below_part(snapshot, &path, pin, Some(ticket)) {
            return Ok(Poll::Pending);
        }
        Ok(match place_of(snapshot, &path)? {
            Place::Index(leaf) => Poll::Ready(K::resident(&leaf)),
            Place::Page(stub, prefix) => {
                let addr = addr_of_stub(&stub, &prefix)?;
                match self.pages.peek(addr) {
                    Peeked::There(page) => {
                        pin.keep(addr, &page);
                        Poll::Ready(K::in_page(&page, &path)?)
                    }
                    peeked => {
                        self.wait_for(addr, &prefix, snapshot, pin, Some(ticket), peeked);
                        Poll::Pending
                    }
                }
            }
        })
    }

    /// Makes sure that the page of a key will be in memory: it is pinned now, or when it arrives.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index can't be read.
    pub fn page<K: Key>(
        &mut self,
        snapshot: &Arc<Snapshot>,
        key: &K,
        pin: &Arc<PagePin>,
    ) -> Result<(), StateError> {
        let path = key.path();
        if self.is_below_part(snapshot, &path, pin, None) {
            return Ok(());
        }
        if let Place::Page(stub, prefix) = place_of(snapshot, &path)? {
            let addr = addr_of_stub(&stub, &prefix)?;
            match self.pages.peek(addr) {
                Peeked::There(page) => pin.keep(addr, &page),
                peeked => self.wait_for(addr, &prefix, snapshot, pin, None, peeked),
            }
        }
        Ok(())
    }

    /// Whether the key's part of the index is on disk; if so, notes that it is waited for.
    fn is_below_part(
        &mut self,
        snapshot: &Arc<Snapshot>,
        path: &Path,
        pin: &Arc<PagePin>,
        ticket: Option<u64>,
    ) -> bool {
        match snapshot.index.part_in_memory(path) {
            PartInMemory::NotNeeded => return false,
            PartInMemory::There(part) => {
                pin.keep_part(&part);
                return false;
            }
            PartInMemory::Missing => {}
        }
        self.below_parts.push(BelowPart {
            path: *path,
            snapshot: snapshot.clone(),
            pin: pin.clone(),
            ticket,
        });
        true
    }

    /// Reads the parts of the index that keys wait for, all in flight together, and begins to read
    /// the keys' pages. Waits for the parts, which come from one file.
    fn read_parts(&mut self, ended: &mut VecDeque<u64>) {
        let waiting = std::mem::take(&mut self.below_parts);
        for group in waiting.chunk_by(|a, b| Arc::ptr_eq(&a.snapshot, &b.snapshot)) {
            let index = &group[0].snapshot.index;
            let held = index.prefetch_parts(group.iter().map(|below| below.path));
            let Ok(_held) = held else {
                // An error recurs when execution reads the key.
                ended.extend(group.iter().filter_map(|below| below.ticket));
                continue;
            };
            for below in group {
                if !self.begin_below(below) {
                    ended.extend(below.ticket);
                }
            }
        }
    }

    /// Begins to read a key's page, now that its part of the index is in memory. Returns false if
    /// nothing is to be waited for.
    fn begin_below(&mut self, below: &BelowPart) -> bool {
        let BelowPart {
            path,
            snapshot,
            pin,
            ticket,
        } = below;
        if let PartInMemory::There(part) = snapshot.index.part_in_memory(path) {
            pin.keep_part(&part);
        }
        let Ok(Place::Page(stub, prefix)) = place_of(snapshot, path) else {
            return false;
        };
        let Ok(addr) = addr_of_stub(&stub, &prefix) else {
            return false;
        };
        match self.pages.peek(addr) {
            Peeked::There(page) => {
                pin.keep(addr, &page);
                false
            }
            peeked => {
                self.wait_for(addr, &prefix, snapshot, pin, *ticket, peeked);
                true
            }
        }
    }

    /// Records a wait for a page that is not in memory. Begins to read it unless a read is under way.
    fn wait_for(
        &mut self,
        addr: PageAddr,
        prefix: &Path,
        snapshot: &Arc<Snapshot>,
        pin: &Arc<PagePin>,
        ticket: Option<u64>,
        peeked: Peeked,
    ) {
        match self.under_way.entry(addr) {
            Entry::Occupied(mut entry) => {
                let under_way = entry.get_mut();
                if !under_way.pins.iter().any(|other| Arc::ptr_eq(other, pin)) {
                    under_way.pins.push(pin.clone());
                }
                under_way.tickets.extend(ticket);
            }
            Entry::Vacant(entry) if matches!(peeked, Peeked::Absent) => {
                self.queue.submit(&self.pages.segments, addr, addr.to_u64());
                entry.insert(UnderWay {
                    prefix: *prefix,
                    pins: vec![pin.clone()],
                    tickets: ticket.into_iter().collect(),
                    _snapshot: snapshot.clone(),
                });
            }
            Entry::Vacant(_) => {
                let waiting = ticket.map(|ticket| (addr, pin.clone(), ticket));
                self.elsewhere.extend(waiting);
            }
        }
    }

    /// Takes the finished reads, and adds the tickets that waited for them to `ended`. With `wait`, returns once there
    /// is one, unless none is under way.
    ///
    /// A read begins only here, while others can already be waiting for it: so this is called often.
    pub fn poll(&mut self, wait: bool, ended: &mut VecDeque<u64>) {
        if wait || self.below_parts.len() >= PARTS_TOGETHER {
            self.read_parts(ended);
        }
        if !self.elsewhere.is_empty() {
            self.look_elsewhere(ended);
            if wait && ended.is_empty() && self.under_way.is_empty() && !self.elsewhere.is_empty() {
                thread::sleep(ELSEWHERE_PAUSE);
                return;
            }
        }
        let wait = wait && ended.is_empty();
        let mut finished = std::mem::take(&mut self.finished);
        self.queue.poll(&self.pages.segments, wait, &mut finished);
        for FinishedPage {
            addr, page: read, ..
        } in finished.drain(..)
        {
            let Some(under_way) = self.under_way.remove(&addr) else {
                continue;
            };
            // An error recurs when execution reads the page.
            if let Ok(page) = self.pages.end_ahead(addr, &under_way.prefix, read) {
                for (at, pin) in under_way.pins.iter().enumerate() {
                    match at {
                        0 => pin.keep_ahead(addr, &page),
                        _ => pin.keep(addr, &page),
                    }
                }
            }
            ended.extend(under_way.tickets);
        }
        self.finished = finished;
    }

    /// Looks whether another reader has finished the pages that are waited for here.
    fn look_elsewhere(&mut self, ended: &mut VecDeque<u64>) {
        let pages = &self.pages;
        self.elsewhere.retain(|(addr, pin, ticket)| {
            if pages.is_being_read(*addr) {
                return true;
            }
            if let Some(page) = pages.find(*addr) {
                pin.keep(*addr, &page);
            }
            ended.push_back(*ticket);
            false
        });
    }
}

impl Drop for AheadReader {
    fn drop(&mut self) {
        for addr in self.under_way.keys() {
            self.pages.give_up_ahead(*addr);
        }
    }
}

fn place_of(snapshot: &Snapshot, path: &Path) -> Result<Place, StateError> {
    let found = snapshot.index.look_up(path, &mut HeldParts::default())?;
    Ok(match found {
        IndexLookup::Resident(leaf) => Place::Index(leaf),
        IndexLookup::Page { stub, depth } => Place::Page(stub, path.prefix(depth)),
    })
}

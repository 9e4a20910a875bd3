//! Segment cleaning (garbage collection): moves live pages out of the emptiest segments, so that
//! these can be removed.
//!
//! Replaced pages are scattered over all segments. A merge that finds too much dead space appends
//! copies of the live pages in the emptiest segments behind its own pages. Each move changes one
//! address in the index, which the merge writes anyway.
//!
//! Punching holes into segments would need no writes, but frees only whole blocks of the file
//! system. Pages are smaller than a block, and with half of them dead, one block in thirty has no
//! live page.

use super::result::{MergedShard, parts};
use crate::{
    base::{
        error::StateError,
        layout::{addr_of_place, place},
    },
    index::{Index, Opened, OpenedShard, PartRef, TouchedNodes, Turn},
    pages::Pages,
};
use cambium_store::{PageAddr, SegmentStats};
use cambium_trie::{Link, NodeView, PartialTrie, Stub};
use rustc_hash::FxBuildHasher;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// Limit of dead bytes, as a fraction of the live bytes. If pages die at random, the emptiest
/// segment is about a ninth live at this limit, and each byte that a merge writes causes an eighth of a
/// byte of moves.
const DEAD_PER_LIVE: f64 = 1.5;
/// Number of pages that are read at once to be moved.
const MOVED_AT_ONCE: usize = 256;

/// Bytes that a merge may move in all shards that it changes together, however little it writes there. Of the few blocks that a
/// merge of one change opens few name a page of the sparsest segments: if it moved only as much as it writes, all
/// segments would be emptied side by side, and none for long.
const MOVED_MIN: u64 = 32 << 10;

/// Bytes that a merge moves at most in a shard of an index on disk, as a multiple of the bytes of pages that it writes there:
/// with each of these it writes a part, which takes some times as many bytes and dies as soon.
const MOVED_PER_WRITTEN_ON_DISK: u64 = 8;

/// The segments that a merge cleans.
pub struct Cleaning {
    /// Ranks by number of the segment. The segment of the lowest rank is cleaned first.
    ranks: HashMap<u32, usize, FxBuildHasher>,
}

impl Cleaning {
    /// Chooses the segments to clean: those with the smallest share of live bytes, until dead space
    /// is within its limit. Pages that are `retired` count as dead, since the next checkpoint no
    /// longer needs them. Segments that contain `unreadable` pages are left out, since they can't
    /// be emptied.
    pub fn of(segments: &[SegmentStats], retired: &[PageAddr], unreadable: &HashSet<u32>) -> Self {
        let live = segments
            .iter()
            .map(|segment| (segment.segment, segment.live_bytes));
        let mut live: BTreeMap<u32, u64> = live.collect();
        for addr in retired {
            if let Some(live) = live.get_mut(&addr.segment()) {
                *live = live.saturating_sub(addr.len());
            }
        }
        let victims = victims(segments, &live, unreadable);
        Self {
            ranks: victims.into_iter().zip(0..).collect(),
        }
    }

    /// Returns the turn of the blocks or parts of `index` that are opened so that their pages can be moved: those for which
    /// `is_moved` is true. `None` if nothing is to be moved.
    pub(super) fn turn<'a>(
        &self,
        index: &Index,
        is_moved: &'a dyn Fn(&PageAddr) -> bool,
    ) -> Option<Turn<'a>> {
        let number = (!self.ranks.is_empty()).then(|| index.files().sequence())?;
        Some(Turn { number, is_moved })
    }

    /// Whether a page or a part is in a chosen segment.
    pub(super) fn is_chosen(&self, addr: &PageAddr) -> bool {
        self.ranks.contains_key(&addr.segment())
    }

    /// Moves pages of one shard, of which `before` was opened, out of the chosen segments, and replaces
    /// their addresses in its index: those that opened blocks or parts name. Moves at most as many bytes as the merge has
    /// written for the shard, or its share of [`MOVED_MIN`] among `changed_shards`; of an index on disk
    /// [`MOVED_PER_WRITTEN_ON_DISK`] times as many as were written. Pages that can't be read stay where they are. Also moves
    /// parts of the index. Returns the old addresses of these.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if writing a page fails.
    pub(super) fn clean(
        &self,
        before: &mut OpenedShard<'_>,
        merged: &mut MergedShard,
        changed_shards: u64,
        pages: &Pages,
    ) -> Result<Vec<PageAddr>, StateError> {
        if self.ranks.is_empty() {
            return Ok(Vec::new());
        }
        let bytes_max = match before.opened {
            Opened::Blocks(_) => merged.bytes.max(MOVED_MIN / changed_shards.max(1)),
            Opened::Parts(_) => MOVED_PER_WRITTEN_ON_DISK * merged.bytes,
        };
        let _span = tracing::debug_span!("clean", bytes_max).entered();
        let moved = self.move_parts(before, merged, pages, bytes_max)?;
        self.move_pages(merged, pages, bytes_max)?;
        Ok(moved)
    }

    /// Moves parts that were not opened, and returns their old addresses. Opened ones that are in a chosen segment are
    /// forgotten as what they were, so that they are written again.
    fn move_parts(
        &self,
        before: &mut OpenedShard<'_>,
        merged: &mut MergedShard,
        pages: &Pages,
        bytes_max: u64,
    ) -> Result<Vec<PageAddr>, StateError> {
        let Opened::Parts(opened) = &mut before.opened else {
            return Ok(Vec::new());
        };
        let mut moved = opened.take_if(|addr| self.is_chosen(addr));
        let closed = parts(&merged.index).into_iter();
        let mut found: Vec<_> = closed.filter(|(addr, _)| self.is_chosen(addr)).collect();
        found.sort_unstable_by_key(|(addr, _)| (self.ranks[&addr.segment()], *addr));
        let mut left = bytes_max;
        found.retain(|(addr, _)| {
            let fits = addr.len() <= left;
            left = left.saturating_sub(addr.len());
            fits
        });
        let addrs: Vec<_> = found.iter().map(|(addr, _)| *addr).collect();
        for ((addr, link), read) in found.into_iter().zip(pages.segments.read_parts(&addrs)) {
            let part = match read {
                Ok(part) => part,
                Err(error) => {
                    tracing::warn!("a part of the index stays where it is: {error}");
                    pages.note_unreadable(addr);
                    continue;
                }
            };
            let counters = &pages.counters;
            counters.index_reads.add(u64::from(part.is_from_device));
            counters.index_bytes_read.add(addr.len());
            let to = pages.segments.append(part.record())?;
            counters.index_parts_written.add(1);
            counters.index_bytes_written.add(to.len());
            let index = Arc::make_mut(&mut merged.index);
            let stub = index.as_stub(link).expect("a stub was found there");
            let place = Some(PartRef::at(to).to_place());
            index.set_stub(link, Stub { place, ..stub });
            moved.push(addr);
        }
        Ok(moved)
    }

    /// Moves the pages that opened parts or blocks name, the sparsest segments first, up to `bytes_max` bytes.
    fn move_pages(
        &self,
        merged: &mut MergedShard,
        pages: &Pages,
        bytes_max: u64,
    ) -> Result<(), StateError> {
        let (found, nodes_above) = self.found(&merged.index, bytes_max);
        if found.is_empty() {
            return Ok(());
        }
        let index = Arc::make_mut(&mut merged.index);
        let counters = &pages.counters;
        for found in found.chunks(MOVED_AT_ONCE) {
            let addrs: Vec<_> = found.iter().map(|found| found.addr).collect();
            for (found, page) in found.iter().zip(pages.to_move(&addrs)) {
                let Some(page) = page else {
                    continue;
                };
                let addr = pages.segments.append(page.as_bytes())?;
                pages.move_cached(page, addr);
                let stub = index.as_stub(found.link).expect("a stub was found there");
                let place = Some(place(addr));
                index.set_stub(found.link, Stub { place, ..stub });
                if let Some(touched) = &mut merged.touched {
                    nodes_above.touch(found.above, touched);
                }
                merged.dead.push(found.addr);
                counters.pages_moved.add(1);
                counters.page_bytes_moved.add(addr.len());
            }
        }
        Ok(())
    }

    /// Returns the pages of a shard that are in the chosen segments, in the order in which they are to
    /// be moved, up to `bytes_max` bytes, and the nodes above them.
    fn found(&self, index: &PartialTrie, bytes_max: u64) -> (Vec<Found>, NodesAbove) {
        let (mut found, mut nodes) = (Vec::new(), NodesAbove(Vec::new()));
        let mut todo = vec![(index.root(), usize::MAX)];
        while let Some((link, above)) = todo.pop() {
            let number = nodes.0.len();
            match index.visit(link) {
                NodeView::Stub(stub) => {
                    let addr = stub.place.filter(|_| PartRef::of(stub).is_none());
                    let addr = addr.map(addr_of_place).filter(|addr| self.is_chosen(addr));
                    found.extend(addr.map(|addr| Found { addr, link, above }));
                    continue;
                }
                NodeView::Branch { children } => {
                    todo.extend(children.iter().map(|child| (*child, number)));
                }
                NodeView::Extension { child, .. } => todo.push((child, number)),
                NodeView::Account { storage, .. } => todo.push((storage, number)),
                NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => continue,
            }
            nodes.0.push((link, above));
        }
        found.sort_unstable_by_key(|found| (self.ranks[&found.addr.segment()], found.addr));
        let mut left = bytes_max;
        found.retain(|found| {
            let rest = left.checked_sub(found.addr.len());
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        (found, nodes)
    }
}

/// A page that is to be moved.
struct Found {
    addr: PageAddr,
    link: Link,
    /// Number of the node above it.
    above: usize,
}

/// The inner nodes of a shard, each with the number of the one above it. The root has none.
struct NodesAbove(Vec<(Link, usize)>);

impl NodesAbove {
    /// Adds a node and all above it to the nodes below which something has changed.
    fn touch(&self, mut number: usize, touched: &mut TouchedNodes) {
        while let Some((link, above)) = self.0.get(number)
            && touched.insert(*link)
        {
            number = *above;
        }
    }
}

/// Returns the segments to clean, emptiest first. `live` are the live bytes of each segment.
/// Segments without a live page are left out, since they are removed anyway.
fn victims(
    segments: &[SegmentStats],
    live: &BTreeMap<u32, u64>,
    unreadable: &HashSet<u32>,
) -> Vec<u32> {
    // The newest segment is still being written.
    let newest = segments.iter().map(|segment| segment.sequence).max();
    let mut candidates: Vec<(u64, u64, u32)> = segments
        .iter()
        .filter(|segment| Some(segment.sequence) != newest)
        .filter(|segment| !unreadable.contains(&segment.segment))
        .filter_map(|segment| {
            let live = live.get(&segment.segment).filter(|live| **live > 0)?;
            Some((*live, segment.bytes.saturating_sub(*live), segment.segment))
        })
        .collect();
    candidates.sort_by(|a, b| (a.0 as f64 / a.1 as f64).total_cmp(&(b.0 as f64 / b.1 as f64)));
    let sparse = candidates.into_iter();
    let sparse = sparse.map(|(_, dead, segment)| (segment, dead));
    let dead_max = live.values().sum::<u64>() as f64 * DEAD_PER_LIVE;
    emptiest(sparse.collect(), dead_max as u64)
}

/// Returns the first of `sparse`, which are segments with their dead bytes, emptiest first: as many as
/// bring the dead bytes of all down to `dead_max`.
pub fn emptiest<T>(sparse: Vec<(T, u64)>, dead_max: u64) -> Vec<T> {
    let mut dead_all: u64 = sparse.iter().map(|(_, dead)| dead).sum();
    let mut victims = Vec::new();
    for (segment, dead) in sparse {
        if dead_all <= dead_max || dead == 0 {
            break;
        }
        victims.push(segment);
        dead_all -= dead;
    }
    victims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_segments_are_victims_until_dead_space_is_down_to_its_limit() {
        // 180 dead bytes.
        let victims = |dead_max| emptiest(vec![(1, 90), (2, 60), (3, 30)], dead_max);
        assert_eq!(victims(90), [1]);
        assert_eq!(victims(89), [1, 2]);
        assert_eq!(victims(180), [0; 0]);
        assert_eq!(victims(0), [1, 2, 3]);
    }

    fn segment(segment: u32, bytes: u64) -> SegmentStats {
        SegmentStats {
            segment,
            sequence: segment.into(),
            bytes,
            live_bytes: bytes,
        }
    }

    #[test]
    fn the_emptiest_segments_are_cleaned_until_dead_space_is_down_to_its_limit() {
        let segments: Vec<_> = (1..=5).map(|number| segment(number, 100)).collect();
        // Dead bytes: 90, 50, 70, 100 and, in the newest segment, which doesn't count, 80.
        let live = BTreeMap::from([(1, 10), (2, 50), (3, 30), (4, 0), (5, 20)]);
        // 110 live bytes allow for 165 dead ones; without segment 1 there are 120.
        let none = HashSet::new();
        assert_eq!(victims(&segments, &live, &none), [1]);
        let live = BTreeMap::from([(1, 15), (2, 5), (3, 40), (4, 0), (5, 5)]);
        assert_eq!(victims(&segments, &live, &none), [2, 1]);
        assert_eq!(victims(&segments, &live, &HashSet::from([2])), [1]);
    }
}

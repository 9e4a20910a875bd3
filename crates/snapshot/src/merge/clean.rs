//! Cleaning: live pages move out of the emptiest segments, which are removed when nothing can
//! lead to them any more.
//!
//! Pages die one here and one there, so that segments become sieves. A merge that finds too much
//! dead space moves the live pages of the emptiest segments behind its own; each move is one more
//! changed address in the index that it is making anyway.
//!
//! Punching holes instead would cost no writing, but frees whole blocks of the file system only:
//! with pages of under a block, half of them dead, one block in thirty has no live page.

use super::result::{MergedShard, places};
use crate::{
    base::{error::StateError, layout::place},
    pages::Pages,
};
use cambium_store::{PageAddr, SegmentStats};
use cambium_trie::{Link, Stub};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// Dead bytes are let be up to this part of the live ones: with pages dying at random, the
/// emptiest segment is then about a third live, and each byte that a merge writes causes half a
/// byte of moves.
const DEAD_PER_LIVE: f64 = 0.9;
/// Live pages in a stretch of this length are read together, with what is between them: faster
/// than one by one from a tenth of live ones on.
const SPAN_BYTES: u64 = 256 << 10;
/// As many stretches are in memory at once.
const SPANS_AT_ONCE: usize = 16;

/// The segments that a merge cleans, each with its rank: those of the lowest are cleaned first.
pub struct Cleaning {
    ranks: HashMap<u32, usize>,
}

/// A live page in the index of a shard.
struct LivePage {
    addr: PageAddr,
    link: Link,
}

impl Cleaning {
    /// Chooses segments of those there are, by what is live in them without the pages that are
    /// `retired`: of no use to anything that the next checkpoint leads to. Those of which pages
    /// are `unreadable` are let be, since they could not be emptied.
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

    /// Moves pages of a shard, at most as many bytes as were written to it.
    pub fn clean(&self, merged: &mut MergedShard, pages: &Pages) -> Result<(), StateError> {
        if self.ranks.is_empty() {
            return Ok(());
        }
        let mut found: Vec<_> = places(&merged.index)
            .into_iter()
            .filter(|(addr, _)| self.ranks.contains_key(&addr.segment()))
            .map(|(addr, link)| LivePage { addr, link })
            .collect();
        found.sort_unstable_by_key(|found| (self.ranks[&found.addr.segment()], found.addr));
        let mut left = merged.bytes;
        let fitting = found.iter().take_while(|found| {
            let fits = found.addr.len() <= left;
            left = left.saturating_sub(found.addr.len());
            fits
        });
        found.truncate(fitting.count());
        let mut found = &found[..];
        let counters = &pages.counters;
        let span = |found: &LivePage| (found.addr.segment(), found.addr.offset() / SPAN_BYTES);
        let addrs: Vec<_> = found.iter().map(|found| found.addr).collect();
        let spans = found.chunk_by(|a, b| span(a) == span(b));
        let mut start = 0;
        let spans: Vec<_> = spans
            .map(|span| {
                start += span.len();
                &addrs[start - span.len()..start]
            })
            .collect();
        for spans in spans.chunks(SPANS_AT_ONCE) {
            let pages_read = spans.iter().map(|span| span.len()).sum::<usize>();
            let (now, later) = found.split_at(pages_read);
            found = later;
            counters
                .pages_read_together
                .add((pages_read - spans.len()) as u64);
            for (found, page) in now.iter().zip(pages.read_to_move(spans)) {
                let Some(page) = page else {
                    continue;
                };
                let addr = pages.segments.append(page.as_bytes())?;
                pages.move_cached(found.addr, addr, page);
                let index = Arc::make_mut(&mut merged.index);
                let stub = index.as_stub(found.link).expect("a stub was found there");
                let place = Some(place(addr));
                index.set_stub(found.link, Stub { place, ..stub });
                merged.dead.push(found.addr);
                counters.pages_moved.add(1);
                counters.page_bytes_moved.add(addr.len());
            }
        }
        Ok(())
    }
}

/// The segments to clean: the emptiest, until dead space is down to its limit. Segments without a
/// live page go by themselves.
fn victims(
    segments: &[SegmentStats],
    live: &BTreeMap<u32, u64>,
    unreadable: &HashSet<u32>,
) -> Vec<u32> {
    // The newest is still being written.
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
    let live_all: u64 = live.values().sum();
    let mut dead_all: u64 = candidates.iter().map(|(_, dead, _)| dead).sum();
    let dead_max = (live_all as f64 * DEAD_PER_LIVE) as u64;
    candidates.sort_by(|a, b| (a.0 as f64 / a.1 as f64).total_cmp(&(b.0 as f64 / b.1 as f64)));
    let mut victims = Vec::new();
    for (_, dead, segment) in candidates {
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
        // Dead: 90, 40, 80, 100 and (in the newest, which doesn't count) 80.
        let live = BTreeMap::from([(1, 10), (2, 60), (3, 20), (4, 0), (5, 50)]);
        // 140 live allow for 126 dead; without segment 1 there are 120.
        let none = HashSet::new();
        assert_eq!(victims(&segments, &live, &none), [1]);
        let live = BTreeMap::from([(1, 20), (2, 10), (3, 60), (4, 0), (5, 10)]);
        assert_eq!(victims(&segments, &live, &none), [2, 1]);
        assert_eq!(victims(&segments, &live, &HashSet::from([2])), [1]);
    }
}

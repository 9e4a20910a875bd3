//! Cleaning: live pages move out of the emptiest segments, which are removed when nothing can
//! lead to them any more.
//!
//! Pages die one here and one there, so that segments become sieves. A merge that finds too much
//! dead space moves the live pages of the emptiest segments behind its own; each move is one more
//! changed address in the index that it is making anyway.
//!
//! Punching holes instead would cost no writing, but frees whole blocks of the file system only:
//! with pages of under a block, half of them dead, one block in thirty has no live page.

use crate::{
    error::StateError,
    merge::{Merged, places},
    pages::{Pages, place},
};
use cambium_store::{PageAddr, SegmentStats};
use cambium_trie::{Link, Stub};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// Dead bytes are let be up to this part of the live ones: with pages dying at random, the
/// emptiest segment is then about a third live, and each byte that a merge writes causes half a
/// byte of moves.
const DEAD_PER_LIVE: f64 = 0.7;
/// Pages read together.
const BATCH_PAGES: usize = 512;

/// A live page in the index.
struct Found {
    addr: PageAddr,
    shard: usize,
    link: Link,
}

/// Moves pages, at most as many bytes as the merge has written itself, as long as there is too
/// much dead space.
pub(crate) fn clean(merged: &mut Merged, pages: &Pages) -> Result<(), StateError> {
    let mut live: BTreeMap<u32, u64> = BTreeMap::new();
    for (addr, _) in merged.index.iter().flat_map(|shard| places(shard)) {
        *live.entry(addr.segment()).or_default() += addr.len();
    }
    let victims = victims(&pages.segments.live(), &live, merged.bytes_written);
    if victims.is_empty() {
        return Ok(());
    }
    let mut found = Vec::new();
    for (shard, index) in merged.index.iter().enumerate() {
        let here = places(index).into_iter();
        let here = here.filter(|(addr, _)| victims.contains(&addr.segment()));
        found.extend(here.map(|(addr, link)| Found { addr, shard, link }));
    }
    found.sort_unstable_by_key(|found| found.addr);
    let counters = &pages.counters;
    for batch in found.chunks(BATCH_PAGES) {
        let addrs: Vec<_> = batch.iter().map(|found| found.addr).collect();
        for (found, page) in batch.iter().zip(pages.segments.read_batch(&addrs)) {
            let page = page?;
            counters.page_reads_merge.add(1);
            counters.page_bytes_read.add(page.size_bytes() as u64);
            let addr = pages.segments.append(page.as_bytes())?;
            pages.replace_cached(found.addr, addr, page);
            let index = Arc::make_mut(&mut merged.index[found.shard]);
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

/// The segments to clean: the emptiest, until dead space is down to its limit, or their live
/// pages are `bytes_max`. Segments without a live page go by themselves.
fn victims(segments: &[SegmentStats], live: &BTreeMap<u32, u64>, bytes_max: u64) -> HashSet<u32> {
    // The newest is still being written.
    let newest = segments.last().map(|last| last.segment);
    let mut candidates: Vec<(u64, u64, u32)> = segments
        .iter()
        .filter(|segment| Some(segment.segment) != newest)
        .filter_map(|segment| {
            let live = *live.get(&segment.segment)?;
            Some((live, segment.bytes.saturating_sub(live), segment.segment))
        })
        .collect();
    let live_all: u64 = live.values().sum();
    let mut dead_all: u64 = candidates.iter().map(|(_, dead, _)| dead).sum();
    let dead_max = (live_all as f64 * DEAD_PER_LIVE) as u64;
    candidates.sort_by(|a, b| (a.0 as f64 / a.1 as f64).total_cmp(&(b.0 as f64 / b.1 as f64)));
    let mut victims = HashSet::new();
    let mut bytes = 0;
    for (live, dead, segment) in candidates {
        if dead_all <= dead_max || bytes + live > bytes_max || dead == 0 {
            break;
        }
        victims.insert(segment);
        bytes += live;
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
            bytes,
            live_bytes: bytes,
        }
    }

    #[test]
    fn the_emptiest_segments_are_cleaned_until_dead_space_is_down_to_its_limit() {
        let segments: Vec<_> = (1..=5).map(|number| segment(number, 100)).collect();
        // Dead: 90, 20, 60, 100 and (in the newest, which doesn't count) 50.
        let live = BTreeMap::from([(1, 10), (2, 80), (3, 40), (5, 50)]);
        // 180 live allow for 126 dead; without segment 1 there are 80.
        assert_eq!(victims(&segments, &live, 1000), HashSet::from([1]));
        assert_eq!(victims(&segments, &live, 5), HashSet::new());
        let live = BTreeMap::from([(1, 10), (2, 20), (3, 60), (5, 10)]);
        assert_eq!(victims(&segments, &live, 1000), HashSet::from([1, 2]));
    }
}

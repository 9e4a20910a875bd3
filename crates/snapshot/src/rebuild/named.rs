//! Which pages a checkpoint names, by what can be read of it and of those that it is on.
//!
//! ```text
//!   7 (whole)  <- 8 <- 9 <- 10      each: what it no longer names of the one before, and the
//!                                   table of segments
//! ```
//!
//! From the newest of them down to which nothing is damaged, all pages are known by its index; or,
//! if the whole index itself is damaged, by the list that the first checkpoint on it has. From
//! there on whatever was appended counts, but for what a later checkpoint has retired. What one
//! that is damaged retired, the one after it says as well.

use super::faults::damaged_index;
use crate::{
    base::error::StateError,
    checkpoint::{read_live, read_retired, read_retired_before, read_segments},
    index::IndexOnDisk,
    merge::places,
};
use cambium_disk::Disk;
use cambium_store::{Checkpoint, PageAddr, SegmentStats, Segments};
use cambium_trie::SHARDS;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The pages that a checkpoint names.
pub(crate) struct NamedPages(Vec<(u32, SegmentPages)>);

/// Those in one segment, in the order of their offsets.
pub(crate) struct SegmentPages {
    /// Those that are known by name, without those that were retired.
    listed: Vec<PageAddr>,
    /// How many of them have come.
    taken: usize,
    /// From here on all pages count that were not retired.
    all_from: u64,
    retired: HashSet<u64>,
}

impl SegmentPages {
    /// Whether a page counts. Pages come in order.
    pub(crate) fn take(&mut self, addr: PageAddr) -> bool {
        if addr.offset() >= self.all_from {
            return !self.retired.contains(&addr.offset());
        }
        let next = self.listed.get(self.taken);
        let is_next = next.is_some_and(|next| next.offset() == addr.offset());
        self.taken += usize::from(is_next);
        is_next
    }

    /// One that did not come.
    pub(crate) fn missing(&self) -> Option<PageAddr> {
        self.listed.get(self.taken).copied()
    }
}

/// What is known of one checkpoint of a chain.
struct ChainedCheckpoint {
    checkpoint: Checkpoint,
    table: HashMap<u32, SegmentStats>,
}

impl ChainedCheckpoint {
    fn open(disk: &Arc<dyn Disk>, sequence: u64) -> Result<Self, StateError> {
        let checkpoint = Checkpoint::open(disk, sequence)?;
        let table = Segments::decode_table(&read_segments(&checkpoint)?)?;
        Ok(Self {
            checkpoint,
            table: table.into_iter().map(|row| (row.segment, row)).collect(),
        })
    }
}

/// `None` for what is damaged.
fn unless_damaged<T>(result: Result<T, StateError>) -> Result<Option<T>, StateError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

impl NamedPages {
    /// By what there is of the checkpoint `newest`, which is whole, and of what it is on.
    pub(crate) fn by(newest: &Checkpoint, disk: &Arc<dyn Disk>) -> Result<Self, StateError> {
        let chain = newest.chain()?;
        let links: Vec<_> = chain
            .iter()
            .map(|sequence| unless_damaged(ChainedCheckpoint::open(disk, *sequence)))
            .collect::<Result<_, _>>()?;
        let (at, pages) = known(&links)?;
        let Some(base) = &links[at] else {
            return Err(damaged_index("no list of pages"));
        };
        // A number of a segment may have been given again since; sequence numbers never are.
        let mut listed: HashMap<u64, Vec<PageAddr>> = HashMap::new();
        for addr in pages {
            let row = base.table.get(&addr.segment());
            let row = row.ok_or_else(|| damaged_index("a page in no segment"))?;
            listed.entry(row.sequence).or_default().push(addr);
        }
        let mut retired: HashMap<u64, HashSet<u64>> = HashMap::new();
        for later in at + 1..links.len() {
            let own = match &links[later] {
                Some(link) => unless_damaged(read_retired(&link.checkpoint))?,
                None => None,
            };
            let next = links.get(later + 1).and_then(Option::as_ref);
            let pages = match (own, next) {
                (Some(pages), _) => pages,
                (None, Some(next)) => read_retired_before(&next.checkpoint)?,
                (None, None) => return Err(damaged_index("no list of retired pages")),
            };
            // Both tables have all segments in which a page was retired by the first of them.
            let link = links[later].as_ref().or(next);
            let table = &link.ok_or_else(|| damaged_index("no table"))?.table;
            for addr in pages {
                if let Some(row) = table.get(&addr.segment()) {
                    retired
                        .entry(row.sequence)
                        .or_default()
                        .insert(addr.offset());
                }
            }
        }
        let known_ends: HashMap<u64, u64> = base
            .table
            .values()
            .map(|row| (row.sequence, row.bytes))
            .collect();
        let rows = Segments::decode_table(&read_segments(newest)?)?;
        let segments = rows.into_iter().map(|row| {
            let retired = retired.remove(&row.sequence).unwrap_or_default();
            let mut listed = listed.remove(&row.sequence).unwrap_or_default();
            listed.retain(|addr| !retired.contains(&addr.offset()));
            listed.sort_unstable();
            let wanted = SegmentPages {
                listed,
                taken: 0,
                all_from: known_ends.get(&row.sequence).copied().unwrap_or(0),
                retired,
            };
            (row.segment, wanted)
        });
        Ok(Self(segments.collect()))
    }

    /// By number of the segment.
    pub(crate) fn into_segments(self) -> impl Iterator<Item = (u32, SegmentPages)> {
        self.0.into_iter()
    }
}

/// The pages of the newest checkpoint of which all are known by name, and which it is.
fn known(links: &[Option<ChainedCheckpoint>]) -> Result<(usize, Vec<PageAddr>), StateError> {
    let mut whole = Vec::new();
    for link in links {
        let is_next = |link: &&ChainedCheckpoint| {
            let on = whole.last().map(|before: &&Checkpoint| before.sequence());
            link.checkpoint.id().before() == on
        };
        let Some(link) = link.as_ref().filter(is_next) else {
            break;
        };
        let sections: Vec<_> = link.checkpoint.sections().collect();
        let verify = |name: &&str| Ok(link.checkpoint.verify_section(name)?);
        if unless_damaged(sections.iter().try_for_each(verify))?.is_none() {
            break;
        }
        whole.push(&link.checkpoint);
    }
    if !whole.is_empty() {
        let index = IndexOnDisk::open(&whole)?;
        let mut pages = Vec::new();
        for shard in 0..SHARDS {
            let (trie, _) = index.whole(shard)?;
            pages.extend(places(&trie).into_iter().map(|(addr, _)| addr));
        }
        return Ok((whole.len() - 1, pages));
    }
    for (at, link) in links.iter().enumerate() {
        if let Some(link) = link
            && let Some(Some(pages)) = unless_damaged(read_live(&link.checkpoint))?
        {
            return Ok((at, pages));
        }
    }
    Err(damaged_index("no list of pages"))
}

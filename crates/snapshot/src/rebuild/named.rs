//! Finds the live pages of a checkpoint, from the readable part of it and of the checkpoints that
//! it is on.
//!
//! ```text
//!   7 (whole)  <- 8 <- 9 <- 10      each contains the segment table, and lists the pages that
//!                                   the one before names and it no longer does
//! ```
//!
//! The starting point is a checkpoint whose pages are known completely: the last one before any
//! damage, by its index; or, if the whole index itself is damaged, the first one on it, which has a
//! list of its pages. From there on all appended pages are live, except for those that a later
//! checkpoint retired. The pages that a damaged checkpoint retired are listed again in the next
//! one.

use super::faults::damaged_index;
use crate::{
    base::error::StateError,
    checkpoint::{read_live, read_retired, read_retired_before, read_segments},
    index::StoredIndex,
    merge::places,
};
use cambium_disk::Disk;
use cambium_store::{Checkpoint, PageAddr, SegmentStats, Segments};
use cambium_trie::{Commitment, SHARDS};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The live pages: those that a checkpoint names, by number of their segment.
pub(crate) struct NamedPages(Vec<(u32, SegmentPages)>);

/// The live pages in one segment, for a scan in the order of their offsets.
pub(crate) struct SegmentPages {
    /// Listed pages that were not retired later, sorted.
    listed: Vec<PageAddr>,
    /// Number of listed pages that the scan has passed.
    taken: usize,
    /// Offset from which all pages that were not retired are live, in bytes.
    all_from: u64,
    /// Offsets of retired pages, in bytes.
    retired: HashSet<u64>,
}

impl SegmentPages {
    /// Whether the page at `addr` is live. Must be called for all pages of the segment in order.
    pub(crate) fn take(&mut self, addr: PageAddr) -> bool {
        if addr.offset() >= self.all_from {
            return !self.retired.contains(&addr.offset());
        }
        let next = self.listed.get(self.taken);
        let is_next = next.is_some_and(|next| next.offset() == addr.offset());
        self.taken += usize::from(is_next);
        is_next
    }

    /// Returns the first listed page that the scan did not contain.
    pub(crate) fn missing(&self) -> Option<PageAddr> {
        self.listed.get(self.taken).copied()
    }
}

/// A readable checkpoint of the chain, with its segment table.
struct ChainedCheckpoint {
    checkpoint: Checkpoint,
    /// Rows by number of the segment.
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

/// Opens the checkpoints of the chain up to `newest`, in ascending order: `None` for one that is damaged, and for one whose file is missing
/// where the next one names it as its base.
fn links(
    newest: &Checkpoint,
    disk: &Arc<dyn Disk>,
) -> Result<Vec<Option<ChainedCheckpoint>>, StateError> {
    let mut links = Vec::new();
    let mut last = None;
    for sequence in newest.chain()? {
        let link = unless_damaged(ChainedCheckpoint::open(disk, sequence))?;
        let base = link.as_ref().and_then(|link| link.checkpoint.id().before());
        if base > last {
            links.push(None);
        }
        links.push(link);
        last = Some(sequence);
    }
    Ok(links)
}

/// Converts an error of damage to `None`.
fn unless_damaged<T>(result: Result<T, StateError>) -> Result<Option<T>, StateError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

impl NamedPages {
    /// Finds the pages that the checkpoint `newest` names, from its own sections except for the
    /// index, and from the readable part of the checkpoints that it is on.
    pub(crate) fn by(newest: &Checkpoint, disk: &Arc<dyn Disk>) -> Result<Self, StateError> {
        let links = links(newest, disk)?;
        let (at, pages) = known(&links)?;
        let Some(base) = &links[at] else {
            return Err(damaged_index("no list of pages"));
        };
        // The number of a segment may have been used again since; sequence numbers never are.
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
            // Both tables contain all segments in which the first of the two retired a page.
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

    /// Returns the pages of each segment, with the number of the segment.
    pub(crate) fn into_segments(self) -> impl Iterator<Item = (u32, SegmentPages)> {
        self.0.into_iter()
    }
}

/// Returns all pages of one checkpoint of the chain, and that checkpoint's position: the last
/// before any damage, whose index is readable, or else the first that has a list of its pages.
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
        // Only places are read from the nodes, and no node is hashed.
        let index = StoredIndex::open(&whole, Commitment::default())?;
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

//! Blocks with logs of given addresses and topics.

use crate::{
    ChainIndex, IndexError,
    entry::{ADDRESS_BIT, Kind, NO_RECEIPTS, NO_RECEIPTS_BIT, log_key, topic_bit},
    index::first_missing,
    keeper::{Live, LiveRun},
    recent::Recent,
};
use alloy_primitives::{Address, B256};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::Db;
use std::{ops::RangeInclusive, slice};

/// Which logs are asked for, as `eth_getLogs` does it: a log passes if its address is one of `addresses`,
/// and each of its topics one of those at the same place. No values let everything pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Addresses of contracts, of which any will do.
    pub addresses: Vec<Address>,
    /// For each place of a topic, the topics of which any will do.
    pub topics: [Vec<B256>; 4],
}

/// Entries of logs in a page, about: many blocks of one key take 3 to 4 bytes each.
const ENTRIES_OF_PAGE: u64 = 1_000;

/// Values of which a log must have one, at one of the places of `bits`.
struct Criterion {
    bits: u32,
    keys: Vec<u64>,
}

impl Criterion {
    /// Blocks whose receipts are not known.
    fn unknown(seed: u64) -> Self {
        Self {
            bits: NO_RECEIPTS_BIT,
            keys: vec![log_key(seed, NO_RECEIPTS)],
        }
    }

    /// Number of its entries in a range, about.
    fn weight(&self, live: &Live, range: &RangeInclusive<u32>) -> u64 {
        let runs = live.runs.iter();
        let runs = runs.filter_map(|run| Some((run, live_blocks(run, range)?)));
        let pages = runs.flat_map(|(run, blocks)| {
            let keys = self.keys.iter();
            keys.map(move |key| run.run.count_pages_of(Kind::Logs, *key, &blocks))
        });
        let pages = pages.sum::<u64>() * ENTRIES_OF_PAGE;
        let keys = self.keys.iter();
        let recent = keys.flat_map(|key| live.recent.log_blocks(*key, self.bits, range));
        pages + recent.count() as u64
    }

    /// Blocks in memory that have one of its values, ascending.
    fn recent_blocks(&self, recent: &Recent, range: &RangeInclusive<u32>) -> Vec<u32> {
        let keys = self.keys.iter();
        let blocks = keys.flat_map(|key| recent.log_blocks(*key, self.bits, range));
        self.in_order(blocks.collect())
    }

    /// Blocks of runs that have one of its values, ascending.
    fn run_blocks(
        &self,
        runs: &[LiveRun],
        range: &RangeInclusive<u32>,
    ) -> Result<Vec<u32>, IndexError> {
        let mut blocks = Vec::new();
        for key in &self.keys {
            for run in runs {
                let Some(range) = live_blocks(run, range) else {
                    continue;
                };
                let mut cursor = run.run.seek(Kind::Logs, *key, &range, u64::MAX)?;
                while let Some(entry) = cursor.entry()
                    && entry.block <= *range.end()
                {
                    if entry.place & self.bits != 0 {
                        blocks.push(entry.block);
                    }
                    cursor.advance()?;
                }
            }
        }
        Ok(self.in_order(blocks))
    }

    /// Those of `blocks`, which ascend, that have one of its values, by runs.
    fn among(&self, runs: &[LiveRun], blocks: &[u32]) -> Result<Vec<u32>, IndexError> {
        let mut has = vec![false; blocks.len()];
        for key in &self.keys {
            for run in runs {
                let (first, last) = (run.first(), run.last);
                let from = blocks.partition_point(|block| u64::from(*block) < first);
                let to = blocks.partition_point(|block| u64::from(*block) <= last);
                let (blocks, has) = (&blocks[from..to], &mut has[from..to]);
                let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
                    continue;
                };
                let range = *first..=*last;
                let wanted = blocks.len() as u64;
                let mut cursor = run.run.seek(Kind::Logs, *key, &range, wanted)?;
                for (block, has) in blocks.iter().zip(has) {
                    cursor.skip_to(*block)?;
                    *has |= cursor.is_at(*block, self.bits);
                }
            }
        }
        let blocks = blocks.iter().zip(has);
        Ok(blocks
            .filter_map(|(block, has)| has.then_some(*block))
            .collect())
    }

    /// Blocks that ascend for each key, as one ascending list.
    fn in_order(&self, mut blocks: Vec<u32>) -> Vec<u32> {
        if self.keys.len() > 1 {
            blocks.sort_unstable();
            blocks.dedup();
        }
        blocks
    }
}

impl LogFilter {
    /// Whether a log with this address and these topics passes.
    #[must_use]
    pub fn passes(&self, address: &Address, topics: &[B256]) -> bool {
        let is_asked = self.addresses.is_empty() || self.addresses.contains(address);
        is_asked
            && self.topics.iter().enumerate().all(|(index, asked)| {
                let topic = topics.get(index);
                asked.is_empty() || topic.is_some_and(|topic| asked.contains(topic))
            })
    }

    fn criteria(&self, seed: u64) -> Vec<Criterion> {
        let addresses = self.addresses.iter();
        let mut criteria = vec![Criterion {
            bits: ADDRESS_BIT,
            keys: addresses
                .map(|value| log_key(seed, value.as_slice()))
                .collect(),
        }];
        criteria.extend(self.topics.iter().enumerate().map(|(index, topics)| {
            let keys = topics.iter().map(|value| log_key(seed, value.as_slice()));
            Criterion {
                bits: topic_bit(index),
                keys: keys.collect(),
            }
        }));
        criteria.retain(|criterion| !criterion.keys.is_empty());
        criteria
    }
}

/// Blocks of a range that may have logs that pass a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlocks {
    /// Their numbers, ascending, with those of all blocks whose receipts are not stored. Few others are among
    /// them: a block may have the values in different logs, and values may have equal keys.
    pub blocks: Vec<BlockNumber>,
    /// The newest block that was searched: less than the range's end if the head is below.
    pub upto: BlockNumber,
    /// The newest block of the searched chain: the result is valid while it is canonical.
    pub at: BlockId,
}

impl ChainIndex {
    /// The canonical blocks in `range` that may have logs which pass `filter`. Memory is in proportion to
    /// the length of the range: search long ones piece by piece.
    ///
    /// # Errors
    ///
    /// [`IndexError::NotIndexed`] if a block of the range is not in the index, [`IndexError::Behind`] if
    /// one is not there yet, and errors of the disk and of damaged files.
    pub fn log_blocks(
        &self,
        db: &Db,
        filter: &LogFilter,
        range: RangeInclusive<BlockNumber>,
    ) -> Result<LogBlocks, IndexError> {
        self.reading(db, |reached| {
            let head = db.head();
            let from = (*range.start()).max(db.genesis().number);
            let to = (*range.end()).min(head.number);
            let newest = reached.upto.map_or(0, |upto| upto.number);
            if reached.is_behind && to > newest {
                return Err(reached.behind(db));
            }
            let upto = to.min(newest);
            let found = |blocks| {
                let at = reached.upto.unwrap_or(head);
                Ok(LogBlocks { blocks, upto, at })
            };
            if from > upto {
                return found(Vec::new());
            }
            // Numbers of indexed blocks have 32 bits.
            let wanted = from as u32..=upto as u32;
            // Blocks move from memory to runs, so both are taken at one moment.
            let (runs, criteria, unknown, mut blocks, first_recent) = {
                let live = self.keeper.live.read();
                let unknown = Criterion::unknown(live.seed);
                let mut criteria = filter.criteria(live.seed);
                // The rarest first: the others are only looked up for what it leaves.
                criteria.sort_by_cached_key(|criterion| criterion.weight(&live, &wanted));
                let mut blocks = in_recent(&live.recent, &criteria, &wanted);
                blocks.extend(unknown.recent_blocks(&live.recent, &wanted));
                let first = live.recent.blocks().first().map(|block| block.id.number);
                (live.runs.clone(), criteria, unknown, blocks, first)
            };
            if let Some(number) = first_missing(&runs, first_recent, from..=upto) {
                let oldest = self.stats().oldest;
                return Err(IndexError::NotIndexed { number, oldest });
            }
            if criteria.is_empty() {
                return found(wanted.map(u64::from).collect());
            }
            blocks.append(&mut in_runs(&runs, &criteria, &wanted)?);
            blocks.append(&mut unknown_in_runs(&runs, &unknown, &wanted)?);
            blocks.sort_unstable();
            blocks.dedup();
            found(blocks.into_iter().map(u64::from).collect())
        })
    }

    /// Number of indexed blocks with transactions whose receipts are not known.
    ///
    /// # Errors
    ///
    /// Errors of the disk and of damaged files.
    pub fn count_without_receipts(&self) -> Result<u64, IndexError> {
        let all = 0..=u32::MAX;
        let (runs, unknown, recent) = {
            let live = self.keeper.live.read();
            let unknown = Criterion::unknown(live.seed);
            let recent = unknown.recent_blocks(&live.recent, &all).len();
            (live.runs.clone(), unknown, recent)
        };
        let blocks = unknown_in_runs(&runs, &unknown, &all)?;
        Ok((recent + blocks.len()) as u64)
    }
}

/// Blocks in memory that meet all criteria, ascending.
fn in_recent(recent: &Recent, criteria: &[Criterion], wanted: &RangeInclusive<u32>) -> Vec<u32> {
    let Some((first, others)) = criteria.split_first() else {
        return Vec::new();
    };
    let mut blocks = first.recent_blocks(recent, wanted);
    for criterion in others {
        blocks.retain(|block| {
            let mut keys = criterion.keys.iter();
            keys.any(|key| recent.has_log(*key, criterion.bits, *block))
        });
    }
    blocks
}

/// Blocks of runs that meet all criteria, ascending.
fn in_runs(
    runs: &[LiveRun],
    criteria: &[Criterion],
    wanted: &RangeInclusive<u32>,
) -> Result<Vec<u32>, IndexError> {
    let Some((first, others)) = criteria.split_first() else {
        return Ok(Vec::new());
    };
    let mut blocks = first.run_blocks(runs, wanted)?;
    for criterion in others {
        if blocks.is_empty() {
            break;
        }
        blocks = criterion.among(runs, &blocks)?;
    }
    Ok(blocks)
}

/// Blocks of runs whose receipts are not known, ascending.
fn unknown_in_runs(
    runs: &[LiveRun],
    unknown: &Criterion,
    wanted: &RangeInclusive<u32>,
) -> Result<Vec<u32>, IndexError> {
    let mut blocks = Vec::new();
    for run in runs {
        if run.run.has_unknown(unknown.keys[0])? {
            blocks.append(&mut unknown.run_blocks(slice::from_ref(run), wanted)?);
        }
    }
    Ok(blocks)
}

/// The blocks of `range` that count in a run; `None` if there are none.
fn live_blocks(run: &LiveRun, range: &RangeInclusive<u32>) -> Option<RangeInclusive<u32>> {
    // Numbers of indexed blocks have 32 bits.
    let first = (run.first() as u32).max(*range.start());
    let last = (run.last as u32).min(*range.end());
    (first <= last).then_some(first..=last)
}

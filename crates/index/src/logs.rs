//! Blocks with logs of given addresses and topics.

use crate::{
    ChainIndex, IndexError,
    entry::{ADDRESS_BIT, Kind, NO_RECEIPTS, NO_RECEIPTS_BIT, log_key, topic_bit},
    keeper::LiveRun,
};
use alloy_primitives::{Address, B256};
use cambium_primitives::BlockNumber;
use cambium_state::Db;
use std::{collections::BTreeSet, ops::RangeInclusive};

/// Which logs are asked for, as `eth_getLogs` does it: a log passes if its address is one of `addresses`,
/// and each of its topics one of those at the same place. No values let everything pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Addresses of contracts, of which any will do.
    pub addresses: Vec<Address>,
    /// For each place of a topic, the topics of which any will do.
    pub topics: [Vec<B256>; 4],
}

/// Values of which a log must have one, at one of the places of `bits`.
struct Criterion {
    bits: u32,
    keys: Vec<u64>,
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
        let mut criteria = filter.criteria(self.keeper.seed);
        let is_any = criteria.is_empty();
        // Blocks whose receipts are not known come last.
        criteria.push(Criterion {
            bits: NO_RECEIPTS_BIT,
            keys: vec![log_key(self.keeper.seed, NO_RECEIPTS)],
        });
        self.reading(db, |reached| {
            let head = db.head();
            let (from, to) = (*range.start(), (*range.end()).min(head.number));
            let newest = reached.upto.map_or(0, |upto| upto.number);
            if reached.is_behind && to > newest {
                return Err(reached.behind(db));
            }
            let upto = to.min(newest);
            if from > upto {
                let blocks = Vec::new();
                return Ok(LogBlocks { blocks, upto });
            }
            // Numbers of indexed blocks have 32 bits.
            let wanted = from as u32..=upto as u32;
            // What is in memory goes to a run: both are of one moment.
            let (runs, recent, first_recent) = {
                let live = self.live();
                let recent = criteria.iter().map(|criterion| {
                    let keys = criterion.keys.iter();
                    let blocks =
                        keys.flat_map(|key| live.recent.log_blocks(*key, criterion.bits, &wanted));
                    blocks.collect::<BTreeSet<_>>()
                });
                let recent: Vec<_> = recent.collect();
                let first = live.recent.blocks().first().map(|block| block.id.number);
                (live.runs.clone(), recent, first)
            };
            self.check_complete(&runs, first_recent, from..=upto)?;
            if is_any {
                let blocks = wanted.map(u64::from).collect();
                return Ok(LogBlocks { blocks, upto });
            }
            let mut found = Vec::with_capacity(criteria.len());
            for (criterion, mut blocks) in criteria.iter().zip(recent) {
                blocks.append(&mut blocks_of(&runs, criterion, &wanted)?);
                found.push(blocks);
            }
            let unknown = found.pop().unwrap_or_default();
            let all = found.into_iter().reduce(|a, b| &a & &b);
            let blocks = &all.unwrap_or_default() | &unknown;
            let blocks = blocks.into_iter().map(u64::from).collect();
            Ok(LogBlocks { blocks, upto })
        })
    }

    /// Checks that the index has all blocks of a range. `recent` is the first block in memory.
    fn check_complete(
        &self,
        runs: &[LiveRun],
        recent: Option<BlockNumber>,
        range: RangeInclusive<BlockNumber>,
    ) -> Result<(), IndexError> {
        let mut next = *range.start();
        for run in runs {
            if run.first() <= next && next <= run.last {
                next = run.last + 1;
            }
        }
        if next <= *range.end() && recent.is_none_or(|recent| next < recent) {
            let oldest = self.stats().oldest;
            return Err(IndexError::NotIndexed {
                number: next,
                oldest,
            });
        }
        Ok(())
    }
}

/// Blocks of runs with one of the criterion's values.
fn blocks_of(
    runs: &[LiveRun],
    criterion: &Criterion,
    range: &RangeInclusive<u32>,
) -> Result<BTreeSet<u32>, IndexError> {
    let mut blocks = BTreeSet::new();
    for key in &criterion.keys {
        for run in runs {
            let last = run.last.min((*range.end()).into());
            if run.first() > last || run.last < (*range.start()).into() {
                continue;
            }
            let mut cursor = run.run.seek(Kind::Logs, *key, *range.start())?;
            while let Some(entry) = cursor.entry()
                && u64::from(entry.block) <= last
            {
                if entry.place & criterion.bits != 0 {
                    blocks.insert(entry.block);
                }
                cursor.advance()?;
            }
        }
    }
    Ok(blocks)
}

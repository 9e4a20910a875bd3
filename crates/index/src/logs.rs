//! Blocks with logs of given addresses and topics.

use crate::{
    ChainIndex, IndexError,
    entry::{ADDRESS_BIT, Kind, NO_RECEIPTS, NO_RECEIPTS_BIT, log_key, topic_bit},
    index::first_missing,
    keeper::LiveRun,
};
use alloy_primitives::{Address, B256};
use cambium_primitives::{BlockId, BlockNumber};
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

impl Criterion {
    /// Blocks whose receipts are not known.
    fn unknown(seed: u64) -> Self {
        Self {
            bits: NO_RECEIPTS_BIT,
            keys: vec![log_key(seed, NO_RECEIPTS)],
        }
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
            let (runs, criteria, recent, first_recent) = {
                let live = self.keeper.live.read();
                let mut criteria = filter.criteria(live.seed);
                // Blocks whose receipts are not known come last.
                criteria.push(Criterion::unknown(live.seed));
                let recent = criteria.iter().map(|criterion| {
                    let keys = criterion.keys.iter();
                    let blocks =
                        keys.flat_map(|key| live.recent.log_blocks(*key, criterion.bits, &wanted));
                    blocks.collect::<BTreeSet<_>>()
                });
                let recent: Vec<_> = recent.collect();
                let first = live.recent.blocks().first().map(|block| block.id.number);
                (live.runs.clone(), criteria, recent, first)
            };
            if let Some(number) = first_missing(&runs, first_recent, from..=upto) {
                let oldest = self.stats().oldest;
                return Err(IndexError::NotIndexed { number, oldest });
            }
            if criteria.len() == 1 {
                return found(wanted.map(u64::from).collect());
            }
            let mut of_each = Vec::with_capacity(criteria.len());
            for (criterion, mut blocks) in criteria.iter().zip(recent) {
                blocks.append(&mut blocks_with(&runs, criterion, &wanted)?);
                of_each.push(blocks);
            }
            let unknown = of_each.pop().unwrap_or_default();
            let all = of_each.into_iter().reduce(|a, b| &a & &b);
            let blocks = &all.unwrap_or_default() | &unknown;
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
        let (runs, unknown, mut blocks) = {
            let live = self.keeper.live.read();
            let unknown = Criterion::unknown(live.seed);
            let recent = live.recent.log_blocks(unknown.keys[0], unknown.bits, &all);
            let recent = recent.collect::<BTreeSet<_>>();
            (live.runs.clone(), unknown, recent)
        };
        blocks.append(&mut blocks_with(&runs, &unknown, &all)?);
        Ok(blocks.len() as u64)
    }
}

/// Blocks of runs with one of the criterion's values.
fn blocks_with(
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

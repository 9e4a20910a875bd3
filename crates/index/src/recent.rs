//! The newest blocks of an index, which are not in files yet.

use crate::{
    StoredBody, StoredBodyError,
    body::each_log,
    entry::{
        ADDRESS_BIT, BLOCK_PLACE, Entry, NO_RECEIPTS, NO_RECEIPTS_BIT, hash_key, log_key, topic_bit,
    },
};
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{BlockId, BlockNumber};
use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

/// Memory of an entry in the tables, in bytes, about.
const ENTRY_BYTES: usize = 64;

/// A block with all that is indexed of it.
pub(crate) struct DigestedBlock {
    pub(crate) id: BlockId,
    pub(crate) body: Bytes,
    /// Hashes with their places: that of the block, and those of its transactions.
    hashes: Vec<(B256, u32)>,
    /// Keys of its logs, with where they occur.
    logs: BTreeMap<u64, u32>,
    /// Whether it has transactions whose receipts are not known.
    lacks_receipts: bool,
}

impl DigestedBlock {
    /// Takes a block apart. `seed` is that of the keys of logs.
    pub(crate) fn new(id: BlockId, body: Bytes, seed: u64) -> Result<Self, StoredBodyError> {
        let parts = StoredBody::decode(&body)?;
        let mut hashes = vec![(id.hash, BLOCK_PLACE)];
        for (index, transaction) in (1..).zip(parts.transactions()?) {
            hashes.push((keccak256(transaction), index));
        }
        let mut logs = BTreeMap::<u64, u32>::new();
        let receipts = parts.receipts_rlp()?;
        let lacks_receipts = receipts.is_none() && hashes.len() > 1;
        if lacks_receipts {
            logs.insert(log_key(seed, NO_RECEIPTS), NO_RECEIPTS_BIT);
        }
        if let Some(receipts) = receipts {
            each_log(&receipts, &mut |address, topics| {
                *logs.entry(log_key(seed, address.as_slice())).or_default() |= ADDRESS_BIT;
                for (index, topic) in topics.iter().enumerate() {
                    *logs.entry(log_key(seed, topic.as_slice())).or_default() |= topic_bit(index);
                }
            })?;
        }
        Ok(Self {
            id,
            body,
            hashes,
            logs,
            lacks_receipts,
        })
    }

    /// Its entries of hashes.
    pub(crate) fn hash_entries(&self) -> impl Iterator<Item = Entry> {
        let block = self.id.number as u32;
        self.hashes.iter().map(move |(hash, place)| Entry {
            key: hash_key(hash),
            block,
            place: *place,
        })
    }

    /// Its entries of logs.
    pub(crate) fn log_entries(&self) -> impl Iterator<Item = Entry> {
        let block = self.id.number as u32;
        self.logs.iter().map(move |(key, place)| Entry {
            key: *key,
            block,
            place: *place,
        })
    }
}

/// A block in memory.
#[derive(Clone, Debug)]
pub(crate) struct RecentBlock {
    pub(crate) id: BlockId,
    pub(crate) body: Bytes,
    lacks_receipts: bool,
}

/// Consecutive blocks in memory.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    blocks: Vec<RecentBlock>,
    hashes: HashMap<B256, (u32, u32)>,
    /// Where a key of logs occurs in a block.
    logs: BTreeMap<(u64, u32), u32>,
    body_bytes: usize,
}

impl Recent {
    /// Adds the next block.
    pub(crate) fn push(&mut self, block: DigestedBlock) {
        let number = block.id.number as u32;
        for (hash, place) in block.hashes {
            self.hashes.insert(hash, (number, place));
        }
        let logs = block.logs.into_iter();
        self.logs
            .extend(logs.map(|(key, place)| ((key, number), place)));
        self.body_bytes += block.body.len();
        self.blocks.push(RecentBlock {
            id: block.id,
            body: block.body,
            lacks_receipts: block.lacks_receipts,
        });
    }

    /// All blocks, oldest first.
    pub(crate) fn blocks(&self) -> &[RecentBlock] {
        &self.blocks
    }

    /// The first block with transactions whose receipts are not known.
    pub(crate) fn first_without_receipts(&self) -> Option<BlockNumber> {
        let first = self.blocks.iter().find(|block| block.lacks_receipts);
        first.map(|block| block.id.number)
    }

    /// Memory, in bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.body_bytes + (self.hashes.len() + self.logs.len()) * ENTRY_BYTES
    }

    /// Takes back the blocks above the newest one of which `is_kept` is true.
    pub(crate) fn cut(&mut self, upto: Option<BlockNumber>) {
        let is_kept = |number: BlockNumber| upto.is_some_and(|upto| number <= upto);
        self.blocks.retain(|block| is_kept(block.id.number));
        self.hashes.retain(|_, (block, _)| is_kept((*block).into()));
        self.logs.retain(|(_, block), _| is_kept((*block).into()));
        self.body_bytes = self.blocks.iter().map(|block| block.body.len()).sum();
    }

    /// The block with that number.
    pub(crate) fn block(&self, number: BlockNumber) -> Option<&RecentBlock> {
        let first = self.blocks.first()?.id.number;
        self.blocks
            .get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    /// The block and the place of a hash.
    pub(crate) fn find(&self, hash: &B256) -> Option<(&RecentBlock, u32)> {
        let (block, place) = self.hashes.get(hash)?;
        Some((self.block((*block).into())?, *place))
    }

    /// Entries of hashes, sorted.
    pub(crate) fn hash_entries(&self) -> Vec<Entry> {
        let entries = self.hashes.iter().map(|(hash, (block, place))| Entry {
            key: hash_key(hash),
            block: *block,
            place: *place,
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        entries
    }

    /// Entries of logs, sorted.
    pub(crate) fn log_entries(&self) -> impl Iterator<Item = Entry> {
        let entries = self.logs.iter();
        entries.map(|((key, block), place)| Entry {
            key: *key,
            block: *block,
            place: *place,
        })
    }

    /// The blocks in `range` in which a key of logs occurs at one of the places of `bits`.
    pub(crate) fn log_blocks(
        &self,
        key: u64,
        bits: u32,
        range: &RangeInclusive<u32>,
    ) -> impl Iterator<Item = u32> {
        let entries = self.logs.range((key, *range.start())..=(key, *range.end()));
        let entries = entries.filter(move |(_, place)| *place & bits != 0);
        entries.map(|((_, block), _)| *block)
    }
    /// Whether a key of logs occurs in a block at one of the places of `bits`.
    pub(crate) fn has_log(&self, key: u64, bits: u32, block: u32) -> bool {
        let place = self.logs.get(&(key, block));
        place.is_some_and(|place| place & bits != 0)
    }
}

//! A run in memory: the entries of the newest blocks, sorted.

use crate::entry::{Entry, Key, entries_of, key_of, number_of, packed_at};
use cambium_primitives::{BlockNumber, Changes};
use std::ops::RangeInclusive;

/// Sorted entries of consecutive blocks, in memory. It never changes.
pub(crate) struct MemoryRun {
    /// The blocks whose changes it has.
    pub(crate) blocks: RangeInclusive<BlockNumber>,
    /// The entries, packed.
    bytes: Vec<u8>,
    /// Where each entry begins in `bytes`.
    starts: Vec<u32>,
}

impl MemoryRun {
    /// A run that has no entries yet.
    pub(crate) fn empty(blocks: RangeInclusive<BlockNumber>) -> Self {
        Self {
            blocks,
            bytes: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// The entries of one block.
    pub(crate) fn of_block(number: BlockNumber, changes: &Changes, reverts: &Changes) -> Self {
        let mut run = Self::empty(number..=number);
        entries_of(changes, reverts, |key: Key, value| {
            run.push(key.at(number).as_bytes(), value);
        });
        run.shrink_to_fit();
        run
    }

    /// Two runs as one. `newer` has the blocks that follow.
    pub(crate) fn merged(older: &Self, newer: &Self) -> Self {
        let mut run = Self::empty(*older.blocks.start()..=*newer.blocks.end());
        run.bytes
            .reserve_exact(older.bytes.len() + newer.bytes.len());
        run.starts.reserve_exact(older.len() + newer.len());
        let (mut left, mut right) = (0, 0);
        loop {
            let take_left = match (older.entry(left), newer.entry(right)) {
                (None, None) => return run,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(older), Some(newer)) => older < newer,
            };
            let entry = match take_left {
                true => older.entry(left),
                false => newer.entry(right),
            };
            let entry = entry.expect("just looked at");
            run.push(entry.position, entry.value);
            *(if take_left { &mut left } else { &mut right }) += 1;
        }
    }

    /// The entries of blocks up to `last`. `None` if all blocks are above it.
    pub(crate) fn up_to(&self, last: BlockNumber) -> Option<Self> {
        let blocks = *self.blocks.start()..=last.min(*self.blocks.end());
        if blocks.is_empty() {
            return None;
        }
        let mut run = Self::empty(blocks);
        for entry in (0..self.len()).filter_map(|at| self.entry(at)) {
            if number_of(entry.position) <= last {
                run.push(entry.position, entry.value);
            }
        }
        run.shrink_to_fit();
        Some(run)
    }

    /// Adds an entry, which must come after those that are there unless [`MemoryRun::sorted`]
    /// follows.
    pub(crate) fn push(&mut self, position: &[u8], value: &[u8]) {
        self.starts.push(self.bytes.len() as u32);
        Entry { position, value }.pack(&mut self.bytes);
    }

    /// Moves the entries of another run behind these. [`MemoryRun::sorted`] must follow.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let shift = self.bytes.len() as u32;
        self.bytes.append(&mut other.bytes);
        self.starts
            .extend(other.starts.drain(..).map(|start| start + shift));
    }

    fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.starts.shrink_to_fit();
    }

    /// The same entries in their order.
    pub(crate) fn sorted(mut self, blocks: RangeInclusive<BlockNumber>) -> Self {
        let bytes = &self.bytes;
        self.starts
            .sort_unstable_by_key(|start| packed_at(bytes, *start as usize).position);
        self.blocks = blocks;
        self.shrink_to_fit();
        self
    }

    /// Number of keys that have entries.
    pub(crate) fn keys(&self) -> u64 {
        let keys = (0..self.len()).filter_map(|at| self.entry(at));
        let keys = keys.map(|entry| key_of(entry.position));
        let (count, _) = keys.fold((0, None), |(count, last), key| {
            (count + u64::from(last != Some(key)), Some(key))
        });
        count
    }

    /// Number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.starts.len()
    }

    /// Its memory, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.starts.capacity()
    }

    /// The entry at an index.
    pub(crate) fn entry(&self, index: usize) -> Option<Entry<'_>> {
        Some(packed_at(&self.bytes, *self.starts.get(index)? as usize))
    }

    /// Index of the first entry at `position` or after it.
    pub(crate) fn seek(&self, position: &[u8]) -> usize {
        let starts = 0..self.starts.len();
        let (mut low, mut high) = (starts.start, starts.end);
        while low < high {
            let middle = low.midpoint(high);
            match self
                .entry(middle)
                .is_some_and(|entry| entry.position < position)
            {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// A key's changes in block `from` or later: the block of each, and the value before it.
    pub(crate) fn find_all(
        &self,
        key: &Key,
        from: BlockNumber,
    ) -> impl Iterator<Item = (BlockNumber, &[u8])> {
        let first = self.seek(key.at(from).as_bytes());
        let entries = (first..).map_while(|at| self.entry(at));
        let key = *key;
        entries
            .take_while(move |entry| key_of(entry.position) == key.as_bytes())
            .map(|entry| (number_of(entry.position), entry.value))
    }

    /// The first of these.
    pub(crate) fn find(&self, key: &Key, from: BlockNumber) -> Option<(BlockNumber, &[u8])> {
        self.find_all(key, from).next()
    }
}

/// Largest number of bytes of a run: the starts of its entries have 32 bits.
pub(crate) const MEMORY_RUN_BYTES_MAX: usize = u32::MAX as usize / 2;

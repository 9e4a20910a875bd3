//! Read set of a transaction: keys, present or not, and ranges up to where an iteration got.
//!
//! A commit since the transaction's snapshot conflicts with it if one of the written keys was read.
//! A key that an iteration passed over counts as read although it was absent: so no *phantom* can
//! appear in a range between the iteration and the commit.

use crate::range::{KeyRange, predecessor, successor};
use alloy_primitives::B256;
use std::{collections::BTreeMap, fmt};

/// A read of a transaction that another one has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadTarget {
    /// A key that was read, present or not.
    Key(B256),
    /// The visited part of a range that was iterated over.
    Range(KeyRange),
}

impl ReadTarget {
    /// All keys of which something was read.
    pub fn range(&self) -> KeyRange {
        match self {
            Self::Key(key) => KeyRange::of(*key),
            Self::Range(range) => *range,
        }
    }
}

impl fmt::Display for ReadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "the key {key:#x}"),
            Self::Range(range) => write!(f, "the range {range}"),
        }
    }
}

/// Reads of a transaction that is at work.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// In the order in which they were read; sorted and unique up to `compacted`.
    keys: Vec<B256>,
    compacted: usize,
    /// Last keys of disjoint ranges that don't touch, by their first keys.
    ranges: BTreeMap<B256, B256>,
}

/// Number of keys from which on reading keys again and again takes no further memory.
const COMPACTED_MIN: usize = 1024;

impl ReadSet {
    /// Adds keys that were read.
    pub(crate) fn add_keys(&mut self, keys: &[B256]) {
        self.keys.extend_from_slice(keys);
        if self.keys.len() >= COMPACTED_MIN.max(2 * self.compacted) {
            self.compact();
        }
    }

    /// Adds a range that was read.
    pub(crate) fn add_range(&mut self, range: KeyRange) {
        let (mut from, mut through) = (range.from(), range.through());
        // From the last range that begins before this one's end, or right behind it.
        let end = successor(&through).unwrap_or(through);
        while let Some((&other_from, &other_through)) = self.ranges.range(..=end).next_back() {
            let touching = predecessor(&from).unwrap_or(from);
            if other_through < touching {
                break;
            }
            self.ranges.remove(&other_from);
            from = from.min(other_from);
            through = through.max(other_through);
        }
        self.ranges.insert(from, through);
    }

    /// The reads, in order.
    pub(crate) fn sorted(mut self) -> SortedReads {
        self.compact();
        let ranges = self.ranges.into_iter();
        SortedReads {
            keys: self.keys,
            ranges: ranges
                .filter_map(|(from, through)| KeyRange::new(from, through))
                .collect(),
        }
    }

    fn compact(&mut self) {
        self.keys.sort_unstable();
        self.keys.dedup();
        self.compacted = self.keys.len();
    }
}

/// All reads of a transaction that is to be committed, sorted.
#[derive(Debug, Default)]
pub(crate) struct SortedReads {
    keys: Vec<B256>,
    ranges: Vec<KeyRange>,
}

impl SortedReads {
    /// Whether nothing was read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// Keys that were read one by one, sorted and unique.
    pub(crate) fn keys(&self) -> &[B256] {
        &self.keys
    }

    /// All reads: keys, then ranges.
    pub(crate) fn targets(&self) -> impl Iterator<Item = ReadTarget> {
        let keys = self.keys.iter().copied().map(ReadTarget::Key);
        keys.chain(self.ranges.iter().copied().map(ReadTarget::Range))
    }

    /// Returns a read, and the key in it that is one of the `written` ones, which are sorted.
    pub(crate) fn overlap(&self, written: &[B256]) -> Option<(ReadTarget, B256)> {
        self.key_in(written).or_else(|| self.range_over(written))
    }

    fn key_in(&self, written: &[B256]) -> Option<(ReadTarget, B256)> {
        // Looks each of the fewer up among the more.
        let (few, many) = match self.keys.len() < written.len() {
            true => (self.keys.as_slice(), written),
            false => (written, self.keys.as_slice()),
        };
        let mut left = many;
        for key in few {
            match left.binary_search(key) {
                Ok(_) => return Some((ReadTarget::Key(*key), *key)),
                Err(at) => left = &left[at..],
            }
        }
        None
    }

    fn range_over(&self, written: &[B256]) -> Option<(ReadTarget, B256)> {
        self.ranges.iter().find_map(|range| {
            let at = written.partition_point(|key| *key < range.from());
            let key = written.get(at).filter(|key| range.contains(key))?;
            Some((ReadTarget::Range(*range), *key))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(byte: u8) -> B256 {
        B256::with_last_byte(byte)
    }

    proptest! {
        #[test]
        fn overlaps_are_those_of_sets_of_keys(
            keys in proptest::collection::vec(0u8..40, 0..8),
            ranges in proptest::collection::vec((0u8..40, 0u8..5), 0..5),
            written in proptest::collection::btree_set(0u8..40, 0..8),
        ) {
            let mut reads = ReadSet::default();
            let mut model: BTreeSet<u8> = keys.iter().copied().collect();
            for read in &keys {
                reads.add_keys(&[key(*read)]);
            }
            for (from, len) in &ranges {
                reads.add_range(KeyRange::new(key(*from), key(from + len)).unwrap());
                model.extend(*from..=from + len);
            }
            let reads = reads.sorted();
            prop_assert_eq!(reads.is_empty(), model.is_empty());
            for read in reads.targets() {
                prop_assert!(model.contains(&read.range().from()[31]));
            }
            for (one, next) in reads.ranges.iter().zip(reads.ranges.iter().skip(1)) {
                prop_assert!(successor(&one.through()).unwrap() < next.from());
            }
            let sorted: Vec<_> = written.iter().map(|written| key(*written)).collect();
            match reads.overlap(&sorted) {
                None => prop_assert!(model.is_disjoint(&written)),
                Some((target, found)) => {
                    prop_assert!(model.contains(&found[31]) && written.contains(&found[31]));
                    let is_in_target = match target {
                        ReadTarget::Key(read) => read == found,
                        ReadTarget::Range(range) => range.contains(&found),
                    };
                    prop_assert!(is_in_target);
                }
            }
        }
    }

    #[test]
    fn keys_that_are_read_again_and_again_take_memory_once() {
        let mut reads = ReadSet::default();
        for round in 0..100_000u32 {
            reads.add_keys(&[key(round as u8)]);
        }
        assert!(reads.keys.len() < COMPACTED_MIN, "{}", reads.keys.len());
    }

    #[test]
    fn ranges_at_both_ends_of_the_keys_are_joined() {
        let mut reads = ReadSet::default();
        let last = KeyRange::ALL.through();
        reads.add_range(KeyRange::new(last, last).unwrap());
        reads.add_range(KeyRange::new(B256::ZERO, B256::ZERO).unwrap());
        reads.add_range(KeyRange::new(key(1), predecessor(&last).unwrap()).unwrap());
        assert_eq!(reads.sorted().ranges, [KeyRange::ALL]);
    }
}

//! A filter of the keys that steps have written.

use super::super::sync::{AtomicU64, Ordering};
use alloy_primitives::{Address, U256};

/// Bits of the filter for each transaction, which writes a few keys.
const FILTER_BITS: usize = 64;
const FILTER_WORDS_MIN: usize = 256;

/// A set of keys, some of which it may contain without their having been added.
pub(super) struct Filter(Box<[AtomicU64]>);

impl Filter {
    pub(super) fn new(transactions: usize) -> Self {
        let words = transactions.saturating_mul(FILTER_BITS) / 64;
        let words = words.next_power_of_two().max(FILTER_WORDS_MIN);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// The word and the bit of an account, for which `slot` is zero, or of a slot.
    fn place(&self, address: &Address, slot: U256) -> (&AtomicU64, u64) {
        let [.., a, b, c, d, e, f, g, h] = address.0.0;
        let [low, _, _, high] = slot.into_limbs();
        let key = u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ low ^ high.rotate_left(32);
        // Fibonacci hashing: the upper bits depend on all bits of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (hash >> 26) as usize & (self.0.len() - 1);
        (&self.0[word], 1 << (hash >> 58))
    }

    /// Reads nothing but the bit: values are read under their shard's lock.
    pub(super) fn has(&self, address: &Address, slot: U256) -> bool {
        let (word, bit) = self.place(address, slot);
        word.load(Ordering::Relaxed) & bit != 0
    }

    pub(super) fn add(&self, address: &Address, slot: U256) {
        let (word, bit) = self.place(address, slot);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::sync::one_thread, *};

    #[test]
    fn the_filter_contains_whatever_was_added_and_little_else() {
        one_thread(|| {
            let filter = Filter::new(500);
            let key = |number: u64| {
                let address = Address::from_word(alloy_primitives::keccak256(number.to_be_bytes()));
                (address, U256::from(number % 3))
            };
            for number in 0..1000 {
                let (address, slot) = key(number);
                filter.add(&address, slot);
            }
            let contained = |numbers: std::ops::Range<u64>| {
                let keys = numbers.map(key);
                keys.filter(|(address, slot)| filter.has(address, *slot))
                    .count()
            };
            assert_eq!(contained(0..1000), 1000);
            assert!(contained(1000..11_000) < 1000);
        });
    }
}

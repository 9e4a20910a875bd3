//! A Bloom filter in blocks of 32 bytes, in each of which a key sets eight bits, one in each word.

use xxhash_rust::xxh3::xxh3_64;

const BLOCK_WORDS: usize = 8;
const BLOCK_BYTES: usize = 4 * BLOCK_WORDS;
/// Bits for each key: one key of a hundred that a run lacks passes.
const BITS_PER_KEY: u64 = 12;

/// Odd multipliers, one for each word of a block.
const SALTS: [u32; BLOCK_WORDS] = [
    0x9e37_79b1,
    0x85eb_ca77,
    0xc2b2_ae3d,
    0x27d4_eb2f,
    0x1656_67b1,
    0xd3a2_646d,
    0xfd70_46c5,
    0xb55a_4f09,
];

/// A filter of keys, for the sorted runs of a file: it says of most keys that a run does not have them,
/// and never that of a key that it has.
pub struct KeyFilter {
    bytes: Vec<u8>,
}

impl KeyFilter {
    /// Size of a filter of up to `keys` keys, in bytes.
    pub const fn bytes_for(keys: u64) -> u64 {
        let blocks = keys
            .saturating_mul(BITS_PER_KEY)
            .div_ceil(8 * BLOCK_BYTES as u64);
        (if blocks == 0 { 1 } else { blocks }) * BLOCK_BYTES as u64
    }

    /// An empty filter for up to `keys` keys: with more of them it lets more others pass.
    #[must_use]
    pub fn new(keys: u64) -> Self {
        Self {
            bytes: vec![0; Self::bytes_for(keys) as usize],
        }
    }

    /// A filter that was stored. `None` if these bytes can't be one.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let is_whole = !bytes.is_empty() && bytes.len().is_multiple_of(BLOCK_BYTES);
        is_whole.then_some(Self { bytes })
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a key.
    pub fn add(&mut self, key: &[u8]) {
        let (block, bits) = self.place(key);
        for (word, bit) in self.bytes[block..].chunks_exact_mut(4).zip(bits) {
            let set = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) | bit;
            word.copy_from_slice(&set.to_le_bytes());
        }
    }

    /// Whether the key may have been added. False means that it was not.
    pub fn may_have(&self, key: &[u8]) -> bool {
        let (block, bits) = self.place(key);
        let mut words = self.bytes[block..].chunks_exact(4).zip(bits);
        words.all(|(word, bit)| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) & bit != 0)
    }

    /// Where a key's block begins, and its bit in each word.
    fn place(&self, key: &[u8]) -> (usize, [u32; BLOCK_WORDS]) {
        let hash = xxh3_64(key);
        let blocks = (self.bytes.len() / BLOCK_BYTES) as u64;
        let block = ((u128::from(hash) * u128::from(blocks)) >> 64) as usize;
        let low = hash as u32;
        let bits = SALTS.map(|salt| 1 << (low.wrapping_mul(salt) >> 27));
        (block * BLOCK_BYTES, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_passes_and_few_others() {
        let key = |n: u32| n.to_le_bytes();
        let mut filter = KeyFilter::new(10_000);
        (0..10_000).for_each(|n| filter.add(&key(n)));
        let filter = KeyFilter::from_bytes(filter.as_bytes().to_vec()).unwrap();
        assert!((0..10_000).all(|n| filter.may_have(&key(n))));
        let others = (10_000..110_000).filter(|n| filter.may_have(&key(*n)));
        let passed = others.count();
        assert!((100..1_000).contains(&passed), "{passed} of 100,000 passed");
        assert!(KeyFilter::from_bytes(vec![0; 33]).is_none());
        assert!(KeyFilter::from_bytes(Vec::new()).is_none());
    }
}

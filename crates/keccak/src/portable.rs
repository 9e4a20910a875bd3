//! Vectors of plain words, with which tests compare those of a processor.

use crate::{
    block::{Block, Entry},
    vector::{Vector, hash_entries},
};
use alloy_primitives::B256;

/// See [`hash_entries`].
pub(crate) fn hash_portable<const N: usize>(
    blocks: &[Block],
    count: usize,
    entries: &[Entry],
    digests: &mut [B256],
) {
    hash_entries([0; N], blocks, count, entries, digests);
}

impl<const N: usize> Vector<N> for [u64; N] {
    fn splat(self, word: u64) -> Self {
        [word; N]
    }

    fn load4(self, blocks: &[&Block; N], at: usize) -> [Self; 4] {
        [0, 8, 16, 24].map(|offset| self.load(blocks, at + offset))
    }

    fn load(self, blocks: &[&Block; N], at: usize) -> Self {
        blocks.map(|block| u64::from_le_bytes(*block[at..].first_chunk().expect("a word")))
    }

    fn store4(words: [Self; 4]) -> [[u8; 32]; N] {
        core::array::from_fn(|lane| {
            let mut digest = [0; 32];
            for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *bytes = word[lane].to_le_bytes();
            }
            digest
        })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        core::array::from_fn(|lane| self[lane] ^ other[lane])
    }

    #[inline(always)]
    fn rotate<const L: i32, const R: i32>(self) -> Self {
        self.map(|word| word.rotate_left(L as u32))
    }

    #[inline(always)]
    fn chi(self, a: Self, b: Self) -> Self {
        core::array::from_fn(|lane| self[lane] ^ (!a[lane] & b[lane]))
    }
}

//! The permutation and the sponge, written once over vectors of any width.
//!
//! Word `i` of all lanes' states is one vector. The widths differ only in the few operations of
//! [`Vector`].

use crate::block::{Block, Entry};
use alloy_primitives::B256;

/// One word of each of `N` lanes.
///
/// A value proves that the processor has the vector's instructions: every constructor takes another
/// value, and the first value is created after checking the processor.
pub(crate) trait Vector<const N: usize>: Copy {
    /// Returns a vector with `word` in all lanes.
    fn splat(self, word: u64) -> Self;

    /// Loads the four little-endian words at byte `at` of each lane's block.
    fn load4(self, blocks: &[&Block; N], at: usize) -> [Self; 4];

    /// Loads the little-endian word at byte `at` of each lane's block.
    fn load(self, blocks: &[&Block; N], at: usize) -> Self;

    /// Returns four words of each lane as little-endian bytes.
    fn store4(words: [Self; 4]) -> [[u8; 32]; N];

    fn xor(self, other: Self) -> Self;

    /// Rotates to the left by `L` bits; `R` is 64 - `L`.
    fn rotate<const L: i32, const R: i32>(self) -> Self;

    /// `self ^ a ^ b`.
    #[inline(always)]
    fn xor3(self, a: Self, b: Self) -> Self {
        self.xor(a.xor(b))
    }

    /// `self ^ (!a & b)`.
    fn chi(self, a: Self, b: Self) -> Self;
}

const ROUND_CONSTANTS: [u64; 24] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808b,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008a,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000a,
    0x0000_0000_8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];

/// Hashes `entries`, padded inputs of `count` blocks each, `N` side by side. The last vector may
/// be partly filled. `zero` is a vector of zeros.
///
/// Uses loops instead of closures: the compiler does not enable the caller's instructions in a
/// closure that the standard library calls.
#[inline(always)]
pub(crate) fn hash_entries<V: Vector<N>, const N: usize>(
    zero: V,
    blocks: &[Block],
    count: usize,
    entries: &[Entry],
    digests: &mut [B256],
) {
    for group in entries.chunks(N) {
        let mut inputs: [&[Block]; N] = [&[]; N];
        for (lane, input) in inputs.iter_mut().enumerate() {
            // Lanes to spare repeat the first input.
            let entry = group[if lane < group.len() { lane } else { 0 }];
            *input = &blocks[entry.first_block as usize..][..count];
        }
        let mut state = [zero; 25];
        for at in 0..count {
            let mut heads = [&inputs[0][at]; N];
            for (head, input) in heads.iter_mut().zip(&inputs) {
                *head = &input[at];
            }
            state = permute(absorb(state, &heads));
        }
        let hashed = V::store4([state[0], state[1], state[2], state[3]]);
        for (entry, digest) in group.iter().zip(hashed) {
            digests[entry.index as usize] = B256::new(digest);
        }
    }
}

#[inline(always)]
fn absorb<V: Vector<N>, const N: usize>(mut state: [V; 25], blocks: &[&Block; N]) -> [V; 25] {
    for four in 0..4 {
        let words = state[0].load4(blocks, four * 32);
        for (at, word) in words.into_iter().enumerate() {
            state[four * 4 + at] = state[four * 4 + at].xor(word);
        }
    }
    state[16] = state[16].xor(state[0].load(blocks, 128));
    state
}

/// The permutation Keccak-f\[1600\] (FIPS 202).
#[inline(always)]
fn permute<V: Vector<N>, const N: usize>(mut state: [V; 25]) -> [V; 25] {
    let mut parities = [state[0]; 5];
    for x in 0..5 {
        parities[x] = state[x]
            .xor3(state[x + 5], state[x + 10])
            .xor3(state[x + 15], state[x + 20]);
    }
    for [first, second] in ROUND_CONSTANTS.as_chunks::<2>().0 {
        (state, parities) = round(state, parities, state[0].splat(*first));
        (state, parities) = round(state, parities, state[0].splat(*second));
    }
    state
}

/// Computes one round. Returns the state and the column parities for the next round.
#[inline(always)]
fn round<V: Vector<N>, const N: usize>(
    a: [V; 25],
    parities: [V; 5],
    constant: V,
) -> ([V; 25], [V; 5]) {
    let mut turned = parities;
    for x in 0..5 {
        turned[x] = parities[x].rotate::<1, 63>();
    }
    macro_rules! moved {
        ($from:literal, $by:literal) => {
            a[$from]
                .xor3(parities[($from + 4) % 5], turned[($from + 1) % 5])
                .rotate::<$by, { 64 - $by }>()
        };
    }
    let mut next = a;
    let mut sums = parities;
    macro_rules! row {
        ($row:literal: $($from:literal <<< $by:literal),+) => {
            let b = [$(moved!($from, $by)),+];
            for x in 0..5 {
                let mut word = b[x].chi(b[(x + 1) % 5], b[(x + 2) % 5]);
                if $row + x == 0 {
                    word = word.xor(constant);
                }
                next[$row + x] = word;
                sums[x] = if $row == 0 { word } else { sums[x].xor(word) };
            }
        };
    }
    // Where each word of the next state comes from, and how far it is rotated.
    row!( 0:  0 <<<  0,  6 <<< 44, 12 <<< 43, 18 <<< 21, 24 <<< 14);
    row!( 5:  3 <<< 28,  9 <<< 20, 10 <<<  3, 16 <<< 45, 22 <<< 61);
    row!(10:  1 <<<  1,  7 <<<  6, 13 <<< 25, 19 <<<  8, 20 <<< 18);
    row!(15:  4 <<< 27,  5 <<< 36, 11 <<< 10, 17 <<< 15, 23 <<< 56);
    row!(20:  2 <<< 62,  8 <<< 55, 14 <<< 39, 15 <<< 41, 21 <<<  2);
    (next, sums)
}

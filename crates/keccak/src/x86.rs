//! Vectors of x86-64: two lanes of SSE2, four of AVX2, eight of AVX-512.
//!
//! Under Miri, with `RUSTFLAGS=-Ctarget-feature=+avx512f`, the tests execute the eight lanes on any
//! machine.
#![allow(unsafe_code)]

use crate::{
    block::{Block, Entry},
    vector::{Vector, hash_entries},
};
use alloy_primitives::B256;
use core::arch::x86_64::*;

/// Defines the hash function for one width.
macro_rules! hash_on {
    ($name:ident, $zero:expr, $feature:literal) => {
        /// See [`hash_entries`].
        #[target_feature(enable = $feature)]
        pub(crate) fn $name(
            blocks: &[Block],
            count: usize,
            entries: &[Entry],
            digests: &mut [B256],
        ) {
            hash_entries($zero, blocks, count, entries, digests);
        }
    };
}

hash_on!(hash_sse2, Sse2(_mm_setzero_si128()), "sse2");
hash_on!(hash_avx2, Avx2(_mm256_setzero_si256()), "avx2");
hash_on!(hash_avx512, Avx512(_mm512_setzero_si512()), "avx512f");

/// Returns the `LEN` bytes at `at`.
#[inline(always)]
fn bytes<const LEN: usize>(block: &Block, at: usize) -> &[u8; LEN] {
    block[at..].first_chunk().expect("within the block")
}

#[inline(always)]
fn word(block: &Block, at: usize) -> i64 {
    i64::from_le_bytes(*bytes(block, at))
}

#[derive(Clone, Copy)]
pub(crate) struct Sse2(__m128i);

impl Vector<2> for Sse2 {
    #[inline(always)]
    fn splat(self, word: u64) -> Self {
        // SAFETY: `self` proves SSE2.
        Self(unsafe { _mm_set1_epi64x(word as i64) })
    }

    #[inline(always)]
    fn load4(self, blocks: &[&Block; 2], at: usize) -> [Self; 4] {
        let [a, b] = *blocks;
        let (a, b) = (bytes::<32>(a, at), bytes::<32>(b, at));
        // SAFETY: `self` proves SSE2; two vectors of 16 bytes are read of each 32.
        unsafe {
            let (a, b): (*const __m128i, *const __m128i) = (a.as_ptr().cast(), b.as_ptr().cast());
            let (a0, a1) = (_mm_loadu_si128(a), _mm_loadu_si128(a.add(1)));
            let (b0, b1) = (_mm_loadu_si128(b), _mm_loadu_si128(b.add(1)));
            [
                Self(_mm_unpacklo_epi64(a0, b0)),
                Self(_mm_unpackhi_epi64(a0, b0)),
                Self(_mm_unpacklo_epi64(a1, b1)),
                Self(_mm_unpackhi_epi64(a1, b1)),
            ]
        }
    }

    #[inline(always)]
    fn load(self, blocks: &[&Block; 2], at: usize) -> Self {
        // SAFETY: `self` proves SSE2.
        Self(unsafe { _mm_set_epi64x(word(blocks[1], at), word(blocks[0], at)) })
    }

    #[inline(always)]
    fn store4([a, b, c, d]: [Self; 4]) -> [[u8; 32]; 2] {
        let mut out = [[0; 32]; 2];
        let [first, second] = &mut out;
        // SAFETY: the words prove SSE2; two vectors of 16 bytes are written to each 32.
        unsafe {
            let first: *mut __m128i = first.as_mut_ptr().cast();
            let second: *mut __m128i = second.as_mut_ptr().cast();
            _mm_storeu_si128(first, _mm_unpacklo_epi64(a.0, b.0));
            _mm_storeu_si128(first.add(1), _mm_unpacklo_epi64(c.0, d.0));
            _mm_storeu_si128(second, _mm_unpackhi_epi64(a.0, b.0));
            _mm_storeu_si128(second.add(1), _mm_unpackhi_epi64(c.0, d.0));
        }
        out
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: `self` proves SSE2.
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const L: i32, const R: i32>(self) -> Self {
        // SAFETY: `self` proves SSE2.
        Self(unsafe { _mm_or_si128(_mm_slli_epi64::<L>(self.0), _mm_srli_epi64::<R>(self.0)) })
    }

    #[inline(always)]
    fn chi(self, a: Self, b: Self) -> Self {
        // SAFETY: `self` proves SSE2.
        Self(unsafe { _mm_xor_si128(self.0, _mm_andnot_si128(a.0, b.0)) })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i);

/// Transposes four rows of four words.
#[inline(always)]
fn transpose_avx2(rows: [Avx2; 4]) -> [Avx2; 4] {
    let r = rows.map(|row| row.0);
    // SAFETY: `rows` prove AVX2.
    unsafe {
        let [low01, high01] = [
            _mm256_unpacklo_epi64(r[0], r[1]),
            _mm256_unpackhi_epi64(r[0], r[1]),
        ];
        let [low23, high23] = [
            _mm256_unpacklo_epi64(r[2], r[3]),
            _mm256_unpackhi_epi64(r[2], r[3]),
        ];
        [
            Avx2(_mm256_permute2x128_si256::<0x20>(low01, low23)),
            Avx2(_mm256_permute2x128_si256::<0x20>(high01, high23)),
            Avx2(_mm256_permute2x128_si256::<0x31>(low01, low23)),
            Avx2(_mm256_permute2x128_si256::<0x31>(high01, high23)),
        ]
    }
}

impl Vector<4> for Avx2 {
    #[inline(always)]
    fn splat(self, word: u64) -> Self {
        // SAFETY: `self` proves AVX2.
        Self(unsafe { _mm256_set1_epi64x(word as i64) })
    }

    #[inline(always)]
    fn load4(self, blocks: &[&Block; 4], at: usize) -> [Self; 4] {
        let mut rows = [self; 4];
        for (row, block) in rows.iter_mut().zip(blocks) {
            let bytes = bytes::<32>(block, at);
            // SAFETY: `self` proves AVX2; as many bytes as the vector has are read.
            *row = Self(unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) });
        }
        transpose_avx2(rows)
    }

    #[inline(always)]
    fn load(self, blocks: &[&Block; 4], at: usize) -> Self {
        let [a, b, c, d] = *blocks;
        // SAFETY: `self` proves AVX2.
        Self(unsafe { _mm256_set_epi64x(word(d, at), word(c, at), word(b, at), word(a, at)) })
    }

    #[inline(always)]
    fn store4(words: [Self; 4]) -> [[u8; 32]; 4] {
        let mut out = [[0; 32]; 4];
        for (out, row) in out.iter_mut().zip(transpose_avx2(words)) {
            // SAFETY: `words` prove AVX2; `out` has as many bytes as the vector.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), row.0) };
        }
        out
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: `self` proves AVX2.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const L: i32, const R: i32>(self) -> Self {
        // SAFETY: `self` proves AVX2.
        unsafe {
            // Whole bytes take one shuffle instead of two shifts and an or.
            let order = match L {
                8 => [7, 0, 1, 2, 3, 4, 5, 6, 15, 8, 9, 10, 11, 12, 13, 14],
                56 => [1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15, 8],
                _ => {
                    let (left, right) = (
                        _mm256_slli_epi64::<L>(self.0),
                        _mm256_srli_epi64::<R>(self.0),
                    );
                    return Self(_mm256_or_si256(left, right));
                }
            };
            let order: [u8; 16] = order;
            let order = _mm256_broadcastsi128_si256(_mm_loadu_si128(order.as_ptr().cast()));
            Self(_mm256_shuffle_epi8(self.0, order))
        }
    }

    #[inline(always)]
    fn chi(self, a: Self, b: Self) -> Self {
        // SAFETY: `self` proves AVX2.
        Self(unsafe { _mm256_xor_si256(self.0, _mm256_andnot_si256(a.0, b.0)) })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

/// Transposes the left and the right half of four rows of eight words.
#[inline(always)]
fn transpose_avx512(rows: [Avx512; 4]) -> [Avx512; 4] {
    let r = rows.map(|row| row.0);
    // SAFETY: `rows` prove AVX-512F.
    unsafe {
        let even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
        let odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
        let [low01, high01] = [
            _mm512_unpacklo_epi64(r[0], r[1]),
            _mm512_unpackhi_epi64(r[0], r[1]),
        ];
        let [low23, high23] = [
            _mm512_unpacklo_epi64(r[2], r[3]),
            _mm512_unpackhi_epi64(r[2], r[3]),
        ];
        [
            Avx512(_mm512_permutex2var_epi64(low01, even, low23)),
            Avx512(_mm512_permutex2var_epi64(high01, even, high23)),
            Avx512(_mm512_permutex2var_epi64(low01, odd, low23)),
            Avx512(_mm512_permutex2var_epi64(high01, odd, high23)),
        ]
    }
}

impl Vector<8> for Avx512 {
    #[inline(always)]
    fn splat(self, word: u64) -> Self {
        // SAFETY: `self` proves AVX-512F.
        Self(unsafe { _mm512_set1_epi64(word as i64) })
    }

    #[inline(always)]
    fn load4(self, blocks: &[&Block; 8], at: usize) -> [Self; 4] {
        // Four words of lane i to the left, of lane i + 4 to the right.
        let mut rows = [self; 4];
        for (lane, row) in rows.iter_mut().enumerate() {
            let left = bytes::<32>(blocks[lane], at);
            let right = bytes::<32>(blocks[lane + 4], at);
            // SAFETY: `self` proves AVX-512F; as many bytes as each half has are read.
            *row = Self(unsafe {
                let left = _mm256_loadu_si256(left.as_ptr().cast());
                let right = _mm256_loadu_si256(right.as_ptr().cast());
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(left), right)
            });
        }
        transpose_avx512(rows)
    }

    #[inline(always)]
    fn load(self, blocks: &[&Block; 8], at: usize) -> Self {
        let [a, b, c, d, e, f, g, h] = *blocks;
        // SAFETY: `self` proves AVX-512F.
        Self(unsafe {
            _mm512_setr_epi64(
                word(a, at),
                word(b, at),
                word(c, at),
                word(d, at),
                word(e, at),
                word(f, at),
                word(g, at),
                word(h, at),
            )
        })
    }

    #[inline(always)]
    fn store4(words: [Self; 4]) -> [[u8; 32]; 8] {
        let mut out = [[0; 32]; 8];
        let (lefts, rights) = out.split_at_mut(4);
        for ((left, right), row) in lefts.iter_mut().zip(rights).zip(transpose_avx512(words)) {
            // SAFETY: `words` prove AVX-512F; `left` and `right` have as many bytes as each half.
            unsafe {
                _mm256_storeu_si256(left.as_mut_ptr().cast(), _mm512_castsi512_si256(row.0));
                let high = _mm512_extracti64x4_epi64::<1>(row.0);
                _mm256_storeu_si256(right.as_mut_ptr().cast(), high);
            }
        }
        out
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: `self` proves AVX-512F.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const L: i32, const R: i32>(self) -> Self {
        // SAFETY: `self` proves AVX-512F.
        Self(unsafe { _mm512_rol_epi64::<L>(self.0) })
    }

    #[inline(always)]
    fn xor3(self, a: Self, b: Self) -> Self {
        ternary::<0b1001_0110>(self, a, b)
    }

    #[inline(always)]
    fn chi(self, a: Self, b: Self) -> Self {
        ternary::<0b1101_0010>(self, a, b)
    }
}

/// For bits a, b and c of the vectors, bit 4 a + 2 b + c of the table.
#[cfg(not(miri))]
#[inline(always)]
fn ternary<const TABLE: i32>(a: Avx512, b: Avx512, c: Avx512) -> Avx512 {
    // SAFETY: `a` proves AVX-512F.
    Avx512(unsafe { _mm512_ternarylogic_epi64::<TABLE>(a.0, b.0, c.0) })
}

/// As above, for the interpreter, which does not have the instruction.
#[cfg(miri)]
fn ternary<const TABLE: i32>(a: Avx512, b: Avx512, c: Avx512) -> Avx512 {
    // SAFETY: `a` proves AVX-512F.
    unsafe {
        let mut result = _mm512_setzero_si512();
        for bits in (0..8).filter(|bits| TABLE >> bits & 1 == 1) {
            let ones = _mm512_set1_epi64(-1);
            let mut here = ones;
            for (vector, bit) in [(a.0, 4), (b.0, 2), (c.0, 1)] {
                let flip = if bits & bit == 0 {
                    ones
                } else {
                    _mm512_setzero_si512()
                };
                here = _mm512_and_si512(here, _mm512_xor_si512(vector, flip));
            }
            result = _mm512_or_si512(result, here);
        }
        Avx512(result)
    }
}

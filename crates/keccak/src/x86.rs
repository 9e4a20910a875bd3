//! Vectors of x86-64: two lanes of SSE2, four of AVX2, eight of AVX-512.
//!
//! Under Miri, with `RUSTFLAGS=-Ctarget-feature=+avx512f`, the tests execute the eight lanes on any
//! machine.
#![allow(unsafe_code)]

use crate::{
    lanes::{Block, Entry},
    vector::{Vector, hash_entries},
};
use alloy_primitives::B256;
use core::arch::x86_64::*;

/// Defines the function that hashes on one width.
macro_rules! hash_on {
    ($name:ident, $vector:ty, $lanes:literal, $feature:literal) => {
        /// See [`hash_entries`].
        #[target_feature(enable = $feature)]
        pub(crate) fn $name(
            blocks: &[Block],
            count: usize,
            entries: &[Entry],
            digests: &mut [B256],
        ) {
            // SAFETY: this function is called only where the processor has the feature.
            unsafe { hash_entries::<$vector, $lanes>(blocks, count, entries, digests) }
        }
    };
}

hash_on!(hash_sse2, Sse2, 2, "sse2");
hash_on!(hash_avx2, Avx2, 4, "avx2");
hash_on!(hash_avx512, Avx512, 8, "avx512f");

/// The `LEN` bytes at `at`.
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

// SAFETY of every block: the type's values, and the callers of what makes them, prove SSE2. Loads
// and stores take the bytes of references to as many.
impl Vector<2> for Sse2 {
    #[inline(always)]
    unsafe fn splat(word: u64) -> Self {
        Self(unsafe { _mm_set1_epi64x(word as i64) })
    }

    #[inline(always)]
    unsafe fn load4(blocks: &[&Block; 2], at: usize) -> [Self; 4] {
        let [a, b] = *blocks;
        unsafe {
            let a0 = _mm_loadu_si128(bytes::<16>(a, at).as_ptr().cast());
            let b0 = _mm_loadu_si128(bytes::<16>(b, at).as_ptr().cast());
            let a1 = _mm_loadu_si128(bytes::<16>(a, at + 16).as_ptr().cast());
            let b1 = _mm_loadu_si128(bytes::<16>(b, at + 16).as_ptr().cast());
            [
                Self(_mm_unpacklo_epi64(a0, b0)),
                Self(_mm_unpackhi_epi64(a0, b0)),
                Self(_mm_unpacklo_epi64(a1, b1)),
                Self(_mm_unpackhi_epi64(a1, b1)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn load(blocks: &[&Block; 2], at: usize) -> Self {
        Self(unsafe { _mm_set_epi64x(word(blocks[1], at), word(blocks[0], at)) })
    }

    #[inline(always)]
    fn store4([a, b, c, d]: [Self; 4]) -> [[u8; 32]; 2] {
        let mut out = [[0; 32]; 2];
        unsafe {
            let rows = [
                [_mm_unpacklo_epi64(a.0, b.0), _mm_unpacklo_epi64(c.0, d.0)],
                [_mm_unpackhi_epi64(a.0, b.0), _mm_unpackhi_epi64(c.0, d.0)],
            ];
            for (out, row) in out.iter_mut().zip(rows) {
                _mm_storeu_si128(out[..16].as_mut_ptr().cast(), row[0]);
                _mm_storeu_si128(out[16..].as_mut_ptr().cast(), row[1]);
            }
        }
        out
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const L: i32, const R: i32>(self) -> Self {
        Self(unsafe { _mm_or_si128(_mm_slli_epi64::<L>(self.0), _mm_srli_epi64::<R>(self.0)) })
    }

    #[inline(always)]
    fn chi(self, a: Self, b: Self) -> Self {
        Self(unsafe { _mm_xor_si128(self.0, _mm_andnot_si128(a.0, b.0)) })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i);

/// The transpose of four rows of four words.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn transpose_avx2(r: [__m256i; 4]) -> [__m256i; 4] {
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
            _mm256_permute2x128_si256::<0x20>(low01, low23),
            _mm256_permute2x128_si256::<0x20>(high01, high23),
            _mm256_permute2x128_si256::<0x31>(low01, low23),
            _mm256_permute2x128_si256::<0x31>(high01, high23),
        ]
    }
}

// SAFETY of every block: the type's values, and the callers of what makes them, prove AVX2. Loads
// and stores take the bytes of references to as many.
impl Vector<4> for Avx2 {
    #[inline(always)]
    unsafe fn splat(word: u64) -> Self {
        Self(unsafe { _mm256_set1_epi64x(word as i64) })
    }

    #[inline(always)]
    unsafe fn load4(blocks: &[&Block; 4], at: usize) -> [Self; 4] {
        unsafe {
            let mut rows = [_mm256_setzero_si256(); 4];
            for (row, block) in rows.iter_mut().zip(blocks) {
                *row = _mm256_loadu_si256(bytes::<32>(block, at).as_ptr().cast());
            }
            let [a, b, c, d] = transpose_avx2(rows);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }

    #[inline(always)]
    unsafe fn load(blocks: &[&Block; 4], at: usize) -> Self {
        let [a, b, c, d] = *blocks;
        Self(unsafe { _mm256_set_epi64x(word(d, at), word(c, at), word(b, at), word(a, at)) })
    }

    #[inline(always)]
    fn store4([a, b, c, d]: [Self; 4]) -> [[u8; 32]; 4] {
        let mut out = [[0; 32]; 4];
        unsafe {
            let rows = transpose_avx2([a.0, b.0, c.0, d.0]);
            for (out, row) in out.iter_mut().zip(rows) {
                _mm256_storeu_si256(out.as_mut_ptr().cast(), row);
            }
        }
        out
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const L: i32, const R: i32>(self) -> Self {
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
        Self(unsafe { _mm256_xor_si256(self.0, _mm256_andnot_si256(a.0, b.0)) })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i);

/// The transposes of the left and of the right half of four rows of eight words.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn transpose_avx512(r: [__m512i; 4]) -> [__m512i; 4] {
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
            _mm512_permutex2var_epi64(low01, even, low23),
            _mm512_permutex2var_epi64(high01, even, high23),
            _mm512_permutex2var_epi64(low01, odd, low23),
            _mm512_permutex2var_epi64(high01, odd, high23),
        ]
    }
}

// SAFETY of every block: the type's values, and the callers of what makes them, prove AVX-512F.
// Loads and stores take the bytes of references to as many.
impl Vector<8> for Avx512 {
    #[inline(always)]
    unsafe fn splat(word: u64) -> Self {
        Self(unsafe { _mm512_set1_epi64(word as i64) })
    }

    #[inline(always)]
    unsafe fn load4(blocks: &[&Block; 8], at: usize) -> [Self; 4] {
        unsafe {
            // Four words of lane i to the left, of lane i + 4 to the right.
            let mut rows = [_mm512_setzero_si512(); 4];
            for (lane, row) in rows.iter_mut().enumerate() {
                let left = _mm256_loadu_si256(bytes::<32>(blocks[lane], at).as_ptr().cast());
                let right = _mm256_loadu_si256(bytes::<32>(blocks[lane + 4], at).as_ptr().cast());
                *row = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(left), right);
            }
            let [a, b, c, d] = transpose_avx512(rows);
            [Self(a), Self(b), Self(c), Self(d)]
        }
    }

    #[inline(always)]
    unsafe fn load(blocks: &[&Block; 8], at: usize) -> Self {
        let [a, b, c, d, e, f, g, h] = *blocks;
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
    fn store4([a, b, c, d]: [Self; 4]) -> [[u8; 32]; 8] {
        let mut out = [[0; 32]; 8];
        unsafe {
            let rows = transpose_avx512([a.0, b.0, c.0, d.0]);
            for (lane, row) in rows.into_iter().enumerate() {
                let (left, right) = (
                    _mm512_castsi512_si256(row),
                    _mm512_extracti64x4_epi64::<1>(row),
                );
                _mm256_storeu_si256(out[lane].as_mut_ptr().cast(), left);
                _mm256_storeu_si256(out[lane + 4].as_mut_ptr().cast(), right);
            }
        }
        out
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn rotate<const L: i32, const R: i32>(self) -> Self {
        Self(unsafe { _mm512_rol_epi64::<L>(self.0) })
    }

    #[inline(always)]
    fn xor3(self, a: Self, b: Self) -> Self {
        Self(unsafe { ternary::<0b1001_0110>(self.0, a.0, b.0) })
    }

    #[inline(always)]
    fn chi(self, a: Self, b: Self) -> Self {
        Self(unsafe { ternary::<0b1101_0010>(self.0, a.0, b.0) })
    }
}

/// For bits a, b and c of the vectors, bit 4 a + 2 b + c of the table.
///
/// # Safety
/// The processor has AVX-512F.
#[cfg(not(miri))]
#[inline(always)]
unsafe fn ternary<const TABLE: i32>(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    unsafe { _mm512_ternarylogic_epi64::<TABLE>(a, b, c) }
}

/// As above, for the interpreter, which does not have the instruction.
#[cfg(miri)]
unsafe fn ternary<const TABLE: i32>(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    unsafe {
        let mut result = _mm512_setzero_si512();
        for bits in (0..8).filter(|bits| TABLE >> bits & 1 == 1) {
            let ones = _mm512_set1_epi64(-1);
            let mut here = ones;
            for (vector, bit) in [(a, 4), (b, 2), (c, 1)] {
                let flip = if bits & bit == 0 {
                    ones
                } else {
                    _mm512_setzero_si512()
                };
                here = _mm512_and_si512(here, _mm512_xor_si512(vector, flip));
            }
            result = _mm512_or_si512(result, here);
        }
        result
    }
}

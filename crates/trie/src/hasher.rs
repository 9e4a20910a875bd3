//! Hash functions of binary tries.

use alloc::vec::Vec;
use alloy_primitives::B256;
use sha2::Digest;

/// Two nodes side by side, or a key and the hash of its value.
pub type Pair = [u8; 64];

/// Initial value of BLAKE3 (its specification, section 2.2) and of SHA-256 (FIPS 180-4, section
/// 5.3.3): the first words of the fractional parts of square roots.
const IV: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// A hash function of 256 bits. Every output must be possible: the first bit is replaced by a label.
pub trait Hasher: Send + Sync {
    /// Returns the name, by which a database knows its hash function.
    fn name(&self) -> &'static str;

    /// Returns the hash of `bytes`.
    fn hash(&self, bytes: &[u8]) -> B256;

    /// Appends the hash of each pair to `hashes`, in their order. A batch gives a hash function room
    /// to compute several hashes at once.
    fn hash_pairs(&self, pairs: &[Pair], hashes: &mut Vec<B256>) {
        hashes.extend(pairs.iter().map(|pair| self.hash(pair)));
    }
}

/// BLAKE3.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blake3;

impl Hasher for Blake3 {
    fn name(&self) -> &'static str {
        "blake3"
    }

    fn hash(&self, bytes: &[u8]) -> B256 {
        B256::new(*blake3::hash(bytes).as_bytes())
    }

    fn hash_pairs(&self, pairs: &[Pair], hashes: &mut Vec<B256>) {
        /// Flags of the only block of an input: CHUNK_START, CHUNK_END, ROOT.
        const ONLY_BLOCK: u8 = 1 | 2 | 8;
        /// Pairs that are hashed together.
        const AT_ONCE: usize = 64;
        let platform = blake3::platform::Platform::detect();
        for pairs in pairs.chunks(AT_ONCE) {
            let mut inputs = [&[0; 64]; AT_ONCE];
            for (input, pair) in inputs.iter_mut().zip(pairs) {
                *input = pair;
            }
            let mut out = [0; 32 * AT_ONCE];
            // An input of exactly one block is a chunk that is the root: its chaining value is the
            // hash.
            platform.hash_many(
                &inputs[..pairs.len()],
                &IV,
                0,
                blake3::IncrementCounter::No,
                ONLY_BLOCK,
                0,
                0,
                &mut out[..32 * pairs.len()],
            );
            hashes.extend(
                out[..32 * pairs.len()]
                    .chunks_exact(32)
                    .map(B256::from_slice),
            );
        }
    }
}

/// SHA-256.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sha256;

impl Hasher for Sha256 {
    fn name(&self) -> &'static str {
        "sha256"
    }

    fn hash(&self, bytes: &[u8]) -> B256 {
        B256::new(sha2::Sha256::digest(bytes).into())
    }

    fn hash_pairs(&self, pairs: &[Pair], hashes: &mut Vec<B256>) {
        // The padding of 64 bytes is a block of its own: a set bit, zeros, and the length in bits.
        let mut padding = [0; 64];
        padding[0] = 0x80;
        padding[62] = 2;
        let mut blocks = [[0; 64].into(), padding.into()];
        hashes.extend(pairs.iter().map(|pair| {
            blocks[0] = (*pair).into();
            let mut state = IV;
            sha2::compress256(&mut state, &blocks);
            let mut hash = B256::ZERO;
            for (bytes, word) in hash.chunks_exact_mut(4).zip(state) {
                bytes.copy_from_slice(&word.to_be_bytes());
            }
            hash
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pairs_have_the_hashes_that_each_has_alone() {
        for hasher in [&Blake3 as &dyn Hasher, &Sha256] {
            for len in [0, 1, 3, 16, 63, 64, 65, 200] {
                let pair = |at: usize| core::array::from_fn(|byte| (at * 31 + byte * 7) as u8);
                let pairs: Vec<Pair> = (0..len).map(pair).collect();
                let mut hashes = Vec::new();
                hasher.hash_pairs(&pairs, &mut hashes);
                let each: Vec<_> = pairs.iter().map(|pair| hasher.hash(pair)).collect();
                assert_eq!(hashes, each, "{}", hasher.name());
            }
        }
    }
}

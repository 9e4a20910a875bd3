//! Randomness of a workload: hashes of the seed, keys, and a random number generator.
//!
//! Everything is integer arithmetic, so that every machine generates the same chain.

use alloy_primitives::{Address, B256, keccak256};
use rayon::prelude::*;
use secp256k1::{PublicKey, SecretKey};

/// An account with a key.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) secret: SecretKey,
    pub(crate) address: Address,
}

/// keccak(purpose, seed, index), from which everything random in a workload is derived.
pub(crate) fn hash(purpose: &str, seed: u64, index: u64) -> B256 {
    let mut input = Vec::with_capacity(64);
    input.extend_from_slice(b"cambium workload ");
    input.extend_from_slice(purpose.as_bytes());
    input.extend_from_slice(&seed.to_be_bytes());
    input.extend_from_slice(&index.to_be_bytes());
    keccak256(input)
}

/// Derives the first `count` accounts, on all cores.
pub(crate) fn derive_senders(seed: u64, count: u64) -> Vec<Sender> {
    (0..count)
        .into_par_iter()
        .map(|index| derive_sender(seed, index))
        .collect()
}

fn derive_sender(seed: u64, index: u64) -> Sender {
    let mut scalar = hash("key", seed, index);
    // One hash in 2^128 is not a valid key: then its hash is tried.
    let secret = loop {
        match SecretKey::from_byte_array(scalar.0) {
            Ok(secret) => break secret,
            Err(_) => scalar = keccak256(scalar),
        }
    };
    let public = PublicKey::from_secret_key_global(&secret).serialize_uncompressed();
    Sender {
        secret,
        address: Address::from_raw_public_key(&public[1..]),
    }
}

/// The SplitMix64 generator, which is small, fast, and fully defined here.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let hash = hash("stream", seed, 0);
        let mut state = [0; 8];
        state.copy_from_slice(&hash[..8]);
        Self(u64::from_be_bytes(state))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Returns true with a probability of `percent` in 100.
    pub(crate) fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }
}

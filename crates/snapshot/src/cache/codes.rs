//! Contract codes in the form in which they are executed.
//!
//! A block runs the same few contracts as the one before. What makes bytes of the file into a code
//! that can run (reading, checking, finding the places that may be jumped to) is done once, and
//! not in each block.

use crate::base::{counters::Counters, error::StateError};
use alloy_primitives::{B256, Bytes};
use cambium_store::Codes;
use quick_cache::{Weighter, sync::Cache};
use revm::bytecode::Bytecode;
use std::sync::Arc;

/// What a code takes beside its bytes, and one bit for each of them.
const OVERHEAD_BYTES: u64 = 256;
/// What a code takes, about: most of those that run often are larger.
const CODE_BYTES: u64 = 8 << 10;

/// Codes that ran lately, by hash.
pub struct CodeCache {
    cache: Cache<B256, Bytecode, CodeWeight>,
    counters: Arc<Counters>,
}

/// Weighs a code by what it takes.
#[derive(Clone)]
struct CodeWeight;

impl Weighter<B256, Bytecode> for CodeWeight {
    fn weight(&self, _: &B256, code: &Bytecode) -> u64 {
        let bytes = code.bytes_slice().len() as u64;
        bytes + bytes / 8 + OVERHEAD_BYTES
    }
}

impl CodeCache {
    /// With so many bytes.
    pub fn new(bytes: u64, counters: Arc<Counters>) -> Self {
        let codes = (bytes / CODE_BYTES).max(16) as usize;
        let cache = Cache::with_weighter(codes, bytes, CodeWeight);
        Self { cache, counters }
    }

    /// The code of `hash`, which is among `codes`.
    pub fn get(&self, hash: &B256, codes: &Codes) -> Result<Bytecode, StateError> {
        if let Some(code) = self.cache.get(hash) {
            self.counters.code_cache_hits.add(1);
            return Ok(code);
        }
        self.counters.code_cache_misses.add(1);
        let bytes = codes.get(hash)?.ok_or(StateError::MissingCode(*hash))?;
        let code = bytecode(bytes.into());
        self.cache.insert(*hash, code.clone());
        Ok(code)
    }

    /// Bytes of codes held in memory.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

/// A code as it runs. One that begins as delegations do (EIP-7702) and is none, as there could be
/// before London, runs as any other.
pub fn bytecode(code: Bytes) -> Bytecode {
    Bytecode::new_raw_checked(code.clone()).unwrap_or_else(|_| Bytecode::new_legacy(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{hex, keccak256};
    use cambium_disk::FaultyDisk;

    fn codes(all: &[&[u8]]) -> Codes {
        let disk = Arc::new(FaultyDisk::new(1));
        let (codes, _) = Codes::open(disk, 7, 0).unwrap();
        codes.settle().unwrap();
        for code in all {
            codes.put(keccak256(code), code).unwrap();
        }
        codes
    }

    #[test]
    fn a_code_is_read_once_and_is_what_was_put() {
        let code = hex!("6001600255");
        let codes = codes(&[&code]);
        let counters = Arc::<Counters>::default();
        let cache = CodeCache::new(1 << 20, counters.clone());
        for _ in 0..3 {
            let found = cache.get(&keccak256(code), &codes).unwrap();
            assert_eq!(found.original_byte_slice(), code);
        }
        let hits = counters.code_cache_hits.get();
        assert_eq!((hits, counters.code_cache_misses.get()), (2, 1));
        let missing = cache.get(&B256::ZERO, &codes);
        assert!(matches!(missing, Err(StateError::MissingCode(_))));
    }

    #[test]
    fn codes_stay_within_their_bytes() {
        let all: Vec<Vec<u8>> = (0..64).map(|byte| vec![byte; 20_000]).collect();
        let slices: Vec<&[u8]> = all.iter().map(|code| &code[..]).collect();
        let codes = codes(&slices);
        let cache = CodeCache::new(256 << 10, Arc::default());
        for code in &all {
            cache.get(&keccak256(code), &codes).unwrap();
            assert!(cache.bytes() <= 256 << 10);
        }
        assert!(cache.bytes() > 64 << 10);
    }

    #[test]
    fn what_only_begins_as_a_delegation_runs_as_code() {
        let delegation = [&hex!("ef0100")[..], &[7; 20]].concat();
        let others: [&[u8]; 3] = [&hex!("ef01"), &hex!("ef0100ff"), &hex!("ef02")];
        for code in others {
            let found = bytecode(Bytes::copy_from_slice(code));
            assert!(!found.is_eip7702());
            assert_eq!(found.original_byte_slice(), code);
        }
        assert!(bytecode(delegation.into()).is_eip7702());
    }
}

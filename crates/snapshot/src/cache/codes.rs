//! Cache of contract code in the form in which revm executes it.
//!
//! Most blocks run the same few contracts. The cache saves reading and checking the code, and the
//! analysis of its jump destinations.

use crate::base::{counters::Counters, error::StateError};
use alloy_primitives::{B256, Bytes};
use cambium_store::Codes;
use quick_cache::{Weighter, sync::Cache};
use revm::bytecode::Bytecode;
use std::sync::Arc;

/// Memory of a cached code besides its bytes and its jump table of one bit per byte, in bytes.
const OVERHEAD_BYTES: u64 = 256;
/// Assumed size of a code, in bytes, from which the initial number of cache entries follows. Most
/// codes that run often are larger.
const CODE_BYTES: u64 = 8 << 10;

/// Recently used contract code, by code hash.
pub struct CodeCache {
    cache: Cache<B256, Bytecode, CodeWeight>,
    counters: Arc<Counters>,
}

/// Weighs a code by its memory, in bytes.
#[derive(Clone)]
struct CodeWeight;

impl Weighter<B256, Bytecode> for CodeWeight {
    fn weight(&self, _: &B256, code: &Bytecode) -> u64 {
        let bytes = code.bytes_slice().len() as u64;
        bytes + bytes / 8 + OVERHEAD_BYTES
    }
}

impl CodeCache {
    /// Creates a cache of at most `bytes` bytes.
    pub fn new(bytes: u64, counters: Arc<Counters>) -> Self {
        let codes = (bytes / CODE_BYTES).max(16) as usize;
        let cache = Cache::with_weighter(codes, bytes, CodeWeight);
        Self { cache, counters }
    }

    /// Returns the code with the given hash, from the cache or from `codes`.
    ///
    /// # Errors
    ///
    /// [`StateError::MissingCode`] if `codes` does not contain it, and [`StateError::Store`] if it
    /// can't be read.
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

    /// Memory of the cached codes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

/// Converts code to its executable form. Code that begins like a delegation (EIP-7702) but is not
/// one, which could be deployed before London (EIP-3541), runs as ordinary code.
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

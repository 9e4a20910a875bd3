//! Hashing what has changed in tries.

use crate::base::counters::Counters;
use cambium_keccak::Batch;
use cambium_trie::{Alone, PartialTrie, Spread};
use std::time::Instant;

/// Hashes what has changed in the tries, on the caller's thread.
pub fn hash(tries: &mut [&mut PartialTrie], counters: &Counters) {
    hash_on(tries, &Alone, counters);
}

/// Hashes what has changed in the tries, on the threads of `spread`.
pub fn hash_on(tries: &mut [&mut PartialTrie], spread: &dyn Spread, counters: &Counters) {
    let start = Instant::now();
    let hashed = cambium_trie::commit_with(tries, &mut Batch::new(), spread);
    counters.node_hashes.add(hashed as u64);
    counters.hash_ns.add(start.elapsed().as_nanos() as u64);
}

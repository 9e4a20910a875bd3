//! Hashing the changed nodes of tries, with counters.

use crate::base::counters::Counters;
use cambium_keccak::Batch;
use cambium_trie::{Alone, PartialTrie, Spread};
use std::time::Instant;

/// Hashes all nodes of `tries` that have no cached node reference, on the caller's thread.
pub fn hash_tries(tries: &mut [&mut PartialTrie], counters: &Counters) {
    hash_tries_on(tries, &Alone, counters);
}

/// Hashes all nodes of `tries` that have no cached node reference, on the threads of `spread`.
/// Adds to the counters `node_hashes` and `hash_ns`.
pub fn hash_tries_on(tries: &mut [&mut PartialTrie], spread: &dyn Spread, counters: &Counters) {
    let start = Instant::now();
    let hashed = cambium_trie::commit_with(tries, &mut Batch::new(), spread);
    counters.node_hashes.add(hashed as u64);
    counters.hash_ns.add(start.elapsed().as_nanos() as u64);
}

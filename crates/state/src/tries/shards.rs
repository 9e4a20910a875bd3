//! The state trie as 256 partial tries, one for each first byte of a path, under a crown of the
//! two top levels: so that it is updated and hashed on all cores with nothing shared.

use alloy_primitives::B256;
use cambium_snapshot::DirtyShard;
use cambium_trie::PartialTrie;

/// 256 tries and their crown.
#[derive(Clone)]
pub(crate) struct TrieShards {
    pub(super) shards: Vec<DirtyShard>,
    pub(super) top_levels: PartialTrie,
}

impl TrieShards {
    pub(crate) fn shard(&self, shard: usize) -> &PartialTrie {
        &self.shards[shard].trie
    }

    /// All shards.
    pub(crate) fn shards(&self) -> &[DirtyShard] {
        &self.shards
    }

    /// The two top levels, hashed.
    pub(crate) fn top_levels(&self) -> &PartialTrie {
        &self.top_levels
    }

    /// The state root.
    pub(crate) fn root(&self) -> B256 {
        self.top_levels
            .state_root()
            .expect("the top levels are hashed when they are built")
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.shards.iter().map(DirtyShard::memory_bytes).sum()
    }
}

//! The state trie in 256 shards, one for each first byte of a path, under the two top levels of the
//! trie. The shards are updated and hashed on all cores, with nothing shared.

use crate::tries::unread::Unread;
use alloy_primitives::B256;
use cambium_snapshot::DirtyShard;
use cambium_trie::PartialTrie;
use std::sync::Arc;

/// The 256 trie shards and the top levels above them.
#[derive(Clone)]
pub(crate) struct TrieShards {
    pub(super) shards: Vec<DirtyShard>,
    pub(super) top_levels: PartialTrie,
    /// Subtries that were changed and not read, if the tries were restored from references in the log. The shards'
    /// blinded nodes stand for what these are.
    pub(super) unread: Option<Arc<Unread>>,
}

impl TrieShards {
    /// The trie of one shard.
    pub(crate) fn shard(&self, shard: usize) -> &PartialTrie {
        &self.shards[shard].trie
    }

    /// All shards, in the order of their paths.
    pub(crate) fn shards(&self) -> &[DirtyShard] {
        &self.shards
    }

    /// The two top levels of the trie, hashed.
    pub(crate) fn top_levels(&self) -> &PartialTrie {
        &self.top_levels
    }

    /// The changed subtries that were not read.
    pub(crate) fn unread(&self) -> Option<&Arc<Unread>> {
        self.unread.as_ref()
    }

    /// The state root.
    pub(crate) fn root(&self) -> B256 {
        self.top_levels
            .state_root()
            .expect("the top levels are hashed when they are built")
    }

    /// Memory of the shards, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.shards.iter().map(DirtyShard::memory_bytes).sum()
    }
}

//! What the newest blocks stand on: the snapshot on disk and, while it is being merged, the
//! intermediate layer above it. Immutable; a merge makes a new one.
//!
//! ```text
//!   delta (newest blocks)           crate::delta, crate::overlay
//!   intermediate (being merged)     Intermediate: values by key, and its hashed dirty tries
//!   snapshot                        Snapshot: index over leaf pages
//! ```

use crate::{
    layers::overlay::{AncestorSet, Overlay},
    tries::shards::TrieShards,
};
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use cambium_snapshot::{Snapshot, StateError, pool};
use cambium_trie::{PartialTrie, Stub};
use std::sync::Arc;

/// Layers frozen for merging: their values, and the tries of the newest of them.
pub(crate) struct Intermediate {
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    pub(crate) state_root: B256,
    pub(crate) ancestors: AncestorSet,
    pub(crate) tries: Arc<TrieShards>,
    pub(crate) overlay: Arc<Overlay>,
}

impl Drop for Intermediate {
    /// Much memory, and whoever lets go of it last may be a commit.
    fn drop(&mut self) {
        pool::drop_later((self.tries.clone(), self.overlay.clone()));
    }
}

/// A state that layers stand on.
pub(crate) struct Base {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) intermediate: Option<Arc<Intermediate>>,
}

impl Base {
    pub(crate) fn block(&self) -> BlockId {
        self.intermediate
            .as_ref()
            .map_or(self.snapshot.block, |middle| middle.block)
    }

    /// A trie of nothing but a stub that stands for shard `shard` of this state.
    pub(crate) fn shard_root(&self, shard: usize) -> Result<PartialTrie, StateError> {
        let trie = match &self.intermediate {
            Some(middle) => middle.tries.shard(shard),
            None => self.snapshot.index.top(shard),
        };
        let mut root = PartialTrie::new(*trie.base());
        if !trie.is_empty() {
            let broken = StateError::Broken {
                path: *trie.base(),
                what: "a hashed root",
            };
            let stub = trie.as_stub(trie.root()).ok_or(broken)?;
            let link = root.push_stub(Stub {
                place: None,
                ..stub
            });
            root.set_root(link);
        }
        Ok(root)
    }
}

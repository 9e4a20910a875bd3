//! The state on which the newest blocks stand: the snapshot on disk and, while a merge is under
//! way, the intermediate layer above it. A base is immutable. A merge creates two: when it begins,
//! one with the layers that it merges as the intermediate layer; when it ends, one that is the new
//! snapshot alone.
//!
//! ```text
//!   delta (newest blocks)           tries/delta.rs, layers/overlay.rs
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

/// The layers that are being merged: their values, and the tries of the newest of them.
pub(crate) struct Intermediate {
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    /// Root of its state's trie. It is the block's state root, except under `layered`.
    pub(crate) trie_root: B256,
    pub(crate) ancestors: AncestorSet,
    pub(crate) tries: Arc<TrieShards>,
    pub(crate) overlay: Arc<Overlay>,
}

impl Drop for Intermediate {
    /// Dropped on a background thread: freeing it takes milliseconds, and a commit may hold the
    /// last reference.
    fn drop(&mut self) {
        pool::drop_later((self.tries.clone(), self.overlay.clone()));
    }
}

/// The state below the layers.
pub(crate) struct Base {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) intermediate: Option<Arc<Intermediate>>,
}

impl Base {
    /// The block whose state this is.
    pub(crate) fn block(&self) -> BlockId {
        self.intermediate
            .as_ref()
            .map_or(self.snapshot.block, |middle| middle.block)
    }

    /// A trie that consists of the blinded root of shard `shard`.
    pub(crate) fn shard_root(&self, shard: usize) -> Result<PartialTrie, StateError> {
        let trie = match &self.intermediate {
            Some(middle) => middle.tries.shard(shard),
            None => self.snapshot.index.top(shard),
        };
        let mut root = PartialTrie::new(*trie.base()).committed_by(trie.commitment());
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

//! References of the subtries that blocks have changed, taken from the hashed tries for the block log.

use crate::{
    log::references::{Root, Subtrie},
    tries::{base::Base, portions, shards::TrieShards},
};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use cambium_snapshot::{
    IndexLookup, PORTION_FOUND_KEYS_MIN, StateError,
    pool::{Workers, on_threads},
    shard_of,
};
use cambium_trie::NodeKind;

impl TrieShards {
    /// The subtries that have a page each in the snapshot of `base` and contain some of these leaves, which are sorted, with their
    /// references now. Leaves out those that are gone, parts of an extension now, or inlined, and leaves and
    /// extensions in storages: their pages are read after a crash.
    pub(crate) fn references(
        &self,
        leaves: &[Path],
        base: &Base,
    ) -> Result<Vec<Subtrie>, StateError> {
        let leaves_min = PORTION_FOUND_KEYS_MIN;
        let count = portions::count(
            Workers::Computing,
            leaves.len(),
            || leaves.len(),
            leaves_min,
        );
        let len = leaves.len().div_ceil(count).max(1);
        let parts = leaves.chunks(len).collect();
        let one = |part| self.references_of(part, base);
        let mut subtries = on_threads(Workers::Computing, parts, one)?.concat();
        // One whose leaves two threads had.
        subtries.dedup_by_key(|(path, _)| *path);
        Ok(subtries)
    }

    fn references_of(&self, leaves: &[Path], base: &Base) -> Result<Vec<Subtrie>, StateError> {
        let index = &base.snapshot.index;
        let mut held = index.prefetch_parts(leaves.iter().copied())?;
        let mut subtries = Vec::new();
        let mut before: Option<Path> = None;
        for leaf in leaves {
            if before.is_some_and(|page| leaf.starts_with(&page)) {
                continue;
            }
            let IndexLookup::Page { depth, .. } = index.look_up(leaf, &mut held)? else {
                continue;
            };
            let page = leaf.prefix(depth);
            before = Some(page);
            let trie = self.shard(shard_of(leaf));
            let Some(link) = trie.find(&page) else {
                continue;
            };
            let hash = trie.cached_ref(link).and_then(|node| node.as_hash());
            if let (Some(kind), Some(hash)) = (trie.kind(link), hash)
                && (kind == NodeKind::Branch || page.len() < ACCOUNT_NIBBLES)
            {
                subtries.push((page, Root { kind, hash }));
            }
        }
        Ok(subtries)
    }
}

//! The top two levels of a state trie that is split into 256 shards by its first two nibbles.
//!
//! Each shard is updated independently; this module joins their roots. A branch with a single child
//! is not canonical: if only one shard below it is not empty, the root of that shard moves up.

use crate::{
    arena::{Link, NodeId, with_nibble},
    error::TrieError,
    node_ref::{NodeKind, NodeRef},
    partial::{PartialTrie, key_at},
};
use cambium_keccak::Batch;
use cambium_primitives::Path;

/// Depth of a shard's root, in nibbles.
pub const SHARD_NIBBLES: usize = 2;
/// Number of shards of a state trie.
pub const SHARDS: usize = 256;

/// Error of [`top_levels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopLevelsError {
    /// The shard has no neighbours, so that its root moves up, but the root is blinded and its type
    /// is unknown. The caller must load the root first.
    #[error("the root of shard {shard:#04x} moves up, but is not loaded")]
    Unresolved {
        /// Number of the shard: its two nibbles as a byte.
        shard: u8,
    },
    /// The shard is not hashed.
    #[error("shard {shard:#04x} is not hashed")]
    NotHashed {
        /// Number of the shard.
        shard: u8,
    },
}

/// Builds the top two levels of the state trie, hashed, above blinded nodes for the roots of the
/// shards. The root of the result is the state root.
///
/// `shards` are the 256 shards in the order of their paths, each based at its two nibbles and
/// hashed.
///
/// # Errors
///
/// Returns an error if a shard is not hashed, or if the root of a shard moves up and is blinded.
///
/// # Panics
///
/// Panics if there are not 256 shards.
pub fn top_levels(shards: &[&PartialTrie]) -> Result<PartialTrie, TopLevelsError> {
    assert_eq!(shards.len(), SHARDS, "the top levels have 256 shards");
    let mut top_levels = PartialTrie::new(Path::EMPTY).committed_by(shards[0].commitment);
    let mut children = [Link::EMPTY; 16];
    for (first, shards) in shards.chunks(16).enumerate() {
        let mut below = [Link::EMPTY; 16];
        let alone = shards.iter().filter(|shard| !shard.is_empty()).count() == 1;
        for (second, shard) in shards
            .iter()
            .enumerate()
            .filter(|(_, shard)| !shard.is_empty())
        {
            let number = (first * 16 + second) as u8;
            debug_assert_eq!(
                shard.base(),
                &Path::from_nibbles(&[first as u8, second as u8])
            );
            let copied = if alone {
                top_levels.graft_lone_root(shard)
            } else {
                top_levels.stub_of(shard, shard.root)
            };
            below[second] = copied.map_err(|_| TopLevelsError::NotHashed { shard: number })?;
            let kind = top_levels.kind(below[second]);
            if alone && below[second].is_stub() && kind != Some(NodeKind::Branch) {
                return Err(TopLevelsError::Unresolved { shard: number });
            }
        }
        let key = with_nibble(&[0; 32], 0, first);
        children[first] = top_levels.top_branch(below, 1, &key);
    }
    top_levels.root = top_levels.top_branch(children, 0, &[0; 32]);
    let root = top_levels.root;
    top_levels.hash_nodes([root], &mut Batch::new());
    Ok(top_levels)
}

impl PartialTrie {
    /// Copies the root of a shard without neighbours. A branch stays in its shard and is blinded
    /// here.
    fn graft_lone_root(&mut self, shard: &Self) -> Result<Link, TrieError> {
        match shard.kind(shard.root) {
            Some(NodeKind::Branch) => self.stub_of(shard, shard.root),
            _ => self.graft_node(shard, shard.root),
        }
    }

    /// Joins `children` to a node at `depth` in canonical form.
    fn top_branch(&mut self, children: [Link; 16], depth: usize, key: &[u8; 32]) -> Link {
        let mut present = (0..16).filter(|&at| !children[at].is_empty());
        match (present.next(), present.next()) {
            (None, _) => Link::EMPTY,
            (Some(only), None) => {
                let key = with_nibble(key, depth, only);
                self.lift(children[only], 0, depth + 1, depth, &key)
            }
            _ => self.push_branch(children),
        }
    }

    /// Returns the reference that the root would have `prefix_nibbles` nibbles higher, if the
    /// trie's leaves were the only ones below that point. The last nibbles of the base then belong
    /// to the root's own path.
    ///
    /// Returns `None` if the trie is empty or not hashed, or if its root is blinded and not known
    /// to be a branch.
    pub fn root_ref_with_prefix(&self, prefix_nibbles: usize) -> Option<NodeRef> {
        self.root_ref_with_prefix_at(self.root, prefix_nibbles)
    }

    /// As [`Self::root_ref_with_prefix`], where `root` is the root.
    pub(crate) fn root_ref_with_prefix_at(
        &self,
        root: Link,
        prefix_nibbles: usize,
    ) -> Option<NodeRef> {
        let to = self.base.len().checked_sub(prefix_nibbles)?;
        let mut alone = Self::new(self.base.prefix(to)).committed_by(self.commitment);
        let root = match self.kind(root)? {
            NodeKind::Branch => alone.stub_of(self, root),
            _ if root.is_stub() => return None,
            _ => alone.graft_node(self, root),
        };
        let key = key_at(&self.base, 0);
        alone.root = alone.lift(root.ok()?, 0, self.base.len(), to, &key);
        if !matches!(alone.root.id(), NodeId::Stub(_)) {
            alone.hash_nodes([alone.root], &mut Batch::new());
        }
        alone.cached_ref(alone.root)
    }
}

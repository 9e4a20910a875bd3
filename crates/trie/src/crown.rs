//! The top of a state that is split into 256 tries by its first two nibbles.
//!
//! Each shard updates on its own; the crown joins their roots. A branch that would have one
//! child only is not there: what a lone shard holds moves up, its path longer by a nibble.

use crate::{
    arena::{Link, Slot, with_nibble},
    error::TrieError,
    node_ref::{NodeKind, NodeRef},
    partial::{PartialTrie, key_at},
};
use cambium_keccak::Batch;
use cambium_primitives::Path;

/// Nibbles above a shard's root.
pub const SHARD_NIBBLES: usize = 2;
/// Number of shards.
pub const SHARDS: usize = 256;

/// Why shards could not be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrownError {
    /// The shard is alone below a branch that so vanishes, and its root is a stub of which it is
    /// not known what it is: load the root first.
    #[error("the root of shard {shard:#04x} moves up, but is not loaded")]
    Unresolved {
        /// Number of the shard: its first two nibbles.
        shard: u8,
    },
    /// The shard has not been hashed since it changed.
    #[error("shard {shard:#04x} is not hashed")]
    NotHashed {
        /// Number of the shard.
        shard: u8,
    },
}

/// The top two levels of the state as a trie based at the empty path, hashed: below them stubs
/// of the shards' roots, with their reference and kind and without a place. Its root is the
/// state root.
///
/// `shards` are 256, by their first two nibbles, each based there, each hashed. Panics if they
/// are not as many.
pub fn crown(shards: &[&PartialTrie]) -> Result<PartialTrie, CrownError> {
    assert_eq!(shards.len(), SHARDS, "a crown over other than 256 shards");
    let mut crown = PartialTrie::new(Path::EMPTY);
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
                crown.graft_lone_root(shard)
            } else {
                crown.stub_of(shard, shard.root)
            };
            below[second] = copied.map_err(|_| CrownError::NotHashed { shard: number })?;
            let kind = crown.kind(below[second]);
            if alone && below[second].is_stub() && kind != Some(NodeKind::Branch) {
                return Err(CrownError::Unresolved { shard: number });
            }
        }
        let key = with_nibble(&[0; 32], 0, first);
        children[first] = crown.crown_branch(below, 1, &key);
    }
    crown.root = crown.crown_branch(children, 0, &[0; 32]);
    let root = crown.root;
    crown.hash_nodes([root], &mut Batch::new());
    Ok(crown)
}

impl PartialTrie {
    /// The root of a shard that has no neighbours: a branch stays in its shard, anything else
    /// comes up.
    fn graft_lone_root(&mut self, shard: &Self) -> Result<Link, TrieError> {
        match shard.kind(shard.root) {
            Some(NodeKind::Branch) => self.stub_of(shard, shard.root),
            _ => self.graft_node(shard, shard.root),
        }
    }

    /// The branch of `children` at `depth`, in canonical form.
    fn crown_branch(&mut self, children: [Link; 16], depth: usize, key: &[u8; 32]) -> Link {
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

    /// The reference that the root would have if it sat `prefix_nibbles` higher, these last
    /// nibbles of the base being part of its own path: as it does where this trie is the only
    /// one below that point. `None` for an empty or unhashed trie, and for one whose root is a
    /// stub that may be no branch.
    pub fn root_ref_with_prefix(&self, prefix_nibbles: usize) -> Option<NodeRef> {
        let to = self.base.len().checked_sub(prefix_nibbles)?;
        let mut alone = Self::new(self.base.prefix(to));
        let root = match self.kind(self.root)? {
            NodeKind::Branch => alone.stub_of(self, self.root),
            _ if self.root.is_stub() => return None,
            _ => alone.graft_node(self, self.root),
        };
        let key = key_at(&self.base, 0);
        alone.root = alone.lift(root.ok()?, 0, self.base.len(), to, &key);
        if !matches!(alone.root.slot(), Slot::Stub(_)) {
            alone.hash_nodes([alone.root], &mut Batch::new());
        }
        alone.memo(alone.root)
    }
}

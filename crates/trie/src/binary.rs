//! Hashing of binary tries.
//!
//! ```text
//! leaf      hash(key, hash(value)) with the first bit set
//! inner     hash(left, right) with the first bit clear
//! nothing   32 zero bytes
//! ```
//!
//! A subtrie of one leaf is that leaf, however short the path to it, and a subtrie of several has
//! inner nodes down to where they part, with nothing beside them where all have the same bit. These
//! are the rules of nomt-core 1.0.
//!
//! The trie in memory has sixteen children at a branch all the same, so a branch is four levels of
//! inner nodes, which are made when the branch is hashed and not kept. An extension folds four levels
//! for each of its nibbles. The reference of a node at any depth is that of the binary node at four
//! times that depth.

use crate::{
    arena::{Key, Link, NodeId},
    hasher::{Hasher, Pair},
    node_ref::NodeRef,
    partial::PartialTrie,
};
use alloc::vec::Vec;
use alloy_primitives::B256;
use cambium_primitives::EntryValue;

/// A trie without leaves.
pub(crate) const NOTHING: B256 = B256::ZERO;
/// The first bit of a node, set for leaves.
const LEAF: u8 = 0x80;

/// Returns whether a node is a leaf.
pub(crate) fn is_leaf(node: &B256) -> bool {
    node[0] & LEAF != 0
}

/// Sets the label of a leaf.
pub(crate) fn label_leaf(mut hash: B256) -> B256 {
    hash[0] |= LEAF;
    hash
}

/// Sets the label of an inner node.
pub(crate) fn label_inner(mut hash: B256) -> B256 {
    hash[0] &= !LEAF;
    hash
}

/// Parent of two siblings.
pub(crate) enum Parent {
    /// The parent is one of them, or nothing.
    Is(B256),
    /// The parent is an inner node of this pair.
    Inner(Pair),
}

/// Returns the node above two siblings.
pub(crate) fn parent(left: &B256, right: &B256) -> Parent {
    match (*left == NOTHING, *right == NOTHING) {
        (true, true) => Parent::Is(NOTHING),
        (true, false) if is_leaf(right) => Parent::Is(*right),
        (false, true) if is_leaf(left) => Parent::Is(*left),
        _ => Parent::Inner(pair(left, right)),
    }
}

/// Returns two nodes side by side.
pub(crate) fn pair(left: &B256, right: &B256) -> Pair {
    let mut pair = [0; 64];
    pair[..32].copy_from_slice(left.as_slice());
    pair[32..].copy_from_slice(right.as_slice());
    pair
}

/// Returns the bit of a key at depth `at`.
pub(crate) fn bit(key: &Key, at: usize) -> bool {
    key[at / 8] & (LEAF >> (at % 8)) != 0
}

/// Returns the inner node at depth `to` above `node`, an inner node at depth `from` of `key`, where
/// nothing is beside the path.
pub(crate) fn fold(hasher: &dyn Hasher, mut node: B256, key: &Key, from: usize, to: usize) -> B256 {
    for at in (to..from).rev() {
        let pair = match bit(key, at) {
            true => pair(&NOTHING, &node),
            false => pair(&node, &NOTHING),
        };
        node = label_inner(hasher.hash(&pair));
    }
    node
}

/// Hashes nodes that don't depend on each other. It keeps its buffers.
#[derive(Default)]
pub(crate) struct BinaryBatch {
    pairs: Vec<Pair>,
    hashes: Vec<B256>,
    /// Which node each pair is for: its place in `refs`, or in `branches`.
    owners: Vec<u32>,
    branches: Vec<Branch>,
}

/// A branch of which some levels are hashed.
struct Branch {
    /// Its place in `refs`.
    at: u32,
    /// The nodes of the lowest level that is not hashed yet.
    level: [B256; 16],
}

impl BinaryBatch {
    /// Appends the references of `nodes` to `refs`, in their order.
    pub(crate) fn hash<'a>(
        &mut self,
        hasher: &dyn Hasher,
        nodes: impl Iterator<Item = (&'a PartialTrie, Link)>,
        refs: &mut Vec<NodeRef>,
    ) {
        self.pairs.clear();
        self.owners.clear();
        self.branches.clear();
        for (trie, link) in nodes {
            let at = refs.len() as u32;
            let arena = &trie.arena;
            let mut node = NodeRef::UNKNOWN;
            match link.id() {
                NodeId::Entry(index) => {
                    let entry = &arena.entries[index];
                    self.push_leaf(hasher, at, &entry.key, &entry.value);
                }
                NodeId::Branch(index) => {
                    let mut level = [NOTHING; 16];
                    for (node, child) in level.iter_mut().zip(&arena.branches[index].children) {
                        if !child.is_empty() {
                            *node = hash_of(arena.cached_ref(*child));
                        }
                    }
                    self.branches.push(Branch { at, level });
                }
                NodeId::Extension(index) => {
                    let extension = &arena.extensions[index];
                    let child = hash_of(arena.cached_ref(extension.child));
                    let [start, end] = [extension.start, extension.end].map(usize::from);
                    node = NodeRef::hash(fold(hasher, child, &extension.key, 4 * end, 4 * start));
                }
                _ => panic!("{link:?} is no node of a binary trie"),
            }
            refs.push(node);
        }
        self.hash_leaves(hasher, refs);
        self.hash_branches(hasher, refs);
    }

    /// Hashes the leaves that were added.
    pub(crate) fn hash_leaves(&mut self, hasher: &dyn Hasher, refs: &mut [NodeRef]) {
        self.run(hasher);
        for (at, hash) in self.owners.iter().zip(&self.hashes) {
            refs[*at as usize] = NodeRef::hash(label_leaf(*hash));
        }
        self.pairs.clear();
        self.owners.clear();
    }

    /// Adds the leaf of an entry.
    pub(crate) fn push_leaf(
        &mut self,
        hasher: &dyn Hasher,
        at: u32,
        key: &Key,
        value: &EntryValue,
    ) {
        let hash = match value {
            EntryValue::Inline(bytes) => hasher.hash(bytes),
            EntryValue::Stored(stored) => stored.hash,
        };
        self.pairs.push(pair(&B256::new(*key), &hash));
        self.owners.push(at);
    }

    fn run(&mut self, hasher: &dyn Hasher) {
        self.hashes.clear();
        hasher.hash_pairs(&self.pairs, &mut self.hashes);
    }

    /// Hashes the four levels of all branches, each level in one batch.
    fn hash_branches(&mut self, hasher: &dyn Hasher, refs: &mut [NodeRef]) {
        for width in [8, 4, 2, 1] {
            self.pairs.clear();
            self.owners.clear();
            for (branch, number) in self.branches.iter_mut().zip(0u32..) {
                for at in 0..width {
                    let [left, right] = [branch.level[2 * at], branch.level[2 * at + 1]];
                    match parent(&left, &right) {
                        Parent::Is(node) => branch.level[at] = node,
                        Parent::Inner(pair) => {
                            self.pairs.push(pair);
                            self.owners.push(number * 8 + at as u32);
                        }
                    }
                }
            }
            self.run(hasher);
            for (owner, hash) in self.owners.iter().zip(&self.hashes) {
                let branch = &mut self.branches[*owner as usize / 8];
                branch.level[*owner as usize % 8] = label_inner(*hash);
            }
        }
        for branch in &self.branches {
            refs[branch.at as usize] = NodeRef::hash(branch.level[0]);
        }
    }
}

/// Returns the hash that a reference is. References of binary tries always are hashes.
pub(crate) fn hash_of(node: &NodeRef) -> B256 {
    node.as_hash()
        .expect("children are hashed before their parent")
}

//! The tree that a proof is, and the hashes of its nodes.

use crate::{
    binary::{NOTHING, label_inner, label_leaf, pair},
    hasher::{Hasher, Pair},
};
use alloc::vec::Vec;
use alloy_primitives::B256;

/// Depth of a leaf whose path is its whole key, in bits.
pub(super) const KEY_BITS: usize = 256;

/// A proof of keys of a binary trie, present or absent.
///
/// It is made by [`PartialTrie::prove_entries`](crate::PartialTrie::prove_entries).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryProof {
    /// Kinds of all nodes, in the order of their levels.
    pub(super) kinds: Vec<Kind>,
    /// Hashes of the blinded nodes, in the same order.
    pub(super) hashes: Vec<B256>,
    /// Leaves, in the same order. Their keys begin with the path to them.
    pub(super) leaves: Vec<ProofLeaf>,
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Nothing = 0,
    Blinded = 1,
    Leaf = 2,
    Inner = 3,
}

/// A leaf at which a look-up ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProofLeaf {
    pub(super) key: B256,
    pub(super) value_hash: B256,
}

/// Where a level begins, or how far it has been walked: the number of nodes of each kind before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    node: usize,
    blinded: usize,
    leaf: usize,
    inner: usize,
}

impl Position {
    fn pass(&mut self, kind: Kind) {
        self.node += 1;
        match kind {
            Kind::Nothing => {}
            Kind::Blinded => self.blinded += 1,
            Kind::Leaf => self.leaf += 1,
            Kind::Inner => self.inner += 1,
        }
    }
}

/// Hashes of the nodes that are not blinded, and where the levels begin.
pub(super) struct Hashes {
    pub(super) leaves: Vec<B256>,
    pub(super) inner: Vec<B256>,
    pub(super) levels: Vec<Position>,
}

/// Pairs that are hashed at once. They fit into the first-level cache with their hashes.
pub(super) const BATCH_PAIRS: usize = 256;

impl BinaryProof {
    /// Returns where each level begins, and where the last one ends.
    pub(super) fn levels(&self) -> Vec<Position> {
        let mut levels = Vec::new();
        let mut at = Position::default();
        let mut width = 1;
        while width > 0 {
            levels.push(at);
            let above = at.inner;
            for kind in &self.kinds[at.node..][..width] {
                at.pass(*kind);
            }
            width = 2 * (at.inner - above);
        }
        levels.push(at);
        levels
    }

    /// Hashes all nodes, level by level.
    pub(super) fn hash(&self, hasher: &dyn Hasher) -> Hashes {
        let mut pairs: Vec<Pair> = Vec::with_capacity(BATCH_PAIRS);
        let mut leaves = Vec::with_capacity(self.leaves.len());
        for some in self.leaves.chunks(BATCH_PAIRS) {
            pairs.clear();
            pairs.extend(some.iter().map(ProofLeaf::pair));
            hasher.hash_pairs(&pairs, &mut leaves);
        }
        leaves.iter_mut().for_each(|hash| *hash = label_leaf(*hash));
        let levels = self.levels();
        let all = levels.last().map_or(0, |end| end.inner);
        let mut inner = alloc::vec![NOTHING; all];
        let mut hashed = Vec::with_capacity(BATCH_PAIRS);
        // The levels that have a parent, from the lowest up.
        for ends in levels.windows(2).skip(1).rev() {
            let (mut at, end) = (ends[0], ends[1]);
            let mut parent = at.inner - (end.node - at.node) / 2;
            for some in self.kinds[at.node..end.node].chunks(2 * BATCH_PAIRS) {
                pairs.clear();
                for two in some.chunks_exact(2) {
                    let left = self.hash_at(two[0], &at, &leaves, &inner);
                    at.pass(two[0]);
                    let right = self.hash_at(two[1], &at, &leaves, &inner);
                    at.pass(two[1]);
                    pairs.push(pair(&left, &right));
                }
                hashed.clear();
                hasher.hash_pairs(&pairs, &mut hashed);
                for hash in &hashed {
                    inner[parent] = label_inner(*hash);
                    parent += 1;
                }
            }
        }
        Hashes {
            leaves,
            inner,
            levels,
        }
    }

    /// Returns the root.
    pub(super) fn root(&self, hashes: &Hashes) -> B256 {
        self.hash_at(
            self.kinds[0],
            &Position::default(),
            &hashes.leaves,
            &hashes.inner,
        )
    }

    fn hash_at(&self, kind: Kind, at: &Position, leaves: &[B256], inner: &[B256]) -> B256 {
        match kind {
            Kind::Nothing => NOTHING,
            Kind::Blinded => self.hashes[at.blinded],
            Kind::Leaf => leaves[at.leaf],
            Kind::Inner => inner[at.inner],
        }
    }
}

impl ProofLeaf {
    pub(super) fn pair(&self) -> Pair {
        pair(&self.key, &self.value_hash)
    }
}

/// A node, with its number among the nodes of its kind.
#[derive(Clone, Copy)]
pub(super) enum Node {
    Nothing,
    Blinded(usize),
    Leaf(usize),
    Inner(usize),
}

/// A walk over all nodes, depth-first: the children of an inner node are the next two nodes of the
/// level below.
pub(super) struct Walk<'a> {
    pub(super) proof: &'a BinaryProof,
    levels: Vec<Position>,
}

impl<'a> Walk<'a> {
    /// Begins at the root. `levels` are the proof's.
    pub(super) const fn new(proof: &'a BinaryProof, levels: Vec<Position>) -> Self {
        Self { proof, levels }
    }

    /// Returns the next node at depth `depth`, in bits.
    pub(super) fn next(&mut self, depth: usize) -> Node {
        let at = &mut self.levels[depth];
        let kind = self.proof.kinds[at.node];
        let node = match kind {
            Kind::Nothing => Node::Nothing,
            Kind::Blinded => Node::Blinded(at.blinded),
            Kind::Leaf => Node::Leaf(at.leaf),
            Kind::Inner => Node::Inner(at.inner),
        };
        at.pass(kind);
        node
    }
}

//! The new root after writes, from a proof alone.

use super::{
    error::BinaryProofError,
    tree::{BATCH_PAIRS, BinaryProof, Hashes, KEY_BITS, Node, Walk},
};
use crate::{
    binary::{NOTHING, bit, is_leaf, label_inner, label_leaf, pair},
    hasher::{Hasher, Pair},
};
use alloc::vec::Vec;
use alloy_primitives::B256;

/// A key, and the hash of its new value; `None` deletes it.
type Write = (B256, Option<B256>);

impl BinaryProof {
    /// Verifies the proof, which is of the keys of `reads` and of `writes`, against the root `root`. Returns
    /// the hashes of values before the writes for each of `reads`, in their order, and the root after the writes.
    ///
    /// `writes` are keys in strictly ascending order with the hashes of their new values; `None` deletes a key, or
    /// leaves it absent.
    ///
    /// # Errors
    ///
    /// As [`BinaryProof::verify`], or if `writes` are not sorted.
    pub fn verify_update(
        &self,
        root: B256,
        hasher: &dyn Hasher,
        reads: &[B256],
        writes: &[(B256, Option<B256>)],
    ) -> Result<(Vec<Option<B256>>, B256), BinaryProofError> {
        if let Some(two) = writes.windows(2).find(|two| two[0].0 >= two[1].0) {
            return Err(BinaryProofError::Unsorted { key: two[1].0 });
        }
        let hashes = self.hash_to(root, hasher)?;
        let keys = reads.iter().copied();
        let keys: Vec<_> = keys.chain(writes.iter().map(|(key, _)| *key)).collect();
        let mut values = self.read(hashes.levels.clone(), &keys)?;
        values.truncate(reads.len());
        let mut update = Update {
            walk: Walk::new(self, hashes.levels.clone()),
            hashes: &hashes,
            leaves: Vec::new(),
            levels: Vec::new(),
        };
        let node = update.edit(0, writes);
        Ok((values, update.hash(hasher, node)))
    }
}

/// A subtrie after the writes, with the number of its node among those of its kind.
#[derive(Clone, Copy)]
enum After {
    Nothing,
    /// A blinded node.
    Blinded(u32),
    /// A leaf of the proof, which did not change.
    SameLeaf(u32),
    /// An inner node of the proof, below which nothing changed.
    SameInner(u32),
    /// A new leaf.
    Leaf(u32),
    /// A changed inner node, by its number in its level.
    Inner(u32),
}

struct Update<'a> {
    walk: Walk<'a>,
    hashes: &'a Hashes,
    /// Key and hash of the value of each new leaf.
    leaves: Vec<Pair>,
    /// Children of the changed inner nodes, by depth.
    levels: Vec<Vec<[After; 2]>>,
}

impl Update<'_> {
    /// Applies writes to the subtrie of the next node at `depth`. No write leads to a blinded node.
    fn edit(&mut self, depth: usize, writes: &[Write]) -> After {
        match self.walk.next(depth) {
            Node::Nothing => self.build(depth, None, writes),
            Node::Leaf(index) if writes.is_empty() => After::SameLeaf(index as u32),
            Node::Leaf(index) => self.build(depth, Some(index), writes),
            Node::Blinded(index) => After::Blinded(index as u32),
            Node::Inner(index) if writes.is_empty() => {
                self.pass(depth + 1);
                self.pass(depth + 1);
                After::SameInner(index as u32)
            }
            Node::Inner(_) => {
                let (zeros, ones) = split(writes, depth, |(key, _)| key);
                let left = self.edit(depth + 1, zeros);
                let right = self.edit(depth + 1, ones);
                self.join(depth, left, right)
            }
        }
    }

    /// Walks over the subtrie of the next node at `depth`.
    fn pass(&mut self, depth: usize) {
        if let Node::Inner(_) = self.walk.next(depth) {
            self.pass(depth + 1);
            self.pass(depth + 1);
        }
    }

    /// Builds the subtrie, at `depth`, of the leaves that `writes` put and of the previous leaf.
    fn build(&mut self, depth: usize, there: Option<usize>, writes: &[Write]) -> After {
        let mut leaves: Vec<(B256, After)> = Vec::with_capacity(writes.len() + 1);
        for (key, value_hash) in writes {
            if let Some(value_hash) = value_hash {
                leaves.push((*key, After::Leaf(self.leaves.len() as u32)));
                self.leaves.push(pair(key, value_hash));
            }
        }
        if let Some(index) = there {
            let key = self.walk.proof.leaves[index].key;
            let written = writes.binary_search_by(|(written, _)| written.cmp(&key));
            if written.is_err() {
                let at = leaves.partition_point(|(before, _)| *before < key);
                leaves.insert(at, (key, After::SameLeaf(index as u32)));
            }
        }
        self.build_from(depth, &leaves)
    }

    fn build_from(&mut self, depth: usize, leaves: &[(B256, After)]) -> After {
        match leaves {
            [] => After::Nothing,
            [(_, leaf)] => *leaf,
            _ => {
                let (zeros, ones) = split(leaves, depth, |(key, _)| key);
                let left = self.build_from(depth + 1, zeros);
                let right = self.build_from(depth + 1, ones);
                self.join(depth, left, right)
            }
        }
    }

    /// Returns the node at `depth` above two siblings.
    fn join(&mut self, depth: usize, left: After, right: After) -> After {
        match (left, right) {
            (After::Nothing, After::Nothing) => After::Nothing,
            (After::Nothing, leaf) | (leaf, After::Nothing) if self.is_leaf(leaf) => leaf,
            _ => {
                debug_assert!(depth < KEY_BITS);
                if self.levels.len() <= depth {
                    self.levels.resize(depth + 1, Vec::new());
                }
                self.levels[depth].push([left, right]);
                After::Inner(self.levels[depth].len() as u32 - 1)
            }
        }
    }

    fn is_leaf(&self, node: After) -> bool {
        match node {
            After::Nothing | After::SameInner(_) | After::Inner(_) => false,
            After::Blinded(index) => is_leaf(&self.walk.proof.hashes[index as usize]),
            After::SameLeaf(_) | After::Leaf(_) => true,
        }
    }

    /// Hashes what changed, level by level, and returns the hash of `root`.
    fn hash(&self, hasher: &dyn Hasher, root: After) -> B256 {
        let mut leaves = Vec::with_capacity(self.leaves.len());
        hasher.hash_pairs(&self.leaves, &mut leaves);
        let node = |node: After, below: &[B256]| match node {
            After::Nothing => NOTHING,
            After::Blinded(index) => self.walk.proof.hashes[index as usize],
            After::SameLeaf(index) => self.hashes.leaves[index as usize],
            After::SameInner(index) => self.hashes.inner[index as usize],
            After::Leaf(index) => label_leaf(leaves[index as usize]),
            After::Inner(index) => label_inner(below[index as usize]),
        };
        let (mut above, mut below, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for level in self.levels.iter().rev() {
            for some in level.chunks(BATCH_PAIRS) {
                pairs.clear();
                let siblings = some.iter();
                pairs
                    .extend(siblings.map(|two| pair(&node(two[0], &below), &node(two[1], &below))));
                hasher.hash_pairs(&pairs, &mut above);
            }
            core::mem::swap(&mut above, &mut below);
            above.clear();
        }
        node(root, &below)
    }
}

/// Splits items that have all bits of their keys before `depth` in common by the bit there.
fn split<T>(items: &[T], depth: usize, key: impl Fn(&T) -> &B256) -> (&[T], &[T]) {
    items.split_at(items.partition_point(|item| !bit(&key(item).0, depth)))
}

//! Reading keys and ranges from a proof of a known root.

use super::{
    error::BinaryProofError,
    tree::{BinaryProof, Hashes, Node, Position, Walk},
};
use crate::{binary::bit, hasher::Hasher};
use alloc::{vec, vec::Vec};
use alloy_primitives::B256;

/// A key to look up, and its number in the caller's order.
type Asked = (B256, usize);

impl BinaryProof {
    /// Verifies the proof against the root `root` of a trie that `hasher` hashes. Returns for each of `keys`, in
    /// their order, the hash of its value, or `None` if the trie has no such key.
    ///
    /// # Errors
    ///
    /// Returns an error if the proof is of another root, does not show one of `keys`, or has a node that none of
    /// them needs.
    pub fn verify(
        &self,
        root: B256,
        hasher: &dyn Hasher,
        keys: &[B256],
    ) -> Result<Vec<Option<B256>>, BinaryProofError> {
        let hashes = self.hash_to(root, hasher)?;
        self.read(hashes.levels, keys)
    }

    /// Verifies that the leaves of the proof with keys from `first` to `last` are all that the trie with the root
    /// `root` has in this range. Returns them, as keys and hashes of values.
    ///
    /// # Errors
    ///
    /// Returns an error if the proof is of another root, leaves out a part of the range, or has a node that the
    /// range does not need; or if `last` is before `first`.
    pub fn verify_range(
        &self,
        root: B256,
        hasher: &dyn Hasher,
        first: B256,
        last: B256,
    ) -> Result<Vec<(B256, B256)>, BinaryProofError> {
        if first > last {
            return Err(BinaryProofError::Unsorted { key: last });
        }
        let hashes = self.hash_to(root, hasher)?;
        let mut reader = RangeReader {
            walk: Walk::new(self, hashes.levels),
            ends: [first, last],
            found: Vec::new(),
        };
        reader.read(0, Some([true, true]))?;
        Ok(reader.found)
    }

    /// Hashes the nodes. Returns an error if they have another root.
    pub(super) fn hash_to(
        &self,
        root: B256,
        hasher: &dyn Hasher,
    ) -> Result<Hashes, BinaryProofError> {
        let hashes = self.hash(hasher);
        match self.root(&hashes) {
            got if got == root => Ok(hashes),
            got => Err(BinaryProofError::Root {
                expected: root,
                got,
            }),
        }
    }

    /// Looks up keys in a proof whose root is verified.
    pub(super) fn read(
        &self,
        levels: Vec<Position>,
        keys: &[B256],
    ) -> Result<Vec<Option<B256>>, BinaryProofError> {
        let mut asked: Vec<Asked> = keys.iter().copied().zip(0..).collect();
        asked.sort_unstable();
        let mut values = vec![None; keys.len()];
        read(&mut Walk::new(self, levels), 0, &asked, &mut values)?;
        Ok(values)
    }
}

/// Looks up the sorted keys `asked` in the subtrie of the next node at `depth`.
fn read(
    walk: &mut Walk<'_>,
    depth: usize,
    asked: &[Asked],
    values: &mut [Option<B256>],
) -> Result<(), BinaryProofError> {
    match (walk.next(depth), asked.first()) {
        (Node::Nothing, _) | (Node::Blinded(_), None) => Ok(()),
        (Node::Blinded(_), Some((key, _))) => {
            Err(BinaryProofError::Incomplete { key: *key, depth })
        }
        (_, None) => Err(BinaryProofError::Surplus { depth }),
        (Node::Leaf(index), _) => {
            let leaf = &walk.proof.leaves[index];
            for (_, number) in asked.iter().filter(|(key, _)| *key == leaf.key) {
                values[*number] = Some(leaf.value_hash);
            }
            Ok(())
        }
        (Node::Inner(_), _) => {
            let ones = asked.partition_point(|(key, _)| !bit(&key.0, depth));
            let (zeros, ones) = asked.split_at(ones);
            read(walk, depth + 1, zeros, values)?;
            read(walk, depth + 1, ones, values)
        }
    }
}

struct RangeReader<'a> {
    walk: Walk<'a>,
    ends: [B256; 2],
    found: Vec<(B256, B256)>,
}

impl RangeReader<'_> {
    /// Reads the subtrie of the next node at `depth`. `at_ends` says whether it is on the way to the first and to
    /// the last key of the range; it is `None` outside the range.
    fn read(&mut self, depth: usize, at_ends: Option<[bool; 2]>) -> Result<(), BinaryProofError> {
        match (self.walk.next(depth), at_ends) {
            (Node::Nothing, _) | (Node::Blinded(_), None) => Ok(()),
            (Node::Blinded(_), Some([_, at_last])) => Err(BinaryProofError::Incomplete {
                key: self.ends[usize::from(at_last)],
                depth,
            }),
            (_, None) => Err(BinaryProofError::Surplus { depth }),
            (Node::Leaf(index), _) => {
                let leaf = &self.walk.proof.leaves[index];
                if (self.ends[0]..=self.ends[1]).contains(&leaf.key) {
                    self.found.push((leaf.key, leaf.value_hash));
                }
                Ok(())
            }
            (Node::Inner(_), Some([at_first, at_last])) => {
                let [first, last] = self.ends.map(|end| bit(&end.0, depth));
                let left = !at_first || !first;
                let right = !at_last || last;
                let left = left.then_some([at_first, at_last && !last]);
                let right = right.then_some([at_first && first, at_last]);
                self.read(depth + 1, left)?;
                self.read(depth + 1, right)
            }
        }
    }
}

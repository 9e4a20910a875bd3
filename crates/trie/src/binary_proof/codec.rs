//! Proofs as bytes.

use super::tree::{BinaryProof, KEY_BITS, Kind, Node, ProofLeaf, Walk};
use crate::binary::{NOTHING, is_leaf};
use alloc::vec::Vec;
use alloy_primitives::B256;
use cambium_primitives::{DecodeError, Reader};

impl Kind {
    const fn of_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Nothing,
            1 => Self::Blinded,
            2 => Self::Leaf,
            _ => Self::Inner,
        }
    }
}

impl BinaryProof {
    /// Appends the encoding to `out`. Nodes are in the order of their levels, from the root down, and
    /// from left to right in each. A leaf's depth is that of its level, in bits.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | n / 4, rounded up | kinds of the n nodes, two bits each from the lowest on: 0 nothing, 1 blinded, 2 leaf, 3 inner node; unused bits are zero |
    /// | ... | 32 each | hashes of the blinded nodes |
    /// | ... | 32 - d / 8, rounded down, each | for each leaf at depth d, its key without the first d / 8 bytes; bits of the path to it are zero |
    /// | ... | 32 each | for each leaf, the hash of its value |
    ///
    /// The number of nodes follows from their kinds: a level has two nodes for each inner node
    /// above.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len_max());
        for kinds in self.kinds.chunks(4) {
            let bits = kinds.iter().rev();
            out.push(bits.fold(0, |byte, kind| byte << 2 | *kind as u8));
        }
        for hash in &self.hashes {
            out.extend_from_slice(hash.as_slice());
        }
        for (leaf, depth) in self.leaves.iter().zip(leaf_depths(&self.kinds)) {
            let rest = out.len();
            out.extend_from_slice(&leaf.key[depth / 8..]);
            if let Some(first) = out.get_mut(rest) {
                *first &= below_path(depth);
            }
        }
        for leaf in &self.leaves {
            out.extend_from_slice(leaf.value_hash.as_slice());
        }
    }

    fn encoded_len_max(&self) -> usize {
        self.kinds.len().div_ceil(4) + 32 * self.hashes.len() + 64 * self.leaves.len()
    }

    /// Decodes a proof from exactly `bytes`, which are untrusted. It takes memory in proportion to
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not the encoding of a proof, or if no trie has such nodes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let kinds = decode_kinds(bytes)?;
        let mut reader = Reader::new(bytes);
        reader.take(kinds.len().div_ceil(4))?;
        let count = |of| kinds.iter().filter(|kind| **kind == of).count();
        let (blinded, leaves) = (count(Kind::Blinded), count(Kind::Leaf));
        let hashes = reader.take(32 * blinded)?.chunks_exact(32);
        let hashes: Vec<_> = hashes.map(B256::from_slice).collect();
        if hashes.contains(&NOTHING) {
            return Err(reader.error("the hash of nothing"));
        }
        if 32 * leaves > reader.remaining() {
            return Err(reader.error("fewer leaves than announced"));
        }
        let mut proof = Self {
            leaves: Vec::with_capacity(leaves),
            kinds,
            hashes,
        };
        for depth in leaf_depths(&proof.kinds) {
            let mut key = B256::ZERO;
            let rest = reader.take(32 - depth / 8)?;
            if rest
                .first()
                .is_some_and(|first| first & !below_path(depth) != 0)
            {
                return Err(reader.error("a leaf's key repeats bits of its path"));
            }
            key[depth / 8..].copy_from_slice(rest);
            proof.leaves.push(ProofLeaf {
                key,
                value_hash: B256::ZERO,
            });
        }
        for leaf in &mut proof.leaves {
            leaf.value_hash = reader.b256()?;
        }
        reader.finish()?;
        proof.check_siblings().map_err(|what| reader.error(what))?;
        proof.fill_paths();
        Ok(proof)
    }

    /// Checks that siblings are such as a trie has, and that none of the inner nodes could be blinded.
    fn check_siblings(&self) -> Result<(), &'static str> {
        let mut hashes = self.hashes.iter();
        // Whether a node is a leaf, or `None` where its hash is not known yet: it is an inner node.
        let mut node = |kind| match kind {
            Kind::Nothing | Kind::Inner => false,
            Kind::Leaf => true,
            Kind::Blinded => hashes.next().is_some_and(is_leaf),
        };
        _ = node(self.kinds[0]);
        for siblings in self.kinds[1..].chunks_exact(2) {
            let [left, right] = [siblings[0], siblings[1]];
            let [left_is_leaf, right_is_leaf] = [node(left), node(right)];
            match (left, right) {
                (Kind::Blinded, Kind::Blinded) => return Err("an inner node on the way to no key"),
                (Kind::Nothing, Kind::Nothing) => return Err("an inner node without leaves"),
                (Kind::Nothing, _) if right_is_leaf => return Err("a lone leaf below its place"),
                (_, Kind::Nothing) if left_is_leaf => return Err("a lone leaf below its place"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Fills in the bits of leaves' keys that are the paths to them.
    fn fill_paths(&mut self) {
        let mut paths = alloc::vec![B256::ZERO; self.leaves.len()];
        let mut path = B256::ZERO;
        fill(
            &mut Walk::new(self, self.levels()),
            &mut path,
            0,
            &mut paths,
        );
        for (leaf, path) in self.leaves.iter_mut().zip(paths) {
            leaf.key |= path;
        }
    }
}

/// Collects the paths to the leaves below the next node at `depth`, whose path is `path`.
fn fill(walk: &mut Walk<'_>, path: &mut B256, depth: usize, paths: &mut [B256]) {
    match walk.next(depth) {
        Node::Nothing | Node::Blinded(_) => {}
        Node::Leaf(index) => paths[index] = *path,
        Node::Inner(_) => {
            fill(walk, path, depth + 1, paths);
            path[depth / 8] |= 0x80 >> (depth % 8);
            fill(walk, path, depth + 1, paths);
            path[depth / 8] &= !(0x80 >> (depth % 8));
        }
    }
}

/// Bits of the first byte of a leaf's key that are not of the path to it.
const fn below_path(depth: usize) -> u8 {
    0xff >> (depth % 8)
}

/// Reads the kinds of nodes, level by level, until one has no inner node.
fn decode_kinds(bytes: &[u8]) -> Result<Vec<Kind>, DecodeError> {
    let error = |at: usize, what| DecodeError {
        what,
        offset: at / 4,
    };
    let mut kinds = Vec::new();
    let (mut width, mut depth) = (1, 0);
    while width > 0 {
        let begin = kinds.len();
        if width > 4 * bytes.len() - begin {
            return Err(error(begin, "cut short"));
        }
        let nodes = (begin..begin + width).map(|at| Kind::of_bits(bytes[at / 4] >> (at % 4 * 2)));
        kinds.extend(nodes);
        let inner = kinds[begin..].iter().filter(|kind| **kind == Kind::Inner);
        width = 2 * inner.count();
        if width > 0 && depth == KEY_BITS {
            return Err(error(begin, "an inner node below a whole key"));
        }
        depth += 1;
    }
    let unused = kinds.len() % 4;
    if unused > 0 && bytes[kinds.len() / 4] >> (2 * unused) != 0 {
        return Err(error(kinds.len(), "unused bits are set"));
    }
    Ok(kinds)
}

/// The depths of the leaves, in bits, in the order of their levels.
fn leaf_depths(kinds: &[Kind]) -> impl Iterator<Item = usize> {
    let (mut left, mut below, mut depth) = (1, 0, 0);
    kinds.iter().filter_map(move |kind| {
        if left == 0 {
            (left, below, depth) = (below, 0, depth + 1);
        }
        left -= 1;
        if *kind == Kind::Inner {
            below += 2;
        }
        (*kind == Kind::Leaf).then_some(depth)
    })
}

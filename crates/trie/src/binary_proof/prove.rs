//! Proving keys from a trie of sixteen children at a branch.
//!
//! The inner nodes within a branch are not stored. Those beside the way to the keys are computed from
//! the references of the branch's children, level by level for all branches at once.

use super::tree::{BinaryProof, Kind, ProofLeaf};
use crate::{
    arena::{Link, NodeId},
    binary::{NOTHING, Parent, bit, fold, hash_of, is_leaf, label_inner, parent},
    error::Missing,
    hasher::{Hasher, Pair},
    partial::PartialTrie,
};
use alloc::vec::{self, Vec};
use alloy_primitives::B256;
use cambium_primitives::Path;

impl BinaryProof {
    /// Proves `keys`, sorted and unique, from a trie in which all nodes beside the ways to them are
    /// hashed.
    ///
    /// # Errors
    ///
    /// [`Missing`] if the way to a key leads into a blinded subtrie.
    pub(crate) fn of(
        trie: &PartialTrie,
        hasher: &dyn Hasher,
        keys: &[B256],
    ) -> Result<Self, Missing> {
        Self::join(trie, hasher, keys, Vec::new())
    }

    /// Proves the same from the top levels of a trie, and from `parts` of its shards in the order of their
    /// paths: one for each shard with keys.
    ///
    /// # Errors
    ///
    /// [`Missing`] if the way to a key leads into a blinded subtrie of which there is no part.
    pub(crate) fn join(
        top_levels: &PartialTrie,
        hasher: &dyn Hasher,
        keys: &[B256],
        parts: Vec<ProofPart>,
    ) -> Result<Self, Missing> {
        let levels = levels_of(top_levels, hasher, keys, parts)?;
        let count = |len: fn(&Level) -> usize| levels.iter().map(len).sum();
        let mut proof = Self {
            kinds: Vec::with_capacity(count(|level| level.kinds.len())),
            hashes: Vec::with_capacity(count(|level| level.hashes.len())),
            leaves: Vec::with_capacity(count(|level| level.leaves.len())),
        };
        for level in levels {
            proof.kinds.extend(level.kinds);
            proof.hashes.extend(level.hashes);
            proof.leaves.extend(level.leaves);
        }
        Ok(proof)
    }
}

/// The part of a proof that comes from one shard of a trie, whose root is an inner node.
pub struct ProofPart {
    base: Path,
    /// The levels from the root of the shard down.
    levels: Vec<Level>,
}

impl ProofPart {
    /// Proves `keys`, sorted and unique, from a shard: see [`BinaryProof::of`].
    pub(crate) fn of(
        shard: &PartialTrie,
        hasher: &dyn Hasher,
        keys: &[B256],
    ) -> Result<Self, Missing> {
        let mut levels = levels_of(shard, hasher, keys, Vec::new())?;
        levels.drain(..4 * shard.base.len());
        Ok(Self {
            base: shard.base,
            levels,
        })
    }
}

/// Returns the levels of a proof of `keys` from `trie`, and from `parts` where it is blinded.
fn levels_of(
    trie: &PartialTrie,
    hasher: &dyn Hasher,
    keys: &[B256],
    parts: Vec<ProofPart>,
) -> Result<Vec<Level>, Missing> {
    let mut prover = Prover {
        trie,
        hasher,
        parts: parts.into_iter(),
        levels: Vec::new(),
        folds: Vec::new(),
    };
    prover.node(trie.root, 4 * trie.base.len(), keys)?;
    prover.hash_folds();
    Ok(prover.levels)
}

/// One level of the proof, from left to right.
#[derive(Default)]
struct Level {
    kinds: Vec<Kind>,
    hashes: Vec<B256>,
    leaves: Vec<ProofLeaf>,
}

impl Level {
    fn append(&mut self, mut right: Self) {
        self.kinds.append(&mut right.kinds);
        self.hashes.append(&mut right.hashes);
        self.leaves.append(&mut right.leaves);
    }
}

/// A blinded node that is to be computed from children of a branch.
struct Fold {
    /// Its level, and its place among the hashes there.
    depth: usize,
    at: usize,
    /// How many nodes are left: 8, 4, 2 or 1.
    width: usize,
    nodes: [B256; 8],
}

/// Some of the children of a branch, side by side.
#[derive(Clone, Copy)]
struct Children<'a> {
    links: &'a [Link],
    hashes: &'a [B256],
    /// Nibble of the first.
    first: u8,
}

impl<'a> Children<'a> {
    fn halves(self) -> [Self; 2] {
        let middle = self.links.len() / 2;
        let (links, hashes) = (self.links.split_at(middle), self.hashes.split_at(middle));
        [
            Self {
                links: links.0,
                hashes: hashes.0,
                first: self.first,
            },
            Self {
                links: links.1,
                hashes: hashes.1,
                first: self.first + middle as u8,
            },
        ]
    }

    /// Returns the only child and its nibble, if there is one only.
    fn only(self) -> Option<(Link, B256, u8)> {
        let mut there = (self.first..).zip(self.links.iter().zip(self.hashes));
        let (nibble, (link, hash)) = there.find(|(_, (link, _))| !link.is_empty())?;
        there
            .all(|(_, (link, _))| link.is_empty())
            .then_some((*link, *hash, nibble))
    }
}

struct Prover<'a> {
    trie: &'a PartialTrie,
    hasher: &'a dyn Hasher,
    /// Parts of shards that the walk has not reached yet.
    parts: vec::IntoIter<ProofPart>,
    levels: Vec<Level>,
    folds: Vec<Fold>,
}

impl Prover<'_> {
    fn level(&mut self, depth: usize) -> &mut Level {
        if self.levels.len() <= depth {
            self.levels.resize_with(depth + 1, Level::default);
        }
        &mut self.levels[depth]
    }

    fn put(&mut self, depth: usize, kind: Kind) -> &mut Level {
        let level = self.level(depth);
        level.kinds.push(kind);
        level
    }

    fn blind(&mut self, depth: usize, hash: B256) {
        self.put(depth, Kind::Blinded).hashes.push(hash);
    }

    /// Adds the node at `link`, at depth `depth` in bits, and what `keys` need of the nodes below.
    fn node(&mut self, link: Link, depth: usize, keys: &[B256]) -> Result<(), Missing> {
        if link.is_empty() {
            self.put(depth, Kind::Nothing);
            return Ok(());
        }
        let Some(key) = keys.first() else {
            self.blind(depth, hash_of(self.trie.arena.cached_ref(link)));
            return Ok(());
        };
        match link.id() {
            NodeId::Branch(index) => {
                let links = &self.trie.arena.branches[index].children;
                let hashes = links.map(|child| match child.is_empty() {
                    true => NOTHING,
                    false => hash_of(self.trie.arena.cached_ref(child)),
                });
                let children = Children {
                    links,
                    hashes: &hashes,
                    first: 0,
                };
                self.children(children, depth, keys)
            }
            NodeId::Extension(index) => self.extension(index, depth, keys),
            _ => self.leaf(link, &Path::account(key).prefix(depth / 4), depth),
        }
    }

    /// Adds the leaf at `link`, whose path in the trie is `path`, at depth `depth`; or, where the trie is
    /// blinded, the part from the shard there.
    fn leaf(&mut self, link: Link, path: &Path, depth: usize) -> Result<(), Missing> {
        match link.id() {
            NodeId::Entry(index) => {
                let entry = &self.trie.arena.entries[index];
                let value_hash = self.trie.commitment.entry_hash(&entry.value);
                let key = entry.key.into();
                let leaf = ProofLeaf { key, value_hash };
                self.put(depth, Kind::Leaf).leaves.push(leaf);
                Ok(())
            }
            NodeId::Stub(index) => {
                let part = self.parts.next().filter(|part| part.base == *path);
                let part = part.ok_or(Missing {
                    path: *path,
                    node: self.trie.arena.stubs[index].node,
                })?;
                for (below, level) in part.levels.into_iter().enumerate() {
                    self.level(depth + below).append(level);
                }
                Ok(())
            }
            _ => panic!("{link:?} is no node of a binary trie"),
        }
    }

    /// Adds the node at depth `depth` above some children of a branch.
    fn children(
        &mut self,
        children: Children<'_>,
        depth: usize,
        keys: &[B256],
    ) -> Result<(), Missing> {
        if let [link] = children.links {
            return self.node(*link, depth, keys);
        }
        if children.links.iter().all(|link| link.is_empty()) {
            self.put(depth, Kind::Nothing);
            return Ok(());
        }
        let lone = children.only().filter(|(_, hash, _)| is_leaf(hash));
        match (keys.first(), lone) {
            (None, Some((_, hash, _))) => self.blind(depth, hash),
            (None, None) => self.fold(children.hashes, depth),
            (Some(key), Some((link, _, nibble))) => {
                let path = Path::account(key).prefix(depth / 4).child(nibble);
                self.leaf(link, &path, depth)?;
            }
            (Some(_), None) => {
                self.put(depth, Kind::Inner);
                let (zeros, ones) = split(keys, depth);
                let [left, right] = children.halves();
                self.children(left, depth + 1, zeros)?;
                self.children(right, depth + 1, ones)?;
            }
        }
        Ok(())
    }

    /// Adds a blinded node that is computed later from children of a branch.
    fn fold(&mut self, children: &[B256], depth: usize) {
        let mut nodes = [NOTHING; 8];
        nodes[..children.len()].copy_from_slice(children);
        self.blind(depth, NOTHING);
        self.folds.push(Fold {
            depth,
            at: self.levels[depth].hashes.len() - 1,
            width: children.len(),
            nodes,
        });
    }

    /// Adds the node at depth `depth` of an extension.
    fn extension(&mut self, index: u32, depth: usize, keys: &[B256]) -> Result<(), Missing> {
        let trie = self.trie;
        let node = &trie.arena.extensions[index];
        let end = 4 * usize::from(node.end);
        if depth == end {
            return self.node(node.child, depth, keys);
        }
        if keys.is_empty() {
            let child = hash_of(trie.arena.cached_ref(node.child));
            self.blind(depth, fold(self.hasher, child, &node.key, end, depth));
            return Ok(());
        }
        self.put(depth, Kind::Inner);
        let (zeros, ones) = split(keys, depth);
        if bit(&node.key, depth) {
            self.put(depth + 1, Kind::Nothing);
            self.extension(index, depth + 1, ones)
        } else {
            self.extension(index, depth + 1, zeros)?;
            self.put(depth + 1, Kind::Nothing);
            Ok(())
        }
    }

    /// Computes the blinded nodes that lie within branches.
    fn hash_folds(&mut self) {
        let (mut pairs, mut owners): (Vec<Pair>, Vec<(usize, usize)>) = Default::default();
        let mut hashes = Vec::new();
        for width in [8, 4, 2] {
            pairs.clear();
            owners.clear();
            hashes.clear();
            for (number, fold) in self.folds.iter_mut().enumerate() {
                if fold.width != width {
                    continue;
                }
                fold.width = width / 2;
                for at in 0..width / 2 {
                    match parent(&fold.nodes[2 * at], &fold.nodes[2 * at + 1]) {
                        Parent::Is(node) => fold.nodes[at] = node,
                        Parent::Inner(pair) => {
                            pairs.push(pair);
                            owners.push((number, at));
                        }
                    }
                }
            }
            self.hasher.hash_pairs(&pairs, &mut hashes);
            for ((number, at), hash) in owners.iter().zip(&hashes) {
                self.folds[*number].nodes[*at] = label_inner(*hash);
            }
        }
        for fold in &self.folds {
            self.levels[fold.depth].hashes[fold.at] = fold.nodes[0];
        }
    }
}

/// Splits keys that have all bits before `depth` in common by the bit there.
pub(super) fn split(keys: &[B256], depth: usize) -> (&[B256], &[B256]) {
    keys.split_at(keys.partition_point(|key| !bit(&key.0, depth)))
}

/// Lists the paths of blinded leaves that stand for a subtrie of a branch in which a look-up of one
/// of `keys` ends. They are not on the way to the key in a trie of sixteen children at a branch.
pub(crate) fn lone_leaves(trie: &PartialTrie, keys: &[B256]) -> Vec<Path> {
    let mut found = Vec::new();
    list_lone_leaves(trie, trie.root, trie.base.len(), keys, &mut found);
    found
}

fn list_lone_leaves(
    trie: &PartialTrie,
    link: Link,
    depth: usize,
    keys: &[B256],
    found: &mut Vec<Path>,
) {
    let Some(first) = keys.first() else { return };
    match link.id() {
        NodeId::Branch(index) => {
            let children = &trie.arena.branches[index].children;
            let path = Path::account(first).prefix(depth);
            let nibble = |key: &B256| usize::from(Path::account(key).nibble(depth));
            for keys in keys.chunk_by(|one, other| nibble(one) == nibble(other)) {
                let at = nibble(&keys[0]);
                if !children[at].is_empty() {
                    list_lone_leaves(trie, children[at], depth + 1, keys, found);
                } else if let Some(lone) = lone_leaf_beside(trie, children, at) {
                    found.push(path.child(lone));
                }
            }
        }
        NodeId::Extension(index) => {
            let node = &trie.arena.extensions[index];
            let end = usize::from(node.end);
            let to = Path::account(&B256::from(node.key)).prefix(end);
            let begin = keys.partition_point(|key| Path::account(key).prefix(end) < to);
            let len = keys[begin..].partition_point(|key| Path::account(key).starts_with(&to));
            list_lone_leaves(trie, node.child, end, &keys[begin..begin + len], found);
        }
        _ => {}
    }
}

/// Returns the nibble of the blinded leaf at which the look-up of an absent child `at` ends.
fn lone_leaf_beside(trie: &PartialTrie, children: &[Link; 16], at: usize) -> Option<u8> {
    for width in [2, 4, 8] {
        let begin = at / width * width;
        let mut there = (begin..begin + width).filter(|at| !children[*at].is_empty());
        let Some(lone) = there.next() else { continue };
        let NodeId::Stub(index) = children[lone].id() else {
            return None;
        };
        let leaf = is_leaf(&hash_of(&trie.arena.stubs[index].node));
        return (leaf && there.next().is_none()).then_some(lone as u8);
    }
    None
}

//! A trie with a node for each place of the nodes of a witness.

use super::listed::WitnessError;
use crate::{
    arena::{Link, NodeId, nibble},
    extract::below,
    node_ref::{EMPTY_ROOT, NodeKind, NodeRef, Stub},
    partial::{PartialTrie, key_at},
    rlp::{
        Child, Malformed, RawNode, decode_account, decode_entry, decode_slot, decode_upper_entry,
    },
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes};
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use hashbrown::{HashMap, HashSet};

/// Limit of the number of nodes in the trie, blinded ones included: this many, plus [`UNFOLDED_MAX_EACH`] for each
/// listed node that is reached, plus [`UNFOLDED_MAX_A_LEAF`] for each leaf that is asked for. A listed node may occur
/// repeatedly, since accounts with equal storage share its nodes.
pub(super) const UNFOLDED_MAX: usize = 1 << 20;
/// A node has 16 children at most, of which inlined ones have a few nodes of their own.
const UNFOLDED_MAX_EACH: usize = 32;
/// A path to a leaf has 64 nodes with 16 children at most.
const UNFOLDED_MAX_A_LEAF: usize = 1024;

/// Which leaves are looked for below a node. Nodes that are on no way to them, nor children of a node that
/// is, stay blinded.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Every leaf below the node.
    All,
    /// Those of sorted keys; none if there are no keys.
    Keys(&'a [B256]),
    /// Those from one key to another, both included, and the largest number of them that is expected.
    Range(&'a B256, &'a B256, usize),
}

impl Wanted<'_> {
    fn leaves(self) -> usize {
        match self {
            Self::All => 0,
            Self::Keys(keys) => keys.len(),
            Self::Range(_, _, leaves) => leaves,
        }
    }

    /// Whether nothing is wanted.
    fn is_nothing(self) -> bool {
        matches!(self, Self::Keys([]))
    }

    /// Returns the leaves wanted at or below `path`, an account's path or the beginning of one.
    fn below(self, path: &Path) -> Self {
        let (key, end) = (key_at(path, 0), path.len());
        match self {
            Self::All => self,
            Self::Keys(keys) => Self::Keys(below(keys, &key, end)),
            Self::Range(first, last, _) => {
                let path = || (0..end).map(|at| nibble(&key, at));
                let starts = (0..end).map(|at| nibble(&first.0, at)).le(path());
                let ends = path().le((0..end).map(|at| nibble(&last.0, at)));
                match starts && ends {
                    true => self,
                    false => Self::Keys(&[]),
                }
            }
        }
    }
}

impl PartialTrie {
    /// Builds the trie with root hash `root` from the RLP of `nodes`, which are untrusted. Returns
    /// the trie, based at the empty path, and the number of nodes that are not reachable from the
    /// root.
    ///
    /// # Errors
    ///
    /// Returns an error if a node is malformed, or if the trie would be far larger than `nodes`.
    pub fn from_witness(root: B256, nodes: &[Bytes]) -> Result<(Self, usize), WitnessError> {
        Self::unfold(root, nodes, Leaves::Accounts, Wanted::All)
    }

    /// Like [`Self::from_witness`], with nodes of a key-value database under
    /// [`Commitment::Mpt`](crate::Commitment::Mpt). Values over 32 bytes are known by length and hash,
    /// as [`ValueCommitment::of_entry`](crate::ValueCommitment::of_entry) returns them: they are stored
    /// values whose place means nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::from_witness`].
    pub fn from_entry_witness(root: B256, nodes: &[Bytes]) -> Result<(Self, usize), WitnessError> {
        Self::unfold(root, nodes, Leaves::Entries, Wanted::All)
    }

    /// Like [`Self::from_entry_witness`], with the nodes on the way to the wanted leaves, and their children: a proof
    /// of few keys is small even where the trie refers to the same nodes a million times.
    pub(crate) fn from_entry_witness_of(
        root: B256,
        nodes: &[Bytes],
        wanted: Wanted<'_>,
    ) -> Result<(Self, usize), WitnessError> {
        Self::unfold(root, nodes, Leaves::Entries, wanted)
    }

    /// Like [`Self::from_entry_witness_of`], with nodes of an upper trie, whose leaves may be tombstones.
    pub(crate) fn from_upper_entry_witness_of(
        root: B256,
        nodes: &[Bytes],
        wanted: Wanted<'_>,
    ) -> Result<(Self, usize), WitnessError> {
        Self::unfold(root, nodes, Leaves::UpperEntries, wanted)
    }

    fn unfold(
        root: B256,
        nodes: &[Bytes],
        leaves: Leaves,
        wanted: Wanted<'_>,
    ) -> Result<(Self, usize), WitnessError> {
        let mut trie = Self::new(Path::EMPTY);
        if root == EMPTY_ROOT {
            return Ok((trie, nodes.len()));
        }
        let nodes_by_hash = by_hash(nodes);
        let mut unfold = Unfold::new(ByHash::One(&nodes_by_hash), leaves, wanted.leaves());
        unfold.within = root;
        let child = Child::Hash(root);
        let unfolded = unfold.child(&mut trie, child, &Path::EMPTY, false, wanted);
        trie.root = unfolded.map_err(|fault| unfold.error(fault))?;
        Ok((trie, nodes.len() - unfold.reached.len()))
    }
}

pub(super) fn by_hash(nodes: &[Bytes]) -> HashMap<B256, Bytes> {
    let mut by_hash = HashMap::with_capacity(nodes.len());
    each_hashed(nodes.iter(), |hash, node| {
        by_hash.insert(hash, node.clone());
    });
    by_hash
}

/// Nodes that are hashed together: as many as stay in the processor's caches.
const HASHED_AT_ONCE: usize = 256;

/// Hashes nodes, and calls `put` with each.
pub(super) fn each_hashed<'n>(
    nodes: impl Iterator<Item = &'n Bytes>,
    mut put: impl FnMut(B256, &'n Bytes),
) {
    let (mut batch, mut group) = (Batch::new(), Vec::with_capacity(HASHED_AT_ONCE));
    let mut nodes = nodes.fuse();
    loop {
        group.extend(nodes.by_ref().take(HASHED_AT_ONCE));
        if group.is_empty() {
            return;
        }
        batch.clear();
        for node in &group {
            batch.push(node);
        }
        for (hash, node) in batch.run().iter().zip(group.drain(..)) {
            put(*hash, node);
        }
    }
}

/// The nodes of one of several groups that nodes are divided into by their hashes.
#[derive(Clone, Debug, Default)]
pub struct NodesByHash(pub(super) HashMap<B256, Bytes>);

/// Nodes by their hashes, in one map or in several.
#[derive(Clone, Copy)]
pub(super) enum ByHash<'a> {
    One(&'a HashMap<B256, Bytes>),
    Many(&'a [NodesByHash]),
}

/// The group of a node with this hash.
pub(super) fn map_of(hash: &B256, groups: usize) -> usize {
    let [.., high, low] = hash.0;
    usize::from(u16::from_be_bytes([high, low])) % groups
}

impl<'a> ByHash<'a> {
    /// The node with this hash.
    pub(super) fn get(self, hash: &B256) -> Option<&'a Bytes> {
        match self {
            Self::One(nodes) => nodes.get(hash),
            Self::Many(groups) => groups[map_of(hash, groups.len())].0.get(hash),
        }
    }
}

/// Kind of the leaves at 64 nibbles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    Accounts,
    Entries,
    UpperEntries,
}

/// Why building the trie stopped.
pub(super) enum Fault {
    TooBig,
    Malformed(Path, Malformed),
}

/// Unfolds nodes.
pub(super) struct Unfold<'a> {
    nodes: ByHash<'a>,
    reached: HashSet<B256>,
    /// Number of nodes that the trie may have, without those for nodes that are reached.
    nodes_max: usize,
    nodes_left: usize,
    /// The hash of the node being read.
    within: B256,
    leaves: Leaves,
}

impl<'a> Unfold<'a> {
    /// Unfolds to a trie in which `wanted` leaves are asked for.
    pub(super) fn new(nodes: ByHash<'a>, leaves: Leaves, wanted: usize) -> Self {
        let nodes_max = UNFOLDED_MAX.saturating_add(UNFOLDED_MAX_A_LEAF.saturating_mul(wanted));
        Self {
            nodes,
            reached: HashSet::new(),
            nodes_max,
            nodes_left: nodes_max,
            within: B256::ZERO,
            leaves,
        }
    }

    pub(super) fn error(&self, fault: Fault) -> WitnessError {
        match fault {
            Fault::TooBig => WitnessError::TooBig {
                nodes_max: self.nodes_max + UNFOLDED_MAX_EACH * self.reached.len(),
            },
            Fault::Malformed(path, what) => WitnessError::Malformed {
                hash: self.within,
                path,
                what,
            },
        }
    }

    fn count(&mut self) -> Result<(), Fault> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(Fault::TooBig)?;
        Ok(())
    }

    fn blinded(&mut self, trie: &mut PartialTrie, hash: B256) -> Result<Link, Fault> {
        self.count()?;
        Ok(trie.push_stub(Stub::bare(NodeRef::hash(hash))))
    }

    /// Adds the node with this hash, at the path `at`, with blinded children. `None` if the node is absent.
    pub(super) fn one(
        &mut self,
        trie: &mut PartialTrie,
        hash: B256,
        at: &Path,
    ) -> Result<Option<Link>, Fault> {
        let Some(rlp) = self.nodes.get(&hash) else {
            return Ok(None);
        };
        // A path of 64 nibbles is a storage root's.
        let in_storage = at.len() >= ACCOUNT_NIBBLES;
        let wanted = Wanted::Keys(&[]);
        self.found(trie, hash, rlp, at, in_storage, wanted)
            .map(Some)
    }

    /// Adds the subtrie that a parent refers to as `child` and that sits at `at`, with the leaves that are
    /// `wanted` there. Recursion is bounded by the path's 128 nibbles.
    fn child(
        &mut self,
        trie: &mut PartialTrie,
        child: Child<'_>,
        at: &Path,
        in_storage: bool,
        wanted: Wanted<'_>,
    ) -> Result<Link, Fault> {
        match child {
            Child::Empty => Ok(Link::EMPTY),
            Child::Inline(rlp) => {
                let memo = NodeRef::inline(rlp).expect("an inlined node is of 1 to 31 bytes");
                self.node(trie, rlp, memo, at, in_storage, wanted)
            }
            Child::Hash(hash) => {
                let Some(rlp) = self.nodes.get(&hash) else {
                    return self.blinded(trie, hash);
                };
                self.found(trie, hash, rlp, at, in_storage, wanted)
            }
        }
    }

    /// Adds a listed node, as [`Self::child`].
    fn found(
        &mut self,
        trie: &mut PartialTrie,
        hash: B256,
        rlp: &[u8],
        at: &Path,
        in_storage: bool,
        wanted: Wanted<'_>,
    ) -> Result<Link, Fault> {
        if self.reached.insert(hash) {
            self.nodes_left += UNFOLDED_MAX_EACH;
        }
        let memo = NodeRef::hash(hash);
        let parent = core::mem::replace(&mut self.within, hash);
        let link = self.node(trie, rlp, memo, at, in_storage, wanted)?;
        self.within = parent;
        Ok(link)
    }

    /// Adds the child, at `to`, of a node below which leaves are `wanted`. A leaf with no path of its own comes with
    /// the branch above it, which copying it requires: see [`PartialTrie::graft_node`].
    fn below(
        &mut self,
        trie: &mut PartialTrie,
        child: Child<'_>,
        to: &Path,
        in_storage: bool,
        wanted: Wanted<'_>,
    ) -> Result<Link, Fault> {
        match child {
            Child::Hash(hash) if wanted.is_nothing() && to.len() != ACCOUNT_NIBBLES => {
                self.blinded(trie, hash)
            }
            child => self.child(trie, child, to, in_storage, wanted.below(to)),
        }
    }

    fn node(
        &mut self,
        trie: &mut PartialTrie,
        rlp: &[u8],
        memo: NodeRef,
        at: &Path,
        in_storage: bool,
        wanted: Wanted<'_>,
    ) -> Result<Link, Fault> {
        self.count()?;
        let malformed = |what| Fault::Malformed(*at, what);
        let left = if in_storage {
            2 * ACCOUNT_NIBBLES
        } else {
            ACCOUNT_NIBBLES
        } - at.len();
        let link = match RawNode::decode(rlp).map_err(malformed)? {
            RawNode::Branch(_) if left == 0 => {
                return Err(malformed("a branch below a whole path"));
            }
            RawNode::Branch(raw) => {
                let mut children = [Link::EMPTY; 16];
                let stay_blinded = wanted.is_nothing() && at.len() + 1 != ACCOUNT_NIBBLES;
                for (nibble, child) in raw.into_iter().enumerate() {
                    children[nibble] = match child {
                        Child::Empty => continue,
                        Child::Hash(hash) if stay_blinded => self.blinded(trie, hash)?,
                        child => {
                            let to = at.child(nibble as u8);
                            self.below(trie, child, &to, in_storage, wanted)?
                        }
                    };
                }
                trie.push_branch(children)
            }
            RawNode::Extension(path, _) if path.len() >= left => {
                return Err(malformed("an extension past a whole path"));
            }
            RawNode::Extension(path, child) => {
                let to = at.join(&path);
                let child = self.below(trie, child, &to, in_storage, wanted)?;
                match child.id() {
                    NodeId::Stub(index) => {
                        trie.arena.stubs[index].kind = Some(NodeKind::Branch);
                    }
                    NodeId::Branch(_) => {}
                    _ => return Err(malformed("an extension to something other than a branch")),
                }
                trie.push_extension(at.len(), &to, child)
            }
            RawNode::Leaf(path, _) if path.len() != left => {
                return Err(malformed("a leaf whose path is not whole"));
            }
            RawNode::Leaf(path, value) if in_storage => {
                let value = decode_slot(value).map_err(malformed)?;
                let key = at.join(&path).slot_part().unwrap_or_default();
                trie.push_slot(at.len(), &key, value)
            }
            RawNode::Leaf(path, value) if self.leaves != Leaves::Accounts => {
                let value = match self.leaves {
                    Leaves::UpperEntries => decode_upper_entry(value),
                    _ => decode_entry(value).map(Some),
                };
                let key = at.join(&path).account_part().unwrap_or_default();
                match value.map_err(malformed)? {
                    Some(value) => trie.push_entry(at.len(), &key, value),
                    None => trie.arena.add_tombstone(at.len(), key.0),
                }
            }
            RawNode::Leaf(path, value) => {
                let (account, root) = decode_account(value).map_err(malformed)?;
                let path = at.join(&path);
                let storage = match root {
                    EMPTY_ROOT => Child::Empty,
                    root => Child::Hash(root),
                };
                let storage = self.below(trie, storage, &path, true, wanted)?;
                let key = path.account_part().unwrap_or_default();
                trie.push_account(at.len(), &key, &account, storage)
            }
        };
        trie.set_cached_ref(link, memo);
        Ok(link)
    }
}

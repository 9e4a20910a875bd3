//! Witnesses: the nodes that a block's execution needs, from which its state transition is run
//! again with no database.
//!
//! A witness lists the RLP of nodes in any order. The state root authenticates them: a node is used
//! only where its parent, or the root, refers to its hash. Nodes that are missing stay blinded, and
//! executing the block fails with "no node at path .." if it needs them.

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

/// Data to execute a block without a database, in the format of `debug_executionWitness`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Witness {
    /// RLP of nodes of the account trie and of storage tries, in any order.
    pub state: Vec<Bytes>,
    /// Contract codes.
    pub codes: Vec<Bytes>,
    /// Unhashed addresses and slots that the block accesses. Informational: execution ignores them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub keys: Vec<Bytes>,
    /// RLP of headers, the oldest first: those of the ancestors down to the oldest that `BLOCKHASH` reads, and
    /// that of the parent, which is the last.
    #[cfg_attr(feature = "serde", serde(default))]
    pub headers: Vec<Bytes>,
}

/// Error of [`PartialTrie::from_witness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessError {
    /// A node is malformed.
    #[error("the node {hash} at path {path}: {what}")]
    Malformed {
        /// Hash of the node, or of the node that contains it if it is inlined.
        hash: B256,
        /// Path of the node.
        path: Path,
        /// What is wrong with the node, in words.
        what: &'static str,
    },
    /// The trie would be far larger than the witness, since nodes refer to the same nodes
    /// repeatedly.
    #[error("the nodes unfold to a trie of over {nodes_max} nodes")]
    TooBig {
        /// Maximum number of nodes.
        nodes_max: usize,
    },
}

/// Limit of the number of nodes in the trie: this many, plus [`UNFOLDED_MAX_EACH`] for each node
/// listed, plus [`UNFOLDED_MAX_A_KEY`] for each key that is asked for. A listed node may occur repeatedly,
/// since accounts with equal storage share its nodes.
const UNFOLDED_MAX: usize = 1 << 20;
const UNFOLDED_MAX_EACH: usize = 16;
/// A way to a key has 64 nodes with 16 children at most.
const UNFOLDED_MAX_A_KEY: usize = 1024;

/// Which leaves are looked for below a node. Nodes that are on no way to them, nor children of a node that
/// is, stay blinded.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// Every leaf below the node.
    All,
    /// Those of sorted keys; none if there are no keys.
    Keys(&'a [B256]),
    /// Those from one key to another, both included.
    Range(&'a B256, &'a B256),
}

impl Wanted<'_> {
    fn keys(self) -> usize {
        match self {
            Self::All | Self::Range(..) => 0,
            Self::Keys(keys) => keys.len(),
        }
    }

    /// Whether nothing is wanted.
    fn is_nothing(self) -> bool {
        matches!(self, Self::Keys([]))
    }

    /// What of it is at `path` or below, an account's path or the beginning of one.
    fn below(self, path: &Path) -> Self {
        let (key, end) = (key_at(path, 0), path.len());
        match self {
            Self::All => self,
            Self::Keys(keys) => Self::Keys(below(keys, &key, end)),
            Self::Range(first, last) => {
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

    /// Like [`Self::from_entry_witness`], with the nodes on the way to what is wanted, and their children:
    /// a proof of few keys is small even where the trie refers to the same nodes a million times.
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
        let nodes_max =
            UNFOLDED_MAX + UNFOLDED_MAX_EACH * nodes.len() + UNFOLDED_MAX_A_KEY * wanted.keys();
        let mut unfold = Unfold {
            nodes: by_hash(nodes),
            reached: HashSet::new(),
            nodes_left: nodes_max,
            within: root,
            leaves,
        };
        let child = Child::Hash(root);
        trie.root = unfold
            .child(&mut trie, child, &Path::EMPTY, false, wanted)
            .map_err(|fault| match fault {
                Fault::TooBig => WitnessError::TooBig { nodes_max },
                Fault::Malformed(path, what) => WitnessError::Malformed {
                    hash: unfold.within,
                    path,
                    what,
                },
            })?;
        Ok((trie, nodes.len() - unfold.reached.len()))
    }

    /// Returns the RLP of every expanded node once, sorted by hash. Inlined nodes are part of their
    /// parents. All nodes must be hashed, as in a trie from [`Self::extract`].
    pub fn witness_nodes(&self) -> Vec<Bytes> {
        let (nodes, _) = self.counts();
        let mut nodes = Vec::with_capacity(nodes);
        let mut listed = HashSet::with_capacity(nodes.capacity());
        self.list_nodes(self.root, true, &mut listed, &mut nodes, &mut Vec::new());
        nodes.sort_unstable();
        nodes.into_iter().map(|(_, rlp)| rlp).collect()
    }

    fn list_nodes(
        &self,
        link: Link,
        is_root: bool,
        listed: &mut HashSet<B256>,
        nodes: &mut Vec<(B256, Bytes)>,
        rlp: &mut Vec<u8>,
    ) {
        if link.is_empty() || link.is_stub() {
            return;
        }
        let memo = self.arena.cached_ref(link);
        debug_assert!(memo.known().is_some(), "{link:?} is not hashed");
        if is_root || !memo.is_inline() {
            let hash = memo.root_hash();
            if listed.insert(hash) {
                rlp.clear();
                self.encode_node(link, rlp);
                nodes.push((hash, Bytes::copy_from_slice(rlp)));
            }
        }
        let child_is_root = matches!(link.id(), NodeId::Account(_));
        for child in self.children(link) {
            self.list_nodes(child, child_is_root, listed, nodes, rlp);
        }
    }
}

fn by_hash(nodes: &[Bytes]) -> HashMap<B256, &Bytes> {
    let mut by_hash = HashMap::with_capacity(nodes.len());
    let mut batch = Batch::new();
    for group in nodes.chunks(512) {
        batch.clear();
        for node in group {
            batch.push(node);
        }
        by_hash.extend(batch.run().iter().copied().zip(group));
    }
    by_hash
}

/// What the leaves at 64 nibbles are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Accounts,
    Entries,
    UpperEntries,
}

/// Why building the trie stopped.
enum Fault {
    TooBig,
    Malformed(Path, Malformed),
}

struct Unfold<'a> {
    nodes: HashMap<B256, &'a Bytes>,
    reached: HashSet<B256>,
    nodes_left: usize,
    /// The hash of the node being read.
    within: B256,
    leaves: Leaves,
}

impl Unfold<'_> {
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
                let memo = NodeRef::hash(hash);
                let Some(rlp) = self.nodes.get(&hash).copied() else {
                    return Ok(trie.push_stub(Stub::bare(memo)));
                };
                self.reached.insert(hash);
                let parent = core::mem::replace(&mut self.within, hash);
                let link = self.node(trie, rlp, memo, at, in_storage, wanted)?;
                self.within = parent;
                Ok(link)
            }
        }
    }

    /// Adds the child, at `to`, of a node below which leaves are `wanted`. A leaf
    /// with no path of its own comes with the branch above it: whoever copies that needs it, see
    /// [`PartialTrie::graft_node`].
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
                Ok(trie.push_stub(Stub::bare(NodeRef::hash(hash))))
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
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(Fault::TooBig)?;
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
                for (nibble, child) in raw.into_iter().enumerate() {
                    if child != Child::Empty {
                        let to = at.child(nibble as u8);
                        children[nibble] = self.below(trie, child, &to, in_storage, wanted)?;
                    }
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

//! The lists of a witness, and what is wrong with one.

use crate::{
    arena::{Link, NodeId},
    commitment::Commitment,
    error::UpdateError,
    extract::{Name, ProofTargets, below, by_nibble, names_of, removes_slots, stays_on_its_paths},
    partial::{Lookup, PartialTrie},
    resolve::Resolve,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{ACCOUNT_NIBBLES, AccountDiff, AccountUpdate, Path};
use hashbrown::HashSet;

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
        /// Description of the fault.
        what: &'static str,
    },
    /// The trie would be far larger than the witness, since nodes refer to the same nodes repeatedly. The witness may
    /// be right: this is a limit of its reader.
    #[error("the nodes unfold to a trie of over {nodes_max} nodes, which is the reader's limit")]
    TooBig {
        /// Maximum number of nodes.
        nodes_max: usize,
    },
}

impl PartialTrie {
    /// Returns the RLP of every expanded node once, sorted by hash. Inlined nodes are part of their
    /// parents. All nodes must be hashed, as in a trie from [`Self::extract`].
    pub fn witness_nodes(&self) -> Vec<Bytes> {
        let nodes = self.hashed_nodes(true).into_iter();
        nodes.map(|(_, rlp)| rlp).collect()
    }

    /// As [`Self::witness_nodes`], with their hashes. A root that `is_root` of a whole trie has a hash even if it is short.
    fn hashed_nodes(&self, is_root: bool) -> Vec<(B256, Bytes)> {
        let (nodes, _) = self.counts();
        let mut nodes = Vec::with_capacity(nodes);
        let mut listed = HashSet::with_capacity(nodes.capacity());
        self.list_nodes(self.root, is_root, &mut listed, &mut nodes, &mut Vec::new());
        nodes.sort_unstable();
        nodes
    }

    /// Returns the hash and the RLP of each node of a hashed trie that reading `keys` and applying `changes` need, sorted by hash:
    /// the nodes of [`Self::extract_for_changes`], for the most part without copying them first. `keys` have all that `changes` change.
    ///
    /// # Errors
    ///
    /// As [`Self::extract_for_changes`].
    pub fn nodes_for_changes<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        changes: &[AccountDiff],
        resolver: &mut R,
    ) -> Result<Vec<(B256, Bytes)>, UpdateError<R::Error>> {
        self.check_changes(changes)?;
        let is_root = self.base.is_empty();
        let names = self.names_here(keys)?;
        if changes.iter().all(|change| self.keeps_to_paths(change)) {
            let mut list = PathNodes {
                trie: self,
                nodes: Vec::with_capacity(2 * names.len()),
                rlp: Vec::new(),
            };
            let listed = list.walk(self.root, self.base.len(), names, is_root);
            if listed.is_some() {
                let mut nodes = list.nodes;
                nodes.sort_unstable_by_key(|(hash, _)| *hash);
                nodes.dedup_by_key(|(hash, _)| *hash);
                return Ok(nodes);
            }
        }
        let extract = self.extract_for_changes(keys, changes, resolver)?;
        Ok(extract.hashed_nodes(is_root))
    }

    /// Whether applying a change needs no other nodes than those on its paths.
    fn keeps_to_paths(&self, change: &AccountDiff) -> bool {
        if self.commitment != Commitment::Mpt {
            return false;
        }
        stays_on_its_paths(self.commitment, change)
            || change.account == AccountUpdate::Keep
                && !removes_slots(change)
                && matches!(
                    self.lookup(&Path::account(&change.path)),
                    Lookup::Account(_)
                )
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

/// Lists the nodes on some paths.
struct PathNodes<'t> {
    trie: &'t PartialTrie,
    nodes: Vec<(B256, Bytes)>,
    rlp: Vec<u8>,
}

impl PathNodes<'_> {
    /// Lists the nodes on the paths of `names` from the node at `link` down. `None` if a node is blinded, or not hashed.
    /// Recursion is bounded by the path's 128 nibbles.
    fn walk<N: Name>(
        &mut self,
        link: Link,
        depth: usize,
        names: &[N],
        is_root: bool,
    ) -> Option<()> {
        if names.is_empty() || link.is_empty() {
            return Some(());
        }
        self.put(link, is_root)?;
        let arena = &self.trie.arena;
        match link.id() {
            NodeId::Branch(index) => {
                let children = &arena.branches[index].children;
                arena.prefetch_children(children, 0);
                for (at, group) in by_nibble(names, depth) {
                    self.walk(children[at], depth + 1, group, false)?;
                }
                // Leaves with no path of their own come with the branch: see `PartialTrie::graft_node`.
                if N::LEVEL == 0 && depth + 1 == ACCOUNT_NIBBLES {
                    for child in children.iter().filter(|child| !child.is_empty()) {
                        self.put(*child, false)?;
                    }
                }
                Some(())
            }
            NodeId::Extension(index) => {
                let node = &arena.extensions[index];
                let end = usize::from(node.end) - N::LEVEL;
                self.walk(node.child, end, below(names, &node.key, end), false)
            }
            NodeId::Account(index) => {
                let node = &arena.accounts[index];
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                self.walk(node.storage, 0, slots, true)
            }
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => Some(()),
        }
    }

    /// Lists a node, unless it is inside its parent.
    fn put(&mut self, link: Link, is_root: bool) -> Option<()> {
        if link.is_stub() {
            return None;
        }
        let memo = self.trie.cached_ref(link)?;
        if is_root || !memo.is_inline() {
            self.rlp.clear();
            self.trie.encode_node(link, &mut self.rlp);
            let node = Bytes::copy_from_slice(&self.rlp);
            self.nodes.push((memo.root_hash(), node));
        }
        Some(())
    }
}

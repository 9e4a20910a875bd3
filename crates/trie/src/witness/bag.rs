//! Node bags: what many reads of a trie at one root need, each node once, without what the reader holds already.
//!
//! A reader keeps the nodes above a *retention level*: those at a depth of fewer nibbles, of which the level of the account trie
//! and that of storage tries are told apart. A bag has the nodes on the paths of the reads from there on, parents first.
//! Nodes under 32 bytes are inside their parents. The reader trusts none of them: it takes a node where its own trie
//! has a blinded node with that hash, and nowhere else.

use super::nodes::Unfolder;
use super::unfold::{Leaves, Unfold, by_hash};
use crate::{
    arena::{Link, NodeId},
    error::Missing,
    extract::{Name, ProofTargets, below, by_nibble, names_of},
    partial::PartialTrie,
    versions::VersionView,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use hashbrown::{HashMap, HashSet};

/// What the reader of a bag holds already, and what it is going to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BagLevels {
    /// The reader has the nodes of the account trie at depths below this.
    pub accounts: u8,
    /// Of the storage tries that it reads, it has the nodes at depths below this.
    pub slots: u8,
    /// Where the reader may delete what it reads.
    pub deletes: Deletes,
}

/// Leaves that may be deleted. Then the bag has the node as well that would remain alone in a branch, since its kind
/// decides how the branch collapses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deletes {
    /// None.
    #[default]
    Nothing,
    /// Slots.
    Slots,
    /// Accounts and slots.
    All,
}

/// Gathers a bag from a trie that has all nodes on the paths.
#[derive(Debug)]
pub struct BagMaker<'t> {
    trie: &'t PartialTrie,
    root: Link,
    seen: HashSet<B256>,
    nodes: Vec<Bytes>,
    bytes: usize,
    bytes_max: usize,
}

/// Why a bag can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BagError {
    /// The trie lacks a node.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The nodes take more bytes than are allowed.
    #[error("the nodes of a bag take more than {bytes_max} bytes")]
    TooBig {
        /// Most bytes.
        bytes_max: usize,
    },
}

impl<'t> BagMaker<'t> {
    /// An empty bag of nodes of `view`, of at most `bytes_max` bytes.
    pub fn new(view: VersionView<'t>, bytes_max: usize) -> Self {
        Self {
            trie: view.trie,
            root: view.root,
            seen: HashSet::new(),
            nodes: Vec::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Adds what reading `targets` needs.
    ///
    /// # Errors
    ///
    /// If the bag becomes too big.
    pub fn add(&mut self, targets: &ProofTargets, levels: BagLevels) -> Result<(), BagError> {
        let inside: Vec<_> = targets
            .accounts()
            .iter()
            .filter(|(account, _)| Path::account(account).starts_with(&self.trie.base))
            .cloned()
            .collect();
        let (root, depth) = (self.root, self.trie.base.len());
        self.walk(root, depth, &inside, levels)
    }

    /// Bytes of the nodes so far.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The nodes, parents first.
    pub fn finish(self) -> Vec<Bytes> {
        self.nodes
    }

    fn walk<N: Name>(
        &mut self,
        link: Link,
        depth: usize,
        names: &[N],
        levels: BagLevels,
    ) -> Result<(), BagError> {
        if names.is_empty() || link.is_empty() {
            return Ok(());
        }
        let (level, deletes) = match N::LEVEL {
            ACCOUNT_NIBBLES => (levels.slots, levels.deletes != Deletes::Nothing),
            _ => (levels.accounts, levels.deletes == Deletes::All),
        };
        let level = usize::from(level);
        if depth >= level {
            self.put(link)?;
        }
        match link.id() {
            NodeId::Branch(index) => {
                let children = self.trie.arena.branches[index].children;
                let mut rest = children;
                for (at, group) in by_nibble(names, depth) {
                    self.walk(children[at], depth + 1, group, levels)?;
                    rest[at] = Link::EMPTY;
                }
                let mut rest = rest.into_iter().filter(|child| !child.is_empty());
                if let (true, Some(alone), None) = (deletes, rest.next(), rest.next())
                    && depth + 1 >= level
                {
                    self.put(alone)?;
                }
                Ok(())
            }
            NodeId::Extension(index) => {
                let node = &self.trie.arena.extensions[index];
                let (child, end) = (node.child, usize::from(node.end) - N::LEVEL);
                let names = below(names, &node.key, end);
                self.walk(child, end, names, levels)
            }
            NodeId::Account(index) => {
                let node = &self.trie.arena.accounts[index];
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                self.walk(node.storage, 0, slots, levels)
            }
            NodeId::Stub(index) => {
                let node = self.trie.arena.stubs[index].node;
                let path = N::path(&B256::ZERO, names[0].key(), depth);
                Err(Missing { path, node }.into())
            }
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) => Ok(()),
        }
    }

    /// Adds a node that is not inside its parent, unless it is there.
    fn put(&mut self, link: Link) -> Result<(), BagError> {
        if link.is_stub() {
            return Ok(());
        }
        let hash = self.trie.cached_ref(link).and_then(|node| node.as_hash());
        let Some(hash) = hash.filter(|hash| !self.seen.contains(hash)) else {
            return Ok(());
        };
        let mut rlp = Vec::new();
        self.trie.encode_node(link, &mut rlp);
        self.bytes += rlp.len();
        if self.bytes > self.bytes_max {
            let bytes_max = self.bytes_max;
            return Err(BagError::TooBig { bytes_max });
        }
        self.seen.insert(hash);
        self.nodes.push(rlp.into());
        Ok(())
    }
}

/// Nodes of a bag by their hashes.
#[derive(Clone, Debug, Default)]
pub struct BagNodes(HashMap<B256, Bytes>);

impl BagNodes {
    /// Hashes each of `nodes`, which are untrusted, once.
    pub fn new(nodes: &[Bytes]) -> Self {
        Self(by_hash(nodes))
    }

    /// Adds the nodes of another bag.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Number of different nodes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the nodes.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|node| node.len()).sum()
    }

    /// What unfolds the nodes where a trie has a blinded node with their hash, for `leaves` accounts and slots.
    pub fn unfolder(&self, leaves: usize) -> Unfolder<'_> {
        Unfolder(Unfold::new(&self.0, Leaves::Accounts, leaves))
    }
}

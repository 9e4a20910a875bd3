//! Node bags: what many reads of a trie at one root need, each node once, without what the reader holds already.
//!
//! A reader keeps the nodes above a *retention level*: those at a depth of fewer nibbles, of which the level of the account trie
//! and that of storage tries are told apart. A bag has the nodes on the paths of the reads from there on, parents first.
//! Nodes under 32 bytes are inside their parents. The reader trusts none of them: it takes a node where its own trie
//! has a blinded node with that hash, and nowhere else.

use super::{
    nodes::{UnfoldError, Unfolder},
    unfold::{ByHash, Leaves, NodesByHash, Unfold, by_hash, each_hashed, map_of},
};
use crate::{
    arena::{Link, NodeId},
    error::{Missing, UpdateError},
    extract::{Name, ProofTargets, below, by_nibble, names_of},
    node_ref::NodeKind,
    partial::PartialTrie,
    versions::VersionView,
};
use alloc::{vec, vec::Vec};
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

    /// An empty bag of nodes of a hashed trie, of at most `bytes_max` bytes.
    pub fn of_trie(trie: &'t PartialTrie, bytes_max: usize) -> Self {
        Self::new(
            VersionView {
                trie,
                root: trie.root,
            },
            bytes_max,
        )
    }

    /// Adds what reading `targets` needs.
    ///
    /// # Errors
    ///
    /// If the bag becomes too big, or if the trie has a blinded node on the way.
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

    /// Goes on with the nodes of another view: no node is in the bag twice.
    pub fn on(self, view: VersionView<'_>) -> BagMaker<'_> {
        let Self {
            seen,
            nodes,
            bytes,
            bytes_max,
            ..
        } = self;
        BagMaker {
            trie: view.trie,
            root: view.root,
            seen,
            nodes,
            bytes,
            bytes_max,
        }
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
        let deletes = levels.deletes.are_of(N::LEVEL);
        let level = match N::LEVEL {
            ACCOUNT_NIBBLES => levels.slots,
            _ => levels.accounts,
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

impl PartialTrie {
    /// The nodes of a hashed trie at depths below `depth`, parents first, each once. Those under 32 bytes are inside
    /// their parents. Nodes of storage tries are not among them.
    pub fn nodes_above(&self, depth: u8) -> Vec<Bytes> {
        let (mut level, mut nodes, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        level.push((self.root, self.base.len()));
        while !level.is_empty() {
            for (link, at) in core::mem::take(&mut level) {
                if at >= usize::from(depth) || link.is_empty() || link.is_stub() {
                    continue;
                }
                let hash = self.cached_ref(link).and_then(|node| node.as_hash());
                if let Some(hash) = hash
                    && seen.insert(hash)
                {
                    let mut rlp = Vec::new();
                    self.encode_node(link, &mut rlp);
                    nodes.push(rlp.into());
                }
                match link.id() {
                    NodeId::Branch(index) => {
                        let children = self.arena.branches[index].children;
                        level.extend(children.map(|child| (child, at + 1)));
                    }
                    NodeId::Extension(index) => {
                        let node = &self.arena.extensions[index];
                        level.push((node.child, node.end.into()));
                    }
                    _ => {}
                }
            }
        }
        nodes
    }

    /// The storage root of the account at `path`, if its leaf is here and hashed.
    pub fn storage_root_of(&self, path: &B256) -> Option<B256> {
        match self.walk(self.root, &path.0, self.base.len()).0 {
            NodeId::Account(index) => self.storage_root_at(self.arena.accounts[index].storage),
            _ => None,
        }
    }

    /// Whether the account at `path` has slots. False if there is no such account, or if its leaf is not here.
    pub fn has_storage(&self, path: &B256) -> bool {
        match self.walk(self.root, &path.0, self.base.len()).0 {
            NodeId::Account(index) => !self.arena.accounts[index].storage.is_empty(),
            _ => false,
        }
    }

    /// Loads the blinded nodes that would remain alone in a branch if `targets` were deleted, and whose kind is unknown:
    /// see [`Deletes`]. Returns the paths of those that the resolver does not have. The paths of the targets must be loaded.
    ///
    /// # Errors
    ///
    /// If a node is malformed.
    pub fn load_siblings(
        &mut self,
        targets: &ProofTargets,
        deletes: Deletes,
        resolver: &mut Unfolder<'_>,
    ) -> Result<Vec<Path>, UpdateError<UnfoldError>> {
        let (mut alone, mut missing) = (Vec::new(), Vec::new());
        let (root, depth) = (self.root, self.base.len());
        self.list_alone(
            root,
            depth,
            &B256::ZERO,
            targets.accounts(),
            deletes,
            &mut alone,
        );
        for path in alone {
            match self.load_node(&path, resolver) {
                Ok(_) => {}
                Err(UpdateError::Resolve(UnfoldError::Missing(_))) => missing.push(path),
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    fn list_alone<N: Name>(
        &self,
        link: Link,
        depth: usize,
        account: &B256,
        names: &[N],
        deletes: Deletes,
        alone: &mut Vec<Path>,
    ) {
        if names.is_empty() {
            return;
        }
        match link.id() {
            NodeId::Branch(index) => {
                let children = self.arena.branches[index].children;
                let mut rest = children;
                for (at, group) in by_nibble(names, depth) {
                    self.list_alone(children[at], depth + 1, account, group, deletes, alone);
                    rest[at] = Link::EMPTY;
                }
                let mut rest = (0..16_u8).zip(rest).filter(|(_, child)| !child.is_empty());
                if let (true, Some((at, child)), None) =
                    (deletes.are_of(N::LEVEL), rest.next(), rest.next())
                    && child.is_stub()
                    && self.kind(child) != Some(NodeKind::Branch)
                {
                    alone.push(N::path(account, names[0].key(), depth).child(at));
                }
            }
            NodeId::Extension(index) => {
                let node = &self.arena.extensions[index];
                let (child, end) = (node.child, usize::from(node.end) - N::LEVEL);
                let names = below(names, &node.key, end);
                self.list_alone(child, end, account, names, deletes, alone);
            }
            NodeId::Account(index) => {
                let node = &self.arena.accounts[index];
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                self.list_alone(node.storage, 0, &node.key.into(), slots, deletes, alone);
            }
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => {}
        }
    }
}

impl Deletes {
    /// Whether leaves may be deleted whose keys begin at this depth.
    const fn are_of(self, level: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Slots => level == ACCOUNT_NIBBLES,
            Self::All => true,
        }
    }
}

/// Nodes of a bag by their hashes.
#[derive(Clone, Debug)]
pub struct BagNodes(Vec<NodesByHash>);

/// Nodes that were hashed, and are in no [`BagNodes`] yet: the groups of those of its maps.
#[derive(Debug)]
pub struct HashedNodes<'n>(Vec<Vec<(B256, &'n Bytes)>>);

impl Default for BagNodes {
    fn default() -> Self {
        Self(vec![NodesByHash::default()])
    }
}

impl<'n> HashedNodes<'n> {
    /// Hashes each of `nodes`, which are untrusted, once, and divides them into `groups`. Threads can hash the nodes of many bags
    /// by this, and then collect each group ([`NodesByHash::collect`]).
    ///
    /// # Panics
    ///
    /// Panics if there are no groups.
    pub fn new(nodes: impl IntoIterator<Item = &'n Bytes>, groups: usize) -> Self {
        let nodes = nodes.into_iter();
        let expected = nodes.size_hint().0.div_ceil(groups);
        let mut hashed: Vec<_> = (0..groups).map(|_| Vec::with_capacity(expected)).collect();
        each_hashed(nodes, |hash, node| {
            hashed[map_of(&hash, groups)].push((hash, node));
        });
        Self(hashed)
    }
}

impl NodesByHash {
    /// Collects the nodes of group `group` from all of `hashed`.
    pub fn collect(hashed: &[HashedNodes<'_>], group: usize) -> Self {
        let groups = hashed.iter().map(|hashed| &hashed.0[group]);
        let mut nodes = HashMap::with_capacity(groups.clone().map(Vec::len).sum());
        nodes.extend(
            groups
                .flatten()
                .map(|(hash, node)| (*hash, (*node).clone())),
        );
        Self(nodes)
    }
}

impl BagNodes {
    /// Hashes each of `nodes`, which are untrusted, once.
    pub fn new(nodes: &[Bytes]) -> Self {
        Self(vec![NodesByHash(by_hash(nodes))])
    }

    /// All nodes of these groups, in their order, of which there must be at least one.
    ///
    /// # Panics
    ///
    /// Panics if there are no groups.
    pub fn of_groups(groups: Vec<NodesByHash>) -> Self {
        assert!(!groups.is_empty(), "nodes are in at least one group");
        Self(groups)
    }

    /// Adds the nodes of another bag.
    pub fn extend(&mut self, other: Self) {
        let groups = self.0.len();
        for (hash, node) in other.0.into_iter().flat_map(|group| group.0) {
            self.0[map_of(&hash, groups)].0.insert(hash, node);
        }
    }

    /// Number of different nodes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|group| group.0.len()).sum()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the nodes.
    pub fn bytes(&self) -> usize {
        let nodes = self.0.iter().flat_map(|group| group.0.values());
        nodes.map(|node| node.len()).sum()
    }

    /// What unfolds the nodes where a trie has a blinded node with their hash, for `leaves` accounts and slots.
    pub fn unfolder(&self, leaves: usize) -> Unfolder<'_> {
        Unfolder(Unfold::new(ByHash::Many(&self.0), Leaves::Accounts, leaves))
    }
}

//! The partial trie: structure, building and reading.
//!
//! ```text
//!   depth 0        branch
//!                 /  |   \
//!            stub  ext    account leaf (64 nibbles) .. fields
//!                   |                              \
//!                 branch                            storage root, at depth 64
//!                /      \                            |
//!            account    stub                        slot leaf (128 nibbles)
//! ```
//!
//! The account trie and all storage tries share one path space: an account's leaf ends at 64
//! nibbles, and the root of its storage trie hangs below it, so that nodes of storage tries are at
//! depths 64 to 128. A key-value database has *entries* in place of accounts: leaves of 64 nibbles
//! without storage, whose path is the key. Any subtrie may be blinded: a [`Stub`] with its hash stands in for it.
//!
//! **Paths of 64 nibbles.** A path of exactly 64 nibbles always names a storage root. An account's
//! leaf at depth 64 shares 63 nibbles with another account's; no two Keccak-256 hashes that do are
//! known. Such leaves are supported, but are never evicted, grafted as blinded nodes or resolved.
//!
//! **Cached references.** Each node caches the reference (hash or inline RLP) by which its parent
//! knows it. A change clears the references from the leaf up to the root, so no ancestor of an
//! unhashed node is hashed. The exception are nodes that were added together with their reference,
//! such as the inner nodes of a page with cached digests: the nodes below them are hashed on first
//! use.

use crate::{
    arena::{Arena, Key, Link, NodeId, nibble, shared_nibbles},
    commitment::Commitment,
    error::TrieError,
    node_ref::{NodeKind, NodeRef, Stub},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, EntryValue, Path, SLOT_NIBBLES};

/// A Merkle Patricia trie in which any subtrie may be blinded (known by its hash only).
///
/// It holds accounts at paths of 64 nibbles, `keccak(address)`, and slots at paths of 128,
/// `keccak(address) ++ keccak(slot)`. Encoding and hashing follow the Yellow Paper, appendix D.
#[derive(Clone)]
pub struct PartialTrie {
    pub(crate) base: Path,
    pub(crate) root: Link,
    pub(crate) arena: Arena,
    pub(crate) commitment: Commitment,
}

/// A view of one node. Paths are relative: they hold the nibbles of the node itself.
#[derive(Debug)]
pub enum NodeView<'a> {
    /// No node.
    Empty,
    /// A branch node.
    Branch {
        /// The sixteen children, by nibble.
        children: &'a [Link; 16],
    },
    /// An extension node.
    Extension {
        /// The nibbles that all leaves below share.
        path: Path,
        /// A branch, possibly blinded.
        child: Link,
    },
    /// The leaf of an account.
    Account {
        /// The remaining nibbles below the parent.
        path: Path,
        /// The full path, `keccak(address)`.
        key: B256,
        /// The account's fields.
        account: Account,
        /// Root of the storage trie.
        storage: Link,
    },
    /// The leaf of a storage slot.
    Slot {
        /// The remaining nibbles below the parent.
        path: Path,
        /// The full path within the storage trie, `keccak(slot)`.
        key: B256,
        /// The value, which is never zero.
        value: U256,
    },
    /// The leaf of an entry of a key-value database.
    Entry {
        /// The remaining nibbles below the parent.
        path: Path,
        /// The key, which is the full path.
        key: B256,
        /// The value.
        value: &'a EntryValue,
    },
    /// A blinded node.
    Stub(&'a Stub),
}

/// Result of [`PartialTrie::lookup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The trie proves that the leaf is absent.
    Absent,
    /// The account at the path.
    Account(Account),
    /// The value of the slot at the path, which is never zero.
    Slot(U256),
    /// The value of the entry whose key is the path.
    Entry(EntryValue),
    /// The path leads into a blinded subtrie, so whether the leaf exists is unknown.
    Stub {
        /// The blinded node.
        stub: &'a Stub,
        /// Depth of the blinded node, in nibbles.
        depth: usize,
    },
}

impl PartialTrie {
    /// Creates an empty trie whose root is at path `base`. Paths passed to its methods are full
    /// paths that begin with `base`.
    ///
    /// # Panics
    ///
    /// Panics if `base` has 64 nibbles or more.
    pub fn new(base: Path) -> Self {
        assert!(
            base.len() < ACCOUNT_NIBBLES,
            "a trie based at {base}, within an account"
        );
        Self {
            base,
            root: Link::EMPTY,
            arena: Arena::new(),
            commitment: Commitment::Mpt,
        }
    }

    /// Creates an empty trie whose root is at path `base`, perhaps within a storage trie, for a part of
    /// another trie. It can be read and copied from, but not changed.
    pub const fn part(base: Path) -> Self {
        Self {
            base,
            root: Link::EMPTY,
            arena: Arena::new(),
            commitment: Commitment::Mpt,
        }
    }

    /// Returns the trie with nodes that are hashed by `commitment`: by [`Commitment::Mpt`] under
    /// [`Commitment::Layered`], whose root is that of three tries. A new trie is hashed by
    /// [`Commitment::Mpt`].
    #[must_use]
    pub fn committed_by(mut self, commitment: Commitment) -> Self {
        self.commitment = commitment.nodes();
        self
    }

    /// Returns how nodes are hashed.
    pub const fn commitment(&self) -> Commitment {
        self.commitment
    }

    /// Creates a trie at path `base` whose root is blinded.
    ///
    /// # Panics
    ///
    /// Panics if `base` has 64 nibbles or more.
    pub fn from_stub(base: Path, stub: Stub) -> Self {
        let mut trie = Self::new(base);
        trie.root = trie.arena.add_stub(stub);
        trie
    }

    /// Returns the path of the root.
    pub const fn base(&self) -> &Path {
        &self.base
    }

    /// Returns the link of the root.
    pub const fn root(&self) -> Link {
        self.root
    }

    /// Returns whether the trie has no leaves.
    pub const fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Returns the memory that the trie holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.arena.memory_bytes()
    }

    /// Returns whether some expanded entry has a value that is stored apart from its leaf. References of nodes do not
    /// include the place of such a value.
    pub fn has_stored_values(&self) -> bool {
        self.arena.has_stored_values()
    }

    /// Frees memory that is reserved for future nodes.
    pub fn shrink_to_fit(&mut self) {
        self.arena.shrink_to_fit();
    }

    /// Returns the number of expanded nodes and the number of blinded nodes.
    pub fn counts(&self) -> (usize, usize) {
        self.arena.counts()
    }

    /// Returns a view of the node at `link`, which must be a link of this trie.
    pub fn visit(&self, link: Link) -> NodeView<'_> {
        match link.id() {
            NodeId::Empty => NodeView::Empty,
            NodeId::Branch(index) => NodeView::Branch {
                children: &self.arena.branches[index].children,
            },
            NodeId::Extension(index) => {
                let node = &self.arena.extensions[index];
                let level = node.level();
                let whole = Path::account(&B256::from(node.key));
                let (start, end) = (usize::from(node.start), usize::from(node.end));
                let path = whole.prefix(end - level).suffix(start - level);
                NodeView::Extension {
                    path,
                    child: node.child,
                }
            }
            NodeId::Account(index) => {
                let node = &self.arena.accounts[index];
                let key = B256::from(node.key);
                let path = Path::account(&key).suffix(node.depth.into());
                let account = self.arena.account(index);
                NodeView::Account {
                    path,
                    key,
                    account,
                    storage: node.storage,
                }
            }
            NodeId::Storage(index) => {
                let node = &self.arena.slots[index];
                let key = B256::from(node.key);
                let path = Path::account(&key).suffix(node.depth.into());
                NodeView::Slot {
                    path,
                    key,
                    value: U256::from_be_bytes(node.value),
                }
            }
            NodeId::Entry(index) => {
                let node = &self.arena.entries[index];
                let key = B256::from(node.key);
                NodeView::Entry {
                    path: Path::account(&key).suffix(node.depth.into()),
                    key,
                    value: &node.value,
                }
            }
            NodeId::Stub(index) => NodeView::Stub(&self.arena.stubs[index]),
        }
    }

    /// Returns the kind of the node at `link`, or `None` if there is no node or it is blinded and
    /// its kind is unknown.
    pub fn kind(&self, link: Link) -> Option<NodeKind> {
        match link.id() {
            NodeId::Empty => None,
            NodeId::Branch(_) => Some(NodeKind::Branch),
            NodeId::Extension(_) => Some(NodeKind::Extension),
            NodeId::Account(_) | NodeId::Storage(_) | NodeId::Entry(_) => Some(NodeKind::Leaf),
            NodeId::Stub(index) => self.arena.stubs[index].kind,
        }
    }

    /// Returns the cached reference of the node at `link`, or `None` if there is no node or it is
    /// not hashed.
    pub fn cached_ref(&self, link: Link) -> Option<NodeRef> {
        self.arena.cached_ref(link).known()
    }

    /// Looks up the account (64 nibbles) or slot (128 nibbles) at path `full`.
    ///
    /// # Panics
    ///
    /// Panics if the path has any other length.
    pub fn lookup(&self, full: &Path) -> Lookup<'_> {
        self.lookup_from(self.root, full)
    }

    /// As [`Self::lookup`], where `root` is the root.
    pub(crate) fn lookup_from(&self, root: Link, full: &Path) -> Lookup<'_> {
        let (account, slot) = full.packed().split_at_checked(32).expect("a leaf's path");
        let account = account.first_chunk().expect("32 bytes");
        let slot = slot.first_chunk();
        assert!(
            full.len() == ACCOUNT_NIBBLES || full.len() == SLOT_NIBBLES,
            "no leaf at {full}"
        );
        if let Some(depth) = self.base.len().checked_sub(ACCOUNT_NIBBLES) {
            return slot.map_or(Lookup::Absent, |slot| self.lookup_slot(root, slot, depth));
        }
        let link = match self.walk(root, account, self.base.len()) {
            (NodeId::Account(index), _) => match slot {
                None => return Lookup::Account(self.arena.account(index)),
                Some(_) => self.arena.accounts[index].storage,
            },
            (NodeId::Entry(index), _) if slot.is_none() => {
                return Lookup::Entry(self.arena.entries[index].value.clone());
            }
            (NodeId::Stub(index), depth) => {
                return Lookup::Stub {
                    stub: &self.arena.stubs[index],
                    depth,
                };
            }
            _ => return Lookup::Absent,
        };
        self.lookup_slot(link, slot.expect("a slot's path"), 0)
    }

    /// Looks up a slot from the node at `link` of its storage trie, at depth `depth` of that trie.
    fn lookup_slot(&self, link: Link, slot: &Key, depth: usize) -> Lookup<'_> {
        match self.walk(link, slot, depth) {
            (NodeId::Storage(index), _) => {
                Lookup::Slot(U256::from_be_bytes(self.arena.slots[index].value))
            }
            (NodeId::Stub(index), depth) => {
                let depth = depth + ACCOUNT_NIBBLES;
                Lookup::Stub {
                    stub: &self.arena.stubs[index],
                    depth,
                }
            }
            _ => Lookup::Absent,
        }
    }

    /// Walks along `key` from the node at `link`, at depth `depth`, to the leaf of that key, a
    /// blinded node, or nothing. Returns it with its depth.
    #[inline]
    pub(crate) fn walk(&self, mut link: Link, key: &Key, mut depth: usize) -> (NodeId, usize) {
        loop {
            let slot = link.id();
            match slot {
                NodeId::Branch(index) => {
                    link = self.arena.branches[index].children[nibble(key, depth)];
                    depth += 1;
                }
                NodeId::Extension(index) => {
                    let node = &self.arena.extensions[index];
                    let end = usize::from(node.end) - node.level();
                    if shared_nibbles(&node.key, key) < end {
                        return (NodeId::Empty, depth);
                    }
                    (link, depth) = (node.child, end);
                }
                NodeId::Account(index) if self.arena.accounts[index].key != *key => {
                    return (NodeId::Empty, depth);
                }
                NodeId::Storage(index) if self.arena.slots[index].key != *key => {
                    return (NodeId::Empty, depth);
                }
                NodeId::Entry(index) if self.arena.entries[index].key != *key => {
                    return (NodeId::Empty, depth);
                }
                _ => return (slot, depth),
            }
        }
    }

    /// Returns the node that is exactly at `path`. A path of 64 nibbles names a storage root.
    pub fn find(&self, path: &Path) -> Option<Link> {
        if path.len() < self.base.len() || !path.starts_with(&self.base) {
            return None;
        }
        self.find_from(self.root, self.base.len(), path)
    }

    /// Like [`Self::find`], but starts at the node at `link`, which is at depth `depth` of `path`.
    pub fn find_from(&self, link: Link, depth: usize, path: &Path) -> Option<Link> {
        self.find_parent(link, depth, path).map(|(_, link)| link)
    }

    /// Returns the node that is exactly at `path`, or the blinded node above that covers it, with
    /// its depth in nibbles.
    pub fn find_or_stub(&self, path: &Path) -> Option<(Link, usize)> {
        if path.len() < self.base.len() || !path.starts_with(&self.base) {
            return None;
        }
        let (_, link, depth) = self.descend(self.root, self.base.len(), path)?;
        Some((link, depth))
    }

    /// Returns the parent of the node that is exactly at `path`, or an empty link if it is the
    /// root, and the node.
    pub(crate) fn find_parent(
        &self,
        link: Link,
        depth: usize,
        path: &Path,
    ) -> Option<(Link, Link)> {
        let (parent, link, depth) = self.descend(link, depth, path)?;
        (depth == path.len()).then_some((parent, link))
    }

    /// Walks from the node at `link`, at depth `depth`, to the node exactly at `path` or to a
    /// blinded node on the way. Returns its parent (an empty link for the root), the node, and its
    /// depth.
    fn descend(
        &self,
        mut link: Link,
        mut depth: usize,
        path: &Path,
    ) -> Option<(Link, Link, usize)> {
        let mut parent = Link::EMPTY;
        loop {
            // The leaf of an account or of an entry may be at 64 nibbles itself: continue to its
            // storage.
            let is_leaf_at_64 = depth == ACCOUNT_NIBBLES
                && matches!(link.id(), NodeId::Account(_) | NodeId::Entry(_));
            if (depth == path.len() && !is_leaf_at_64) || link.is_stub() {
                return (!link.is_empty()).then_some((parent, link, depth));
            }
            parent = link;
            match link.id() {
                NodeId::Branch(index) => {
                    link = self.arena.branches[index].children[usize::from(path.nibble(depth))];
                    depth += 1;
                }
                NodeId::Extension(index) => {
                    let node = &self.arena.extensions[index];
                    let (level, end) = (node.level(), usize::from(node.end));
                    if path.len() < end || shared_from(path, level, &node.key) < end - level {
                        return None;
                    }
                    (link, depth) = (node.child, end);
                }
                NodeId::Account(index) => {
                    let node = &self.arena.accounts[index];
                    if path.account_part() != Some(B256::from(node.key)) {
                        return None;
                    }
                    (link, depth) = (node.storage, ACCOUNT_NIBBLES);
                }
                NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => {
                    return None;
                }
            }
        }
    }

    /// Adds a branch that no node links to yet.
    pub fn push_branch(&mut self, children: [Link; 16]) -> Link {
        self.arena.add_branch(children)
    }

    /// Adds an extension at depth `depth` that leads to `child` at path `to`, and that no node
    /// links to yet.
    ///
    /// # Panics
    ///
    /// Panics if `to` is not below `depth`, or is in another trie (account trie or storage trie).
    pub fn push_extension(&mut self, depth: usize, to: &Path, child: Link) -> Link {
        let level = if depth < ACCOUNT_NIBBLES {
            0
        } else {
            ACCOUNT_NIBBLES
        };
        assert!(
            depth < to.len() && to.len() <= level + 64,
            "an extension from {depth} to {to}"
        );
        self.arena
            .add_extension(depth, to.len(), key_at(to, level), child)
    }

    /// Adds the leaf of the account at `path`, at depth `depth`, that no node links to yet.
    ///
    /// # Panics
    ///
    /// Panics if `depth` is over 64 nibbles.
    pub fn push_account(
        &mut self,
        depth: usize,
        path: &B256,
        account: &Account,
        storage: Link,
    ) -> Link {
        assert!(
            depth <= ACCOUNT_NIBBLES,
            "an account's leaf at depth {depth}"
        );
        self.arena.add_account(depth, path.0, account, storage)
    }

    /// Adds the leaf of the slot whose hash is `slot`, at depth `depth`, that no node links to yet.
    ///
    /// # Panics
    ///
    /// Panics if `depth` is not 64 to 128 nibbles, or if the value is zero.
    pub fn push_slot(&mut self, depth: usize, slot: &B256, value: U256) -> Link {
        assert!(
            (ACCOUNT_NIBBLES..=SLOT_NIBBLES).contains(&depth),
            "a slot's leaf at {depth}"
        );
        assert!(!value.is_zero(), "a leaf of value zero at slot {slot}");
        self.arena.add_slot(depth - ACCOUNT_NIBBLES, slot.0, value)
    }

    /// Adds the leaf of the entry with key `key`, at depth `depth`, that no node links to yet.
    ///
    /// # Panics
    ///
    /// Panics if `depth` is over 64 nibbles.
    pub fn push_entry(&mut self, depth: usize, key: &B256, value: EntryValue) -> Link {
        assert!(depth <= ACCOUNT_NIBBLES, "an entry's leaf at depth {depth}");
        self.arena.add_entry(depth, key.0, value)
    }

    /// Adds a blinded node that no node links to yet.
    pub fn push_stub(&mut self, stub: Stub) -> Link {
        self.arena.add_stub(stub)
    }

    /// Makes the node at `link` the root. Does not free the previous root.
    pub fn set_root(&mut self, link: Link) {
        self.arena.divided.clear();
        self.root = link;
    }

    /// Makes `child` the child of `parent`: at `nibble` of a branch, below an extension, or as the
    /// storage root of an account, where `nibble` is ignored. Neither frees the previous child nor
    /// clears cached references.
    ///
    /// # Panics
    ///
    /// Panics if `parent` is a slot, blinded or empty.
    pub fn set_child(&mut self, parent: Link, nibble: u8, child: Link) {
        // The child may be outside its part of a divided storage trie.
        self.arena.divided.clear();
        self.link_child(parent, nibble, child);
    }

    /// Like [`Self::set_child`], for a child that was added to the part of its storage trie, if that is divided.
    pub(crate) fn link_child(&mut self, parent: Link, nibble: u8, child: Link) {
        match parent.id() {
            NodeId::Branch(index) => {
                let node = &mut self.arena.branches[index];
                node.children[usize::from(nibble)] = child;
                node.unhashed |= 1 << nibble;
            }
            NodeId::Extension(index) => self.arena.extensions[index].child = child,
            NodeId::Account(index) => self.arena.accounts[index].storage = child,
            _ => panic!("{parent:?} has no children"),
        }
    }

    /// Sets the cached reference of the node at `link`, which must not be blinded.
    pub fn set_cached_ref(&mut self, link: Link, memo: NodeRef) {
        self.arena.set_cached_ref(link, memo);
    }

    /// Removes the cached reference of the node at `link`, which must not be blinded.
    pub fn clear_cached_ref(&mut self, link: Link) {
        self.arena.set_cached_ref(link, NodeRef::UNKNOWN);
    }

    /// Replaces the blinded node at `link`.
    ///
    /// # Panics
    ///
    /// Panics if the node at `link` is not blinded.
    pub fn set_stub(&mut self, link: Link, stub: Stub) {
        let NodeId::Stub(index) = link.id() else {
            panic!("{link:?} is no stub")
        };
        self.arena.stubs[index] = stub;
    }

    /// Frees the subtrie at `link`. No node may link to it.
    pub fn free(&mut self, link: Link) {
        self.arena.divided.clear();
        self.arena.free_subtrie(link);
    }

    /// Frees the node at `link`, but none below it. No node may link to it.
    pub fn free_node(&mut self, link: Link) {
        self.arena.divided.clear();
        self.arena.free_node(link);
    }

    /// Returns a copy without the memory of freed nodes, if that is more than the memory of all
    /// others. Links are not valid in it.
    pub fn compacted(&self) -> Option<Self> {
        if !self.arena.is_sparse() {
            return None;
        }
        let mut compact = Self::new(self.base).committed_by(self.commitment);
        compact.root = compact.graft_subtrie(self, self.root);
        Some(compact)
    }

    /// Replaces the subtrie at `path` by a blinded node, to evict or prune it. Returns the link of
    /// the blinded node.
    ///
    /// # Errors
    ///
    /// Returns [`TrieError::NoNode`] if there is no node at `path`, and [`TrieError::NotHashed`] if
    /// it is not hashed.
    pub fn replace_by_stub(
        &mut self,
        path: &Path,
        place: Option<crate::Place>,
    ) -> Result<Link, TrieError> {
        let no_node = TrieError::NoNode { path: *path };
        if !path.starts_with(&self.base) {
            return Err(no_node);
        }
        let Some((parent, link)) = self.find_parent(self.root, self.base.len(), path) else {
            return Err(no_node);
        };
        let node = self
            .cached_ref(link)
            .ok_or(TrieError::NotHashed { path: *path })?;
        let stub = self.push_stub(Stub {
            node,
            kind: self.kind(link),
            place,
        });
        self.free(link);
        self.hang(parent, path, stub);
        Ok(stub)
    }

    /// Prunes a hashed trie to its *retention levels*: replaces the nodes at `accounts` nibbles or more from the root, and those at
    /// `slots` or more from the root of a storage trie, by blinded nodes without a place. Nodes under 32 bytes stay in
    /// their parents.
    ///
    /// # Errors
    ///
    /// Returns [`TrieError::NotHashed`] if a node to be replaced is not hashed.
    pub fn prune(&mut self, accounts: u8, slots: u8) -> Result<(), TrieError> {
        self.arena.divided.clear();
        let levels = [accounts.into(), slots.into()];
        self.root = self.prune_at(self.root, self.base.len(), levels)?;
        Ok(())
    }

    /// Returns a pruned copy, as of [`Self::prune`]. Takes less time where most of the nodes are to go. Links are not valid in it.
    ///
    /// # Errors
    ///
    /// As [`Self::prune`].
    pub fn pruned(&self, accounts: u8, slots: u8) -> Result<Self, TrieError> {
        let mut copy = Self::new(self.base).committed_by(self.commitment);
        let levels = [accounts.into(), slots.into()];
        copy.root = copy.copy_pruned(self, self.root, self.base.len(), levels)?;
        Ok(copy)
    }

    /// Copies what [`Self::prune_at`] leaves of the subtrie at `link` of another trie.
    fn copy_pruned(
        &mut self,
        from: &Self,
        link: Link,
        depth: usize,
        levels: [usize; 2],
    ) -> Result<Link, TrieError> {
        if link.is_empty() {
            return Ok(link);
        }
        let node = *from.arena.cached_ref(link);
        if let NodeId::Stub(index) = link.id() {
            return Ok(self.push_stub(from.arena.stubs[index]));
        }
        if node.is_unknown() {
            return Err(TrieError::NotHashed { path: from.base });
        }
        let is_leaf_at_64 =
            depth == ACCOUNT_NIBBLES && matches!(link.id(), NodeId::Account(_) | NodeId::Entry(_));
        if depth >= levels[0] && node.as_hash().is_some() && !is_leaf_at_64 {
            let kind = from.kind(link);
            let place = None;
            return Ok(self.push_stub(Stub { node, kind, place }));
        }
        let copy = match link.id() {
            NodeId::Branch(index) => {
                let mut children = from.arena.branches[index].children;
                for child in &mut children {
                    *child = self.copy_pruned(from, *child, depth + 1, levels)?;
                }
                self.push_branch(children)
            }
            NodeId::Extension(index) => {
                let node = &from.arena.extensions[index];
                let (start, end) = (usize::from(node.start), usize::from(node.end));
                let child = self.copy_pruned(from, node.child, end - node.level(), levels)?;
                self.arena.add_extension(start, end, node.key, child)
            }
            NodeId::Account(index) => {
                let node = &from.arena.accounts[index];
                let [_, slots] = levels;
                let storage = self.copy_pruned(from, node.storage, 0, [slots, slots])?;
                let account = from.arena.account(index);
                let copy = self
                    .arena
                    .add_account(node.depth.into(), node.key, &account, storage);
                self.arena.marked(copy, node.mark)
            }
            NodeId::Empty | NodeId::Stub(_) | NodeId::Storage(_) | NodeId::Entry(_) => {
                return Ok(self.graft_subtrie(from, link));
            }
        };
        self.arena.set_cached_ref(copy, node);
        Ok(copy)
    }

    /// Prunes the subtrie at `link`, at depth `depth` of its trie, to the first of the levels. The other one is that of
    /// the storage tries below. Recursion is bounded by the path's 128 nibbles.
    fn prune_at(
        &mut self,
        link: Link,
        depth: usize,
        levels: [usize; 2],
    ) -> Result<Link, TrieError> {
        let node = *self.arena.cached_ref(link);
        if link.is_empty() || link.is_stub() {
            return Ok(link);
        }
        if node.is_unknown() {
            return Err(TrieError::NotHashed { path: self.base });
        }
        // An account at depth 64 comes with the branch above it: see the head of this file.
        let is_leaf_at_64 =
            depth == ACCOUNT_NIBBLES && matches!(link.id(), NodeId::Account(_) | NodeId::Entry(_));
        if depth >= levels[0] && node.as_hash().is_some() && !is_leaf_at_64 {
            let kind = self.kind(link);
            self.arena.free_subtrie(link);
            let place = None;
            return Ok(self.push_stub(Stub { node, kind, place }));
        }
        match link.id() {
            NodeId::Branch(index) => {
                for at in 0..16 {
                    let child = self.arena.branches[index].children[at];
                    let child = self.prune_at(child, depth + 1, levels)?;
                    self.arena.branches[index].children[at] = child;
                }
            }
            NodeId::Extension(index) => {
                let node = &self.arena.extensions[index];
                let (child, end) = (node.child, usize::from(node.end) - node.level());
                self.arena.extensions[index].child = self.prune_at(child, end, levels)?;
            }
            NodeId::Account(index) => {
                let storage = self.arena.accounts[index].storage;
                let [_, slots] = levels;
                let storage = self.prune_at(storage, 0, [slots, slots])?;
                self.arena.accounts[index].storage = storage;
            }
            NodeId::Empty | NodeId::Stub(_) | NodeId::Storage(_) | NodeId::Entry(_) => {}
        }
        Ok(link)
    }

    /// Makes the node at `path` a child of `parent`, or the root if `parent` is empty.
    pub(crate) fn hang(&mut self, parent: Link, path: &Path, link: Link) {
        match path.nibbles().next_back() {
            Some(nibble) if !parent.is_empty() => self.link_child(parent, nibble, link),
            _ => self.root = link,
        }
    }
}

/// Returns the nibbles of `path` from `level` (0 or 64) on, as a key.
pub(crate) fn key_at(path: &Path, level: usize) -> Key {
    let packed = &path.packed()[level / 2..];
    let mut key = [0; 32];
    let len = packed.len().min(32);
    key[..len].copy_from_slice(&packed[..len]);
    key
}

/// Length of the common prefix of `path` from `level` on and `key`, in nibbles.
fn shared_from(path: &Path, level: usize, key: &Key) -> usize {
    shared_nibbles(&key_at(path, level), key)
}

impl core::fmt::Debug for PartialTrie {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (nodes, stubs) = self.counts();
        write!(
            f,
            "PartialTrie(at {}: {nodes} nodes, {stubs} stubs)",
            self.base
        )
    }
}

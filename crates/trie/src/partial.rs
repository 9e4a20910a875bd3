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
//! One path space: an account's leaf ends at 64 nibbles, and from it hangs the root of its storage
//! trie, whose nodes sit at depths 64 to 128. Any subtrie may be a stub.
//!
//! **What a path of 64 nibbles names.** Always a storage root. An account's leaf that itself *sits*
//! at depth 64 shares 63 nibbles with another account's; no two Keccak-256 hashes are known that
//! do. Such leaves are supported, but are never evicted, grafted as stubs or resolved.
//!
//! **Memos.** A node's memo is the reference by which its parent knows it. A change clears the
//! memos from the leaf up to the root, so a node without memo never has an ancestor with one,
//! except below nodes that came in with their memo (a page's leaves below its cached digests):
//! those are hashed when something first needs them.

use crate::{
    arena::{Arena, Key, Link, Slot, nibble, shared_nibbles},
    error::TrieError,
    node_ref::{NodeKind, NodeRef, Stub},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, Path, SLOT_NIBBLES};

/// A trie of which any part may be absent. See the module's head.
#[derive(Clone)]
pub struct PartialTrie {
    pub(crate) base: Path,
    pub(crate) root: Link,
    pub(crate) arena: Arena,
}

/// One node, as its readers see it. Paths are relative: the nibbles that the node itself takes.
#[derive(Debug)]
pub enum NodeView<'a> {
    /// No node.
    Empty,
    /// Sixteen children.
    Branch {
        /// By nibble.
        children: &'a [Link; 16],
    },
    /// Nibbles that all leaves below share.
    Extension {
        /// The shared nibbles.
        path: Path,
        /// A branch, or the stub of one.
        child: Link,
    },
    /// An account.
    Account {
        /// The nibbles left below the parent.
        path: Path,
        /// The whole path.
        key: B256,
        /// Its fields.
        account: Account,
        /// Root of its storage trie.
        storage: Link,
    },
    /// A storage slot.
    Slot {
        /// The nibbles left below the parent.
        path: Path,
        /// The whole path within the account: keccak(slot).
        key: B256,
        /// Its value, never zero.
        value: U256,
    },
    /// An absent subtrie.
    Stub(&'a Stub),
}

/// What a walk to a leaf finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// There is no such leaf.
    Absent,
    /// The account.
    Account(Account),
    /// The slot's value, never zero.
    Slot(U256),
    /// The leaf is in this absent subtrie, if it is anywhere.
    Stub {
        /// The subtrie.
        stub: &'a Stub,
        /// Nibbles of the path down to where the subtrie sits.
        depth: usize,
    },
}

impl PartialTrie {
    /// An empty trie whose root sits at `base`. Paths given to it are whole all the same, and all
    /// begin with `base`. Panics if `base` is not shorter than an account's path.
    pub fn new(base: Path) -> Self {
        assert!(
            base.len() < ACCOUNT_NIBBLES,
            "a trie based at {base}, within an account"
        );
        Self {
            base,
            root: Link::EMPTY,
            arena: Arena::new(),
        }
    }

    /// A trie whose root sits at `base` and is absent altogether.
    pub fn from_stub(base: Path, stub: Stub) -> Self {
        let mut trie = Self::new(base);
        trie.root = trie.arena.add_stub(stub);
        trie
    }

    /// Where the root sits.
    pub const fn base(&self) -> &Path {
        &self.base
    }

    /// The root's link.
    pub const fn root(&self) -> Link {
        self.root
    }

    /// Whether there is no leaf.
    pub const fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.arena.memory_bytes()
    }

    /// Gives back the memory that is held for nodes to come.
    pub fn shrink_to_fit(&mut self) {
        self.arena.shrink_to_fit();
    }

    /// Number of expanded nodes, and of stubs.
    pub fn counts(&self) -> (usize, usize) {
        self.arena.counts()
    }

    /// The node at `link`, which must be of this trie.
    pub fn visit(&self, link: Link) -> NodeView<'_> {
        match link.slot() {
            Slot::Empty => NodeView::Empty,
            Slot::Branch(index) => NodeView::Branch {
                children: &self.arena.branches[index].children,
            },
            Slot::Extension(index) => {
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
            Slot::Account(index) => {
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
            Slot::Storage(index) => {
                let node = &self.arena.slots[index];
                let key = B256::from(node.key);
                let path = Path::account(&key).suffix(node.depth.into());
                NodeView::Slot {
                    path,
                    key,
                    value: U256::from_be_bytes(node.value),
                }
            }
            Slot::Stub(index) => NodeView::Stub(&self.arena.stubs[index]),
        }
    }

    /// What the node is; `None` for no node and for a stub that doesn't know.
    pub fn kind(&self, link: Link) -> Option<NodeKind> {
        match link.slot() {
            Slot::Empty => None,
            Slot::Branch(_) => Some(NodeKind::Branch),
            Slot::Extension(_) => Some(NodeKind::Extension),
            Slot::Account(_) | Slot::Storage(_) => Some(NodeKind::Leaf),
            Slot::Stub(index) => self.arena.stubs[index].kind,
        }
    }

    /// How the node's parent refers to it. `None` for no node and for one not hashed yet.
    pub fn memo(&self, link: Link) -> Option<NodeRef> {
        self.arena.memo(link).known()
    }

    /// Walks to the account (64 nibbles) or slot (128) at `full`. Panics on any other length.
    pub fn lookup(&self, full: &Path) -> Lookup<'_> {
        let (account, slot) = full.packed().split_at_checked(32).expect("a leaf's path");
        let account = account.first_chunk().expect("32 bytes");
        let slot = slot.first_chunk();
        assert!(
            full.len() == ACCOUNT_NIBBLES || full.len() == SLOT_NIBBLES,
            "no leaf at {full}"
        );
        if let Some(depth) = self.base.len().checked_sub(ACCOUNT_NIBBLES) {
            return slot.map_or(Lookup::Absent, |slot| {
                self.lookup_slot(self.root, slot, depth)
            });
        }
        let link = match self.walk(self.root, account, self.base.len()) {
            (Slot::Account(index), _) => match slot {
                None => return Lookup::Account(self.arena.account(index)),
                Some(_) => self.arena.accounts[index].storage,
            },
            (Slot::Stub(index), depth) => {
                return Lookup::Stub {
                    stub: &self.arena.stubs[index],
                    depth,
                };
            }
            _ => return Lookup::Absent,
        };
        self.lookup_slot(link, slot.expect("a slot's path"), 0)
    }

    /// Walks to a slot from the node at `link` of its storage trie, which sits at `depth` there.
    fn lookup_slot(&self, link: Link, slot: &Key, depth: usize) -> Lookup<'_> {
        match self.walk(link, slot, depth) {
            (Slot::Storage(index), _) => {
                Lookup::Slot(U256::from_be_bytes(self.arena.slots[index].value))
            }
            (Slot::Stub(index), depth) => {
                let depth = depth + ACCOUNT_NIBBLES;
                Lookup::Stub {
                    stub: &self.arena.stubs[index],
                    depth,
                }
            }
            _ => Lookup::Absent,
        }
    }

    /// Walks along `key` from the node at `link`, which sits at `depth` of it, to the leaf of
    /// that key, a stub, or nothing; with the depth reached.
    #[inline]
    fn walk(&self, mut link: Link, key: &Key, mut depth: usize) -> (Slot, usize) {
        loop {
            let slot = link.slot();
            match slot {
                Slot::Branch(index) => {
                    link = self.arena.branches[index].children[nibble(key, depth)];
                    depth += 1;
                }
                Slot::Extension(index) => {
                    let node = &self.arena.extensions[index];
                    let end = usize::from(node.end) - node.level();
                    if shared_nibbles(&node.key, key) < end {
                        return (Slot::Empty, depth);
                    }
                    (link, depth) = (node.child, end);
                }
                Slot::Account(index) if self.arena.accounts[index].key != *key => {
                    return (Slot::Empty, depth);
                }
                Slot::Storage(index) if self.arena.slots[index].key != *key => {
                    return (Slot::Empty, depth);
                }
                _ => return (slot, depth),
            }
        }
    }

    /// The node that sits exactly at `path`; at 64 nibbles, the root of that account's storage.
    pub fn find(&self, path: &Path) -> Option<Link> {
        if path.len() < self.base.len() || !path.starts_with(&self.base) {
            return None;
        }
        self.find_from(self.root, self.base.len(), path)
    }

    /// As [`Self::find`], from the node at `link`, which sits at `depth` of `path`.
    pub fn find_from(&self, link: Link, depth: usize, path: &Path) -> Option<Link> {
        self.find_parent(link, depth, path).map(|(_, link)| link)
    }

    /// The node that sits exactly at `path`, or the stub above that stands for it too; with the
    /// depth at which it sits.
    pub fn find_or_stub(&self, path: &Path) -> Option<(Link, usize)> {
        if path.len() < self.base.len() || !path.starts_with(&self.base) {
            return None;
        }
        let (_, link, depth) = self.descend(self.root, self.base.len(), path)?;
        Some((link, depth))
    }

    /// The node that sits exactly at `path` and the one that holds its link (empty if none does).
    pub(crate) fn find_parent(
        &self,
        link: Link,
        depth: usize,
        path: &Path,
    ) -> Option<(Link, Link)> {
        let (parent, link, depth) = self.descend(link, depth, path)?;
        (depth == path.len()).then_some((parent, link))
    }

    /// Goes from the node at `link`, which sits at `depth`, to the one that sits exactly at
    /// `path`, or to a stub on the way. Returns the node that holds its link (empty if none does),
    /// it, and its depth.
    fn descend(
        &self,
        mut link: Link,
        mut depth: usize,
        path: &Path,
    ) -> Option<(Link, Link, usize)> {
        let mut parent = Link::EMPTY;
        loop {
            // At 64 nibbles an account's leaf may itself sit: go on to its storage.
            let account_at_64 = depth == ACCOUNT_NIBBLES && matches!(link.slot(), Slot::Account(_));
            if (depth == path.len() && !account_at_64) || link.is_stub() {
                return (!link.is_empty()).then_some((parent, link, depth));
            }
            parent = link;
            match link.slot() {
                Slot::Branch(index) => {
                    link = self.arena.branches[index].children[usize::from(path.nibble(depth))];
                    depth += 1;
                }
                Slot::Extension(index) => {
                    let node = &self.arena.extensions[index];
                    let (level, end) = (node.level(), usize::from(node.end));
                    if path.len() < end || shared_from(path, level, &node.key) < end - level {
                        return None;
                    }
                    (link, depth) = (node.child, end);
                }
                Slot::Account(index) => {
                    let node = &self.arena.accounts[index];
                    if path.account_part() != Some(B256::from(node.key)) {
                        return None;
                    }
                    (link, depth) = (node.storage, ACCOUNT_NIBBLES);
                }
                Slot::Empty | Slot::Storage(_) | Slot::Stub(_) => return None,
            }
        }
    }

    /// Adds a branch, linked from nowhere yet.
    pub fn push_branch(&mut self, children: [Link; 16]) -> Link {
        self.arena.add_branch(children)
    }

    /// Adds an extension that sits at `depth` and leads to `child` at the path `to`, linked from
    /// nowhere yet. Panics if that is no way down within one level.
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

    /// Adds an account's leaf that sits at `depth`, linked from nowhere yet.
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

    /// Adds a slot's leaf that sits at `depth` (64 to 128), linked from nowhere yet. `slot` is
    /// keccak(slot); the value is not zero.
    pub fn push_slot(&mut self, depth: usize, slot: &B256, value: U256) -> Link {
        assert!(
            (ACCOUNT_NIBBLES..=SLOT_NIBBLES).contains(&depth),
            "a slot's leaf at {depth}"
        );
        assert!(!value.is_zero(), "a leaf of value zero at slot {slot}");
        self.arena.add_slot(depth - ACCOUNT_NIBBLES, slot.0, value)
    }

    /// Adds a stub, linked from nowhere yet.
    pub fn push_stub(&mut self, stub: Stub) -> Link {
        self.arena.add_stub(stub)
    }

    /// Puts the node at `link` at the root; what was there is left where it is.
    pub fn set_root(&mut self, link: Link) {
        self.root = link;
    }

    /// Puts `child` below `parent`: at `nibble` of a branch, else below the extension or as the
    /// storage of the account (`nibble` means nothing there). What was there is left where it
    /// is, and so are memos.
    pub fn set_child(&mut self, parent: Link, nibble: u8, child: Link) {
        match parent.slot() {
            Slot::Branch(index) => {
                let node = &mut self.arena.branches[index];
                node.children[usize::from(nibble)] = child;
                node.unhashed |= 1 << nibble;
            }
            Slot::Extension(index) => self.arena.extensions[index].child = child,
            Slot::Account(index) => self.arena.accounts[index].storage = child,
            _ => panic!("{parent:?} has no children"),
        }
    }

    /// Says how the parent refers to the node at `link`, which is no stub.
    pub fn set_memo(&mut self, link: Link, memo: NodeRef) {
        self.arena.set_memo(link, memo);
    }

    /// Changes what the stub at `link` says. Panics if `link` is no stub.
    pub fn set_stub(&mut self, link: Link, stub: Stub) {
        let Slot::Stub(index) = link.slot() else {
            panic!("{link:?} is no stub")
        };
        self.arena.stubs[index] = stub;
    }

    /// Frees the subtrie at `link`, which nothing links to any more.
    pub fn free(&mut self, link: Link) {
        self.arena.free_subtrie(link);
    }

    /// Replaces the subtrie that sits at `path` by its stub: evicts, prunes, makes a witness. The
    /// subtrie's root must be hashed. Returns the stub's link.
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
            .memo(link)
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

    /// Hangs the node that sits at `path` below `parent`, or as the root if that is no node.
    pub(crate) fn hang(&mut self, parent: Link, path: &Path, link: Link) {
        match path.nibbles().next_back() {
            Some(nibble) if !parent.is_empty() => self.set_child(parent, nibble, link),
            _ => self.root = link,
        }
    }
}

/// The nibbles of `path` from `level` (0 or 64) on, as a key.
pub(crate) fn key_at(path: &Path, level: usize) -> Key {
    let packed = &path.packed()[level / 2..];
    let mut key = [0; 32];
    let len = packed.len().min(32);
    key[..len].copy_from_slice(&packed[..len]);
    key
}

/// Nibbles that `path` from `level` on shares with `key`.
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

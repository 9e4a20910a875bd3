//! Building tries from the leaves of pages and from nodes of other tries.

use crate::{
    arena::{Link, NodeId},
    error::TrieError,
    node_ref::{NodeKind, NodeRef, Stub},
    partial::{PartialTrie, key_at},
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::U256;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, EntryValue, Path, SLOT_NIBBLES};

/// Value of a leaf passed to [`PartialTrie::graft_leaves`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafValue {
    /// An account, at a path of 64 nibbles.
    Account(Account),
    /// The blinded storage root of the account before it, at the same path of 64 nibbles.
    Storage(Stub),
    /// The value of a slot, which is not zero, at a path of 128 nibbles.
    Slot(U256),
    /// The value of an entry, at a path of 64 nibbles.
    Entry(EntryValue),
}

impl PartialTrie {
    /// Copies the node at `link` of `from` with its cached reference. Its children become blinded
    /// nodes with their reference, type and place. Returns the link of the copy, which no node
    /// links to yet.
    ///
    /// Accounts and entries at depth 64 are copied instead of blinded (see the head of `partial.rs`).
    ///
    /// # Errors
    ///
    /// Returns [`TrieError::NotHashed`] if a child is not hashed.
    pub fn graft_node(&mut self, from: &Self, link: Link) -> Result<Link, TrieError> {
        let copy = match link.id() {
            NodeId::Empty => return Ok(Link::EMPTY),
            NodeId::Stub(index) => return Ok(self.push_stub(from.arena.stubs[index])),
            NodeId::Branch(index) => {
                let mut children = from.arena.branches[index].children;
                for child in &mut children {
                    *child = match child.id() {
                        NodeId::Account(at)
                            if usize::from(from.arena.accounts[at].depth) == ACCOUNT_NIBBLES =>
                        {
                            self.graft_node(from, *child)?
                        }
                        NodeId::Entry(at)
                            if usize::from(from.arena.entries[at].depth) == ACCOUNT_NIBBLES =>
                        {
                            self.graft_node(from, *child)?
                        }
                        _ => self.stub_of(from, *child)?,
                    };
                }
                self.push_branch(children)
            }
            NodeId::Extension(index) => {
                let node = &from.arena.extensions[index];
                let child = self.stub_of(from, node.child)?;
                if let NodeId::Stub(index) = child.id() {
                    self.arena.stubs[index].kind = Some(NodeKind::Branch);
                }
                self.arena
                    .add_extension(node.start.into(), node.end.into(), node.key, child)
            }
            NodeId::Account(index) => {
                let node = &from.arena.accounts[index];
                let storage = self.stub_of(from, node.storage)?;
                let account = from.arena.account(index);
                let copy = self
                    .arena
                    .add_account(node.depth.into(), node.key, &account, storage);
                self.arena.marked(copy, node.mark)
            }
            NodeId::Storage(index) => {
                let node = &from.arena.slots[index];
                self.arena
                    .add_slot(node.depth.into(), node.key, U256::from_be_bytes(node.value))
            }
            NodeId::Entry(index) => self.copy_entry(from, index),
        };
        self.arena
            .set_cached_ref(copy, *from.arena.cached_ref(link));
        Ok(copy)
    }

    /// Copies the whole subtrie at `link` of `from` with its blinded nodes and cached references.
    /// Returns the link of the copy, which no node links to yet. Recursion is bounded by the 128
    /// nibbles of a path.
    pub fn graft_subtrie(&mut self, from: &Self, link: Link) -> Link {
        let copy = match link.id() {
            NodeId::Empty => return Link::EMPTY,
            NodeId::Stub(index) => return self.push_stub(from.arena.stubs[index]),
            NodeId::Branch(index) => {
                let children = from.arena.branches[index].children;
                let copies = children.map(|child| self.graft_subtrie(from, child));
                self.push_branch(copies)
            }
            NodeId::Extension(index) => {
                let node = &from.arena.extensions[index];
                let child = self.graft_subtrie(from, node.child);
                self.arena
                    .add_extension(node.start.into(), node.end.into(), node.key, child)
            }
            NodeId::Account(index) => {
                let node = &from.arena.accounts[index];
                let storage = self.graft_subtrie(from, node.storage);
                let account = from.arena.account(index);
                let copy = self
                    .arena
                    .add_account(node.depth.into(), node.key, &account, storage);
                self.arena.marked(copy, node.mark)
            }
            NodeId::Storage(index) => {
                let node = &from.arena.slots[index];
                let value = U256::from_be_bytes(node.value);
                self.arena.add_slot(node.depth.into(), node.key, value)
            }
            NodeId::Entry(index) => self.copy_entry(from, index),
        };
        self.arena
            .set_cached_ref(copy, *from.arena.cached_ref(link));
        copy
    }

    fn copy_entry(&mut self, from: &Self, index: u32) -> Link {
        let node = &from.arena.entries[index];
        let depth = node.depth.into();
        match node.is_tombstone {
            false => self.arena.add_entry(depth, node.key, node.value.clone()),
            true => self.arena.add_tombstone(depth, node.key),
        }
    }

    /// Adds the blinded node for `link` of `from`. Returns an empty link for an empty one.
    pub(crate) fn stub_of(&mut self, from: &Self, link: Link) -> Result<Link, TrieError> {
        if link.is_empty() {
            return Ok(Link::EMPTY);
        }
        let stub = from
            .as_stub(link)
            .ok_or(TrieError::NotHashed { path: from.base })?;
        Ok(self.push_stub(stub))
    }

    /// Returns the node at `link` as a blinded node, with its place if it is blinded already.
    /// Returns `None` if there is no node or it is not hashed.
    pub fn as_stub(&self, link: Link) -> Option<Stub> {
        if let NodeId::Stub(index) = link.id() {
            return Some(self.arena.stubs[index]);
        }
        Some(Stub {
            node: self.cached_ref(link)?,
            kind: self.kind(link),
            place: None,
        })
    }

    /// Builds the subtrie of `leaves`, which are sorted by path, with its root at `prefix`. Returns
    /// the link of the root, which no node links to yet, or an empty link if there are no leaves.
    ///
    /// A prefix of 64 nibbles or more is within the storage of one account, and all leaves are
    /// slots. With a shorter prefix, slots follow their account.
    ///
    /// `digests` are known references, which are cached at the nodes at their paths. A path of 64
    /// nibbles names a storage root.
    ///
    /// # Errors
    ///
    /// Returns an error if paths are unsorted or outside `prefix`, if a slot is zero or does not
    /// follow its account, or if there is no node at the path of a digest.
    pub fn graft_leaves(
        &mut self,
        prefix: &Path,
        leaves: impl Iterator<Item = (Path, LeafValue)>,
        digests: impl Iterator<Item = (Path, NodeRef)>,
    ) -> Result<Link, TrieError> {
        let root = if prefix.len() < ACCOUNT_NIBBLES {
            self.join_accounts(prefix, leaves)?
        } else {
            self.join_slots(prefix, leaves)?
        };
        for (path, digest) in digests {
            let outside = TrieError::Outside {
                path,
                under: Box::new(*prefix),
            };
            if !path.starts_with(prefix) {
                return Err(outside);
            }
            match self.find_from(root, prefix.len(), &path) {
                Some(link) if !link.is_stub() => self.arena.set_cached_ref(link, digest),
                _ => return Err(TrieError::NoNode { path }),
            }
        }
        Ok(root)
    }

    fn join_accounts(
        &mut self,
        prefix: &Path,
        leaves: impl Iterator<Item = (Path, LeafValue)>,
    ) -> Result<Link, TrieError> {
        let mut accounts = Vec::new();
        let mut slots = Vec::new();
        let mut before: Option<Path> = None;
        for (path, value) in leaves {
            let account = accounts.last().copied();
            check_leaf(prefix, before, &path, &value)?;
            match value {
                LeafValue::Account(fields) => {
                    self.join_storage(account, &mut slots);
                    accounts.push(self.arena.add_account(
                        0,
                        key_at(&path, 0),
                        &fields,
                        Link::EMPTY,
                    ));
                }
                LeafValue::Entry(value) => {
                    self.join_storage(account, &mut slots);
                    accounts.push(self.arena.add_entry(0, key_at(&path, 0), value));
                }
                LeafValue::Storage(stub) => {
                    let is_account = |link: &Link| matches!(link.id(), NodeId::Account(_));
                    let account = account
                        .filter(is_account)
                        .ok_or(TrieError::Orphan { path })?;
                    let storage = self.arena.add_stub(stub);
                    self.link_child(account, 0, storage);
                }
                LeafValue::Slot(value) => {
                    let owner = account.map(|account| *self.leaf_key(account));
                    let elsewhere = match account.map(|account| self.visit(account)) {
                        Some(crate::NodeView::Account { storage, .. }) => storage.is_stub(),
                        _ => true,
                    };
                    if owner != path.account_part().map(|key| key.0) || elsewhere {
                        return Err(TrieError::Orphan { path });
                    }
                    slots.push(
                        self.arena
                            .add_slot(0, key_at(&path, ACCOUNT_NIBBLES), value),
                    );
                }
            }
            before = Some(path);
        }
        self.join_storage(accounts.last().copied(), &mut slots);
        Ok(self.join_leaves(0, prefix.len(), &accounts))
    }

    /// Builds the storage trie of `slots` below `account`.
    fn join_storage(&mut self, account: Option<Link>, slots: &mut Vec<Link>) {
        if let Some(account) = account
            && !slots.is_empty()
        {
            let storage = self.join_leaves(ACCOUNT_NIBBLES, 0, slots);
            self.link_child(account, 0, storage);
            slots.clear();
        }
    }

    fn join_slots(
        &mut self,
        prefix: &Path,
        leaves: impl Iterator<Item = (Path, LeafValue)>,
    ) -> Result<Link, TrieError> {
        let mut slots = Vec::new();
        let mut before = None;
        for (path, value) in leaves {
            check_leaf(prefix, before, &path, &value)?;
            let LeafValue::Slot(value) = value else {
                return Err(TrieError::Outside {
                    path,
                    under: Box::new(*prefix),
                });
            };
            slots.push(
                self.arena
                    .add_slot(0, key_at(&path, ACCOUNT_NIBBLES), value),
            );
            before = Some(path);
        }
        Ok(self.join_leaves(ACCOUNT_NIBBLES, prefix.len() - ACCOUNT_NIBBLES, &slots))
    }
}

fn check_leaf(
    prefix: &Path,
    before: Option<Path>,
    path: &Path,
    value: &LeafValue,
) -> Result<(), TrieError> {
    let path = *path;
    let len = match value {
        LeafValue::Account(_) | LeafValue::Storage(_) | LeafValue::Entry(_) => ACCOUNT_NIBBLES,
        LeafValue::Slot(_) => SLOT_NIBBLES,
    };
    if path.len() != len || !path.starts_with(prefix) {
        return Err(TrieError::Outside {
            path,
            under: Box::new(*prefix),
        });
    }
    if matches!(value, LeafValue::Slot(value) if value.is_zero()) {
        return Err(TrieError::ZeroSlot { path });
    }
    let ordered = match value {
        LeafValue::Storage(_) => before == Some(path),
        _ => before.is_none_or(|before| before < path),
    };
    if ordered {
        Ok(())
    } else {
        Err(TrieError::Unsorted { path })
    }
}

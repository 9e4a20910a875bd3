//! Growing a trie from pages and from other tries.

use crate::{
    arena::{Link, Slot},
    error::TrieError,
    node_ref::{NodeKind, NodeRef, Stub},
    partial::{PartialTrie, key_at},
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::U256;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, Path, SLOT_NIBBLES};

/// What hangs at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafValue {
    /// At 64 nibbles: an account.
    Account(Account),
    /// At 64 nibbles, just after the account: its whole storage, which is elsewhere.
    Storage(Stub),
    /// At 128 nibbles: a slot. Not zero.
    Slot(U256),
}

impl PartialTrie {
    /// Copies the node at `link` of `from`, with its memo; children that are not empty become
    /// stubs with their reference, kind and place. They must be hashed.
    ///
    /// Accounts that sit at depth 64 are copied, not stubbed (see the head of `partial.rs`).
    pub fn graft_node(&mut self, from: &Self, link: Link) -> Result<Link, TrieError> {
        let copy = match link.slot() {
            Slot::Empty => return Ok(Link::EMPTY),
            Slot::Stub(index) => return Ok(self.push_stub(from.arena.stubs[index])),
            Slot::Branch(index) => {
                let mut children = from.arena.branches[index].children;
                for child in &mut children {
                    *child = match child.slot() {
                        Slot::Account(at)
                            if usize::from(from.arena.accounts[at].depth) == ACCOUNT_NIBBLES =>
                        {
                            self.graft_node(from, *child)?
                        }
                        _ => self.stub_of(from, *child)?,
                    };
                }
                self.push_branch(children)
            }
            Slot::Extension(index) => {
                let node = &from.arena.extensions[index];
                let child = self.stub_of(from, node.child)?;
                if let Slot::Stub(index) = child.slot() {
                    self.arena.stubs[index].kind = Some(NodeKind::Branch);
                }
                self.arena
                    .add_extension(node.start.into(), node.end.into(), node.key, child)
            }
            Slot::Account(index) => {
                let node = &from.arena.accounts[index];
                let storage = self.stub_of(from, node.storage)?;
                let account = from.arena.account(index);
                self.arena
                    .add_account(node.depth.into(), node.key, &account, storage)
            }
            Slot::Storage(index) => {
                let node = &from.arena.slots[index];
                self.arena
                    .add_slot(node.depth.into(), node.key, U256::from_be_bytes(node.value))
            }
        };
        self.arena.set_memo(copy, *from.arena.memo(link));
        Ok(copy)
    }

    /// Copies the whole subtrie at `link` of `from`, with its stubs and memos. Returns the link of
    /// its root, linked from nowhere yet. Recursion is bounded by the path's 128 nibbles.
    pub fn graft_subtrie(&mut self, from: &Self, link: Link) -> Link {
        let copy = match link.slot() {
            Slot::Empty => return Link::EMPTY,
            Slot::Stub(index) => return self.push_stub(from.arena.stubs[index]),
            Slot::Branch(index) => {
                let children = from.arena.branches[index].children;
                let copies = children.map(|child| self.graft_subtrie(from, child));
                self.push_branch(copies)
            }
            Slot::Extension(index) => {
                let node = &from.arena.extensions[index];
                let child = self.graft_subtrie(from, node.child);
                self.arena
                    .add_extension(node.start.into(), node.end.into(), node.key, child)
            }
            Slot::Account(index) => {
                let node = &from.arena.accounts[index];
                let storage = self.graft_subtrie(from, node.storage);
                let account = from.arena.account(index);
                self.arena
                    .add_account(node.depth.into(), node.key, &account, storage)
            }
            Slot::Storage(index) => {
                let node = &from.arena.slots[index];
                let value = U256::from_be_bytes(node.value);
                self.arena.add_slot(node.depth.into(), node.key, value)
            }
        };
        self.arena.set_memo(copy, *from.arena.memo(link));
        copy
    }

    /// The stub of the node at `link` of `from`; nothing for nothing.
    pub(crate) fn stub_of(&mut self, from: &Self, link: Link) -> Result<Link, TrieError> {
        if link.is_empty() {
            return Ok(Link::EMPTY);
        }
        let stub = from
            .as_stub(link)
            .ok_or(TrieError::NotHashed { path: from.base })?;
        Ok(self.push_stub(stub))
    }

    /// The node at `link` as a stub: with its place, if it is one already. `None` for no node and
    /// for one not hashed yet.
    pub fn as_stub(&self, link: Link) -> Option<Stub> {
        if let Slot::Stub(index) = link.slot() {
            return Some(self.arena.stubs[index]);
        }
        Some(Stub {
            node: self.memo(link)?,
            kind: self.kind(link),
            place: None,
        })
    }

    /// Builds the whole subtrie of `leaves`, sorted by path, whose root sits at `prefix`, and
    /// returns its link (empty for no leaves). Linked from nowhere yet.
    ///
    /// A prefix of 64 nibbles or more lies within one account: only slots then. With a shorter
    /// one, slots follow their account.
    ///
    /// `digests` are references already known: `(path, reference)` is the memo of the node that
    /// sits at `path`; at an account's 64 nibbles, of the root of its storage.
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
                Some(link) if !link.is_stub() => self.arena.set_memo(link, digest),
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
                LeafValue::Storage(stub) => {
                    let account = account.ok_or(TrieError::Orphan { path })?;
                    let storage = self.arena.add_stub(stub);
                    self.set_child(account, 0, storage);
                }
                LeafValue::Slot(value) => {
                    let owner = account.map(|account| *self.leaf_key(account));
                    let elsewhere = matches!(account.map(|a| self.visit(a)),
                        Some(crate::NodeView::Account { storage, .. }) if storage.is_stub());
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

    /// Hangs the storage trie of `slots` below `account`.
    fn join_storage(&mut self, account: Option<Link>, slots: &mut Vec<Link>) {
        if let Some(account) = account
            && !slots.is_empty()
        {
            let storage = self.join_leaves(ACCOUNT_NIBBLES, 0, slots);
            self.set_child(account, 0, storage);
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
        LeafValue::Account(_) | LeafValue::Storage(_) => ACCOUNT_NIBBLES,
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

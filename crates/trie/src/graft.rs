//! Growing a trie from pages and from other tries.

use crate::{
    apply::TrieError,
    arena::{Link, Slot},
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
        self.take_digests(root, prefix, digests)?;
        Ok(root)
    }

    /// As [`Self::graft_leaves`], but no more of it than has to be: where the reference of a child
    /// of the topmost branch is known, that child stays a stub without a place, to be resolved by
    /// its path. `value` gives the value of the leaf of that number.
    pub fn graft_top<E: From<TrieError>>(
        &mut self,
        prefix: &Path,
        leaves: &[Path],
        digests: &[(Path, NodeRef)],
        mut value: impl FnMut(usize) -> Result<LeafValue, E>,
    ) -> Result<Link, E> {
        let (first, last) = match leaves {
            [first, .., last] => (first, last),
            _ => return self.graft_range(prefix, leaves, 0, &mut value),
        };
        let fork = first.common_prefix_len(last);
        let of_child = |path: &Path| {
            let at = digests.binary_search_by(|(digest, _)| digest.cmp(path));
            at.ok().map(|at| digests[at].1)
        };
        // An account and its slots have no branch above them.
        if fork >= first.len() || !digests.iter().any(|(path, _)| path.len() == fork + 1) {
            let root = self.graft_range(prefix, leaves, 0, &mut value)?;
            self.take_digests(root, prefix, digests.iter().copied())?;
            return Ok(root);
        }
        let mut children = [Link::EMPTY; 16];
        let (mut rest, mut start) = (leaves, 0);
        while let Some(first) = rest.first() {
            let child = first.prefix(fork + 1);
            let len = rest.partition_point(|leaf| leaf.nibble(fork) == first.nibble(fork));
            let link = match of_child(&child) {
                Some(node) => self.push_stub(Stub {
                    node,
                    kind: Some(kind_over(&rest[..len], child.len())),
                    place: None,
                }),
                None => self.graft_range(&child, &rest[..len], start, &mut value)?,
            };
            children[usize::from(first.nibble(fork))] = link;
            (rest, start) = (&rest[len..], start + len);
        }
        let branch = self.push_branch(children);
        let level = if fork < ACCOUNT_NIBBLES {
            0
        } else {
            ACCOUNT_NIBBLES
        };
        let key = key_at(first, level);
        let from_level = |depth: usize| depth.saturating_sub(level);
        Ok(self.lift(branch, level, fork - level, from_level(prefix.len()), &key))
    }

    /// The subtrie of leaves of which the first has the number `start`.
    fn graft_range<E: From<TrieError>>(
        &mut self,
        prefix: &Path,
        leaves: &[Path],
        start: usize,
        value: &mut impl FnMut(usize) -> Result<LeafValue, E>,
    ) -> Result<Link, E> {
        let mut failed = None;
        let values = leaves.iter().enumerate().map_while(|(at, path)| {
            let value = value(start + at).map_err(|error| failed = Some(error));
            Some((*path, value.ok()?))
        });
        let root = self.graft_leaves(prefix, values, core::iter::empty());
        match failed {
            Some(error) => Err(error),
            None => Ok(root?),
        }
    }

    /// Gives the nodes at these paths, below the node at `root` that sits at `prefix`, their memos.
    fn take_digests(
        &mut self,
        root: Link,
        prefix: &Path,
        digests: impl Iterator<Item = (Path, NodeRef)>,
    ) -> Result<(), TrieError> {
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
        Ok(())
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

/// What the root of a subtrie of these leaves is that sits at `depth`.
fn kind_over(leaves: &[Path], depth: usize) -> NodeKind {
    match leaves {
        [first, .., last] => match first.common_prefix_len(last) {
            // An account, followed by its slots.
            shared if shared >= first.len() => NodeKind::Leaf,
            shared if shared > depth => NodeKind::Extension,
            _ => NodeKind::Branch,
        },
        _ => NodeKind::Leaf,
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

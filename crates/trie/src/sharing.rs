//! Nodes that versions share: marks, copies, and lists of what a version adds and lacks. See `versions.rs`.

use crate::arena::{Arena, Link, NodeId, inline_bytes, is_stored};

impl Arena {
    /// Notes that a node was added.
    pub(crate) fn created(&mut self, link: Link) -> Link {
        if let Some(sharing) = &mut self.sharing {
            sharing.created.push(link);
        }
        link
    }

    /// Whether versions share the node at `link`.
    #[inline]
    pub(crate) fn is_shared(&self, link: Link) -> bool {
        match link.id() {
            NodeId::Empty | NodeId::Stub(_) => false,
            NodeId::Branch(index) => self.branches[index].is_shared,
            NodeId::Extension(index) => self.extensions[index].is_shared,
            NodeId::Account(index) => self.accounts[index].is_shared,
            NodeId::Storage(index) => self.slots[index].is_shared,
            NodeId::Entry(index) => self.entries[index].is_shared,
        }
    }

    /// Whether versions share the node at `link`, to be set. `None` for a blinded node and for nothing.
    fn sharing_of(&mut self, link: Link) -> Option<&mut bool> {
        match link.id() {
            NodeId::Empty | NodeId::Stub(_) => None,
            NodeId::Branch(index) => Some(&mut self.branches[index].is_shared),
            NodeId::Extension(index) => Some(&mut self.extensions[index].is_shared),
            NodeId::Account(index) => Some(&mut self.accounts[index].is_shared),
            NodeId::Storage(index) => Some(&mut self.slots[index].is_shared),
            NodeId::Entry(index) => Some(&mut self.entries[index].is_shared),
        }
    }

    /// Marks the node at `link` as shared by versions. Returns whether it was so.
    pub(crate) fn share(&mut self, link: Link) -> bool {
        let is_shared = self.sharing_of(link);
        is_shared.is_some_and(|is_shared| core::mem::replace(is_shared, true))
    }

    /// Marks all nodes as shared by versions.
    pub(crate) fn share_all(&mut self) {
        self.branches
            .iter_mut()
            .for_each(|node| node.is_shared = true);
        self.extensions
            .iter_mut()
            .for_each(|node| node.is_shared = true);
        self.accounts
            .iter_mut()
            .for_each(|node| node.is_shared = true);
        self.slots.iter_mut().for_each(|node| node.is_shared = true);
        self.entries
            .iter_mut()
            .for_each(|node| node.is_shared = true);
    }

    /// The node to change in place of the one at `link`: that one, or a copy if versions share it.
    #[inline]
    pub(crate) fn own(&mut self, link: Link) -> Link {
        match self.is_shared(link) {
            false => link,
            true => self.copy_shared(link),
        }
    }

    #[cold]
    fn copy_shared(&mut self, link: Link) -> Link {
        let copy = match link.id() {
            NodeId::Empty | NodeId::Stub(_) => return link,
            NodeId::Branch(index) => {
                let mut node = self.branches[index];
                node.is_shared = false;
                Link::branch(self.branches.insert(node))
            }
            NodeId::Extension(index) => {
                let mut node = self.extensions[index];
                node.is_shared = false;
                Link::extension(self.extensions.insert(node))
            }
            NodeId::Account(index) => {
                let mut node = self.accounts[index];
                node.is_shared = false;
                if let Some(rare) = node.rare.checked_sub(1) {
                    let rare = self.rares[rare];
                    node.rare = self.rares.insert(rare) + 1;
                }
                Link::account(self.accounts.insert(node))
            }
            NodeId::Storage(index) => {
                let mut node = self.slots[index];
                node.is_shared = false;
                Link::tagged(4, self.slots.insert(node))
            }
            NodeId::Entry(index) => {
                let mut node = self.entries[index].clone();
                node.is_shared = false;
                self.value_bytes += inline_bytes(&node.value);
                self.stored_values += usize::from(is_stored(&node.value));
                Link::tagged(6, self.entries.insert(node))
            }
        };
        if let Some(sharing) = &mut self.sharing {
            sharing.replaced.push(link);
        }
        self.created(copy)
    }

    /// Frees nodes one by one, whether versions share them or not.
    pub(crate) fn free_all(&mut self, links: impl IntoIterator<Item = Link>) {
        for link in links {
            if let Some(is_shared) = self.sharing_of(link) {
                *is_shared = false;
            }
            self.free_node(link);
        }
    }
}

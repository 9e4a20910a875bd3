//! Building canonical subtries from leaves and branches.

use crate::{
    arena::{Key, Link, NodeId, nibble, shared_nibbles, truncated},
    node_ref::{NodeKind, NodeRef},
    partial::PartialTrie,
};

impl PartialTrie {
    /// Builds the subtrie at `depth` of sorted leaves that share all nibbles above it.
    pub(crate) fn join_leaves(&mut self, level: usize, depth: usize, leaves: &[Link]) -> Link {
        match leaves {
            [] => Link::EMPTY,
            [leaf] => self.set_leaf_depth(*leaf, depth),
            [first, .., last] => {
                let key = *self.leaf_key(*first);
                let fork = shared_nibbles(&key, self.leaf_key(*last));
                let mut children = [Link::EMPTY; 16];
                let mut rest = leaves;
                while let Some(first) = rest.first() {
                    let at = nibble(self.leaf_key(*first), fork);
                    let len = rest.partition_point(|leaf| nibble(self.leaf_key(*leaf), fork) == at);
                    let (group, others) = rest.split_at(len);
                    children[at] = self.join_leaves(level, fork + 1, group);
                    rest = others;
                }
                let branch = self.arena.add_branch(children);
                self.lift(branch, level, fork, depth, &key)
            }
        }
    }

    /// Moves the node at `link` up from depth `from` to depth `to` of its trie, along `key`. Puts
    /// an extension above a branch. A blinded node must be a branch.
    pub(crate) fn lift(
        &mut self,
        link: Link,
        level: usize,
        from: usize,
        to: usize,
        key: &Key,
    ) -> Link {
        debug_assert!(to <= from);
        match link.id() {
            _ if from == to => link,
            NodeId::Empty => link,
            NodeId::Account(_) | NodeId::Storage(_) | NodeId::Entry(_) => {
                self.set_leaf_depth(link, to)
            }
            NodeId::Extension(_) => {
                let link = self.arena.own(link);
                if let NodeId::Extension(index) = link.id() {
                    let node = &mut self.arena.extensions[index];
                    node.start = (level + to) as u8;
                    node.memo = NodeRef::UNKNOWN;
                }
                link
            }
            NodeId::Branch(_) | NodeId::Stub(_) => {
                debug_assert_eq!(self.kind(link), Some(NodeKind::Branch));
                self.arena
                    .add_extension(level + to, level + from, truncated(key, from), link)
            }
        }
    }

    pub(crate) fn leaf_key(&self, leaf: Link) -> &Key {
        match leaf.id() {
            NodeId::Account(index) => &self.arena.accounts[index].key,
            NodeId::Storage(index) => &self.arena.slots[index].key,
            NodeId::Entry(index) => &self.arena.entries[index].key,
            _ => unreachable!("{leaf:?} is no leaf"),
        }
    }

    /// Sets the depth of a leaf within its trie. Does nothing for an empty link. Returns the leaf, or the
    /// copy that has that depth.
    pub(crate) fn set_leaf_depth(&mut self, leaf: Link, depth: usize) -> Link {
        let has_depth = match leaf.id() {
            NodeId::Account(index) => usize::from(self.arena.accounts[index].depth) == depth,
            NodeId::Storage(index) => usize::from(self.arena.slots[index].depth) == depth,
            NodeId::Entry(index) => usize::from(self.arena.entries[index].depth) == depth,
            NodeId::Empty => true,
            _ => unreachable!("{leaf:?} is no leaf"),
        };
        if has_depth {
            return leaf;
        }
        let leaf = self.arena.own(leaf);
        let (at, memo) = match leaf.id() {
            NodeId::Account(index) => {
                let node = &mut self.arena.accounts[index];
                (&mut node.depth, &mut node.memo)
            }
            NodeId::Storage(index) => {
                let node = &mut self.arena.slots[index];
                (&mut node.depth, &mut node.memo)
            }
            NodeId::Entry(index) => {
                let node = &mut self.arena.entries[index];
                (&mut node.depth, &mut node.memo)
            }
            _ => unreachable!("{leaf:?} is no leaf"),
        };
        *at = depth as u8;
        *memo = NodeRef::UNKNOWN;
        leaf
    }
}

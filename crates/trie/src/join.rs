//! Leaves and branches, put together to canonical subtries.

use crate::{
    arena::{Key, Link, Slot, nibble, shared_nibbles, truncated},
    node_ref::{NodeKind, NodeRef},
    partial::PartialTrie,
};

impl PartialTrie {
    /// The subtrie at `depth` of sorted leaves that agree in all nibbles above it.
    pub(crate) fn join_leaves(&mut self, level: usize, depth: usize, leaves: &[Link]) -> Link {
        match leaves {
            [] => Link::EMPTY,
            [leaf] => {
                self.set_leaf_depth(*leaf, depth);
                *leaf
            }
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

    /// Moves the node at `link` up from depth `from` to depth `to` of its level, along `key`. A
    /// stub must be that of a branch.
    pub(crate) fn lift(
        &mut self,
        link: Link,
        level: usize,
        from: usize,
        to: usize,
        key: &Key,
    ) -> Link {
        debug_assert!(to <= from);
        match link.slot() {
            _ if from == to => link,
            Slot::Empty => link,
            Slot::Account(_) | Slot::Storage(_) => {
                self.set_leaf_depth(link, to);
                link
            }
            Slot::Extension(index) => {
                let node = &mut self.arena.extensions[index];
                node.start = (level + to) as u8;
                node.memo = NodeRef::UNKNOWN;
                link
            }
            Slot::Branch(_) | Slot::Stub(_) => {
                debug_assert_eq!(self.kind(link), Some(NodeKind::Branch));
                self.arena
                    .add_extension(level + to, level + from, truncated(key, from), link)
            }
        }
    }

    pub(crate) fn leaf_key(&self, leaf: Link) -> &Key {
        match leaf.slot() {
            Slot::Account(index) => &self.arena.accounts[index].key,
            Slot::Storage(index) => &self.arena.slots[index].key,
            _ => unreachable!("{leaf:?} is no leaf"),
        }
    }

    /// Says at which depth of its level a leaf (or nothing) sits.
    pub(crate) fn set_leaf_depth(&mut self, leaf: Link, depth: usize) {
        let (at, memo) = match leaf.slot() {
            Slot::Account(index) => {
                let node = &mut self.arena.accounts[index];
                (&mut node.depth, &mut node.memo)
            }
            Slot::Storage(index) => {
                let node = &mut self.arena.slots[index];
                (&mut node.depth, &mut node.memo)
            }
            Slot::Empty => return,
            _ => unreachable!("{leaf:?} is no leaf"),
        };
        if usize::from(*at) != depth {
            *at = depth as u8;
            *memo = NodeRef::UNKNOWN;
        }
    }
}

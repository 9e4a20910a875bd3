//! The index of one shard while a merge edits it: a copy of what is opened of the old index, in which
//! nodes are replaced in place. So a merge costs what has changed.
//!
//! The walk of the dirty trie carries along where it is in the old index ([`OldNode`]). A subtrie of
//! the old index is edited only when the walk knows that its root stays a node of the index: until
//! then the copy of it is untouched. Then each of its nodes is kept, replaced or freed, once.

use crate::{base::layout::addr_of_place, index::TouchedNodes};
use alloy_primitives::B256;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, Path};
use cambium_store::PageAddr;
use cambium_trie::{Link, NodeRef, NodeView, PartialTrie, Place, Stub};

/// The subtrie of the old index at a path. Its root may begin above the path: an extension or an
/// account's leaf of which the path is a part.
#[derive(Clone, Copy)]
pub(super) struct OldNode {
    link: Link,
    /// Number of nibbles above the node at `link`.
    depth: usize,
}

impl OldNode {
    /// The index has nothing at the path.
    const NONE: Self = Self {
        link: Link::EMPTY,
        depth: 0,
    };

    /// Returns the node that is exactly at `path`.
    pub(super) fn exactly_at(self, path: &Path) -> Option<Link> {
        (!self.link.is_empty() && self.depth == path.len()).then_some(self.link)
    }
}

/// The index of one shard, which a merge edits.
pub(super) struct IndexEdit<'a> {
    old: &'a PartialTrie,
    new: PartialTrie,
    /// Expanded nodes of the new index that were added, or below which something has changed.
    touched: TouchedNodes,
    /// Pages that the old index names and the new one does not.
    dead: Vec<PageAddr>,
    /// Nodes of the new index whose reference is unknown until the end.
    unhashed: Vec<Link>,
}

/// Result of an [`IndexEdit`].
pub(super) struct EditedIndex {
    pub(super) index: PartialTrie,
    /// As [`IndexEdit::touched`]. `None` if all nodes have moved.
    pub(super) touched: Option<TouchedNodes>,
    /// Pages that the old index names and the new one does not.
    pub(super) dead: Vec<PageAddr>,
    /// Nodes whose reference is unknown.
    pub(super) unhashed: Vec<Link>,
}

impl<'a> IndexEdit<'a> {
    pub(super) fn new(old: &'a PartialTrie) -> Self {
        Self {
            old,
            new: old.clone(),
            touched: TouchedNodes::default(),
            dead: Vec::new(),
            unhashed: Vec::new(),
        }
    }

    /// Returns the old index.
    pub(super) fn old(&self) -> &'a PartialTrie {
        self.old
    }

    /// Returns the index as edited so far.
    pub(super) fn edited(&self) -> &PartialTrie {
        &self.new
    }

    /// Returns the whole old index.
    pub(super) fn root(&self) -> OldNode {
        OldNode {
            link: self.old.root(),
            depth: self.old.base().len(),
        }
    }

    /// Returns the subtrie of the old index at child `nibble` of `path`, given the one at `path`.
    pub(super) fn child(&self, at: OldNode, path: &Path, nibble: u8) -> OldNode {
        match at.exactly_at(path).map(|link| self.old.visit(link)) {
            Some(NodeView::Branch { children }) => OldNode {
                link: children[usize::from(nibble)],
                depth: at.depth + 1,
            },
            _ => self.below(at, &path.child(nibble)),
        }
    }

    /// Returns the subtrie of the old index at `to`, given that of a path above.
    pub(super) fn below(&self, mut at: OldNode, to: &Path) -> OldNode {
        while let Step::To(next) = self.step(at, to) {
            at = next;
        }
        match self.step(at, to) {
            Step::Here => at,
            _ => OldNode::NONE,
        }
    }

    /// Takes one step from `at` towards `to`.
    fn step(&self, at: OldNode, to: &Path) -> Step {
        let OldNode { link, depth } = at;
        let view = self.old.visit(link);
        // A path of 64 nibbles names a storage root, even where an account's leaf is there.
        let is_at_storage = to.len() == ACCOUNT_NIBBLES && matches!(view, NodeView::Account { .. });
        if depth == to.len() && !is_at_storage {
            return match view {
                NodeView::Empty => Step::Nowhere,
                _ => Step::Here,
            };
        }
        let step = |link, depth| Step::To(OldNode { link, depth });
        match view {
            NodeView::Branch { children } => {
                step(children[usize::from(to.nibble(depth))], depth + 1)
            }
            NodeView::Extension { path, child } => {
                let (end, rest) = (depth + path.len(), to.suffix(depth));
                match rest.common_prefix_len(&path) {
                    common if common == path.len() => step(child, end),
                    common if common == rest.len() => Step::Here,
                    _ => Step::Nowhere,
                }
            }
            NodeView::Account { key, storage, .. } => {
                let key = Path::account(&key);
                match to.len() < ACCOUNT_NIBBLES {
                    true if key.starts_with(to) => Step::Here,
                    false if to.starts_with(&key) => step(storage, ACCOUNT_NIBBLES),
                    _ => Step::Nowhere,
                }
            }
            NodeView::Stub(_)
            | NodeView::Slot { .. }
            | NodeView::Entry { .. }
            | NodeView::Empty => Step::Nowhere,
        }
    }

    /// Makes the subtrie at `path` the page or other blinded node `stub`.
    pub(super) fn put_stub(&mut self, at: OldNode, path: &Path, stub: Stub) -> Link {
        if let Some(link) = at.exactly_at(path)
            && let NodeView::Stub(old) = self.old.visit(link)
        {
            if old.place != stub.place {
                self.dead.extend(old.place.map(addr_of_place));
            }
            self.new.set_stub(link, stub);
            return link;
        }
        self.remove(at);
        self.new.push_stub(stub)
    }

    /// Makes the subtrie at `path` a branch with `children`, which took over the old subtries at
    /// their paths.
    pub(super) fn put_branch(
        &mut self,
        at: OldNode,
        path: &Path,
        children: [Link; 16],
        node: Option<NodeRef>,
    ) -> Link {
        let (is_exact, len) = (at.exactly_at(path).is_some(), path.len() + 1);
        let link = match self.old.visit(at.link) {
            NodeView::Branch { children: old } if is_exact => {
                for (nibble, (new, old)) in (0u8..).zip(children.iter().zip(old)) {
                    if new != old {
                        self.new.set_child(at.link, nibble, *new);
                    }
                }
                at.link
            }
            // A longer one has become part of the node at a child.
            NodeView::Extension { path: part, .. } if at.depth + part.len() > len => {
                self.new.push_branch(children)
            }
            NodeView::Account { .. } if len < ACCOUNT_NIBBLES => self.new.push_branch(children),
            NodeView::Empty => self.new.push_branch(children),
            _ => {
                self.free_node(at.link);
                self.new.push_branch(children)
            }
        };
        self.touch(link, node)
    }

    /// Makes the subtrie at `path` an extension to `child`, which took over the old subtrie at `to`.
    pub(super) fn put_extension(
        &mut self,
        at: OldNode,
        path: &Path,
        to: &Path,
        child: Link,
        node: Option<NodeRef>,
    ) -> Link {
        self.remove_around(at, to);
        let link = self.new.push_extension(path.len(), to, child);
        self.touch(link, node)
    }

    /// Makes the subtrie at `path` an account's leaf above `storage`, which took over the account's
    /// old storage.
    pub(super) fn put_account(
        &mut self,
        at: OldNode,
        path: &Path,
        (key, account): (&B256, &Account),
        storage: Link,
        node: Option<NodeRef>,
    ) -> Link {
        self.remove_around(at, &Path::account(key));
        let link = self.new.push_account(path.len(), key, account, storage);
        self.touch(link, node)
    }

    /// Records that the node at `link` has changed, and its reference.
    fn touch(&mut self, link: Link, node: Option<NodeRef>) -> Link {
        match node {
            Some(node) => self.new.set_cached_ref(link, node),
            None => {
                self.new.clear_cached_ref(link);
                self.unhashed.push(link);
            }
        }
        self.touched.insert(link);
        link
    }

    /// Gives the first page, in path order, of the subtrie at `link` of the new index another
    /// address.
    pub(super) fn move_first_page(&mut self, mut link: Link, to: Place) {
        loop {
            let next = match self.new.visit(link) {
                NodeView::Branch { children } => {
                    children.iter().copied().find(|child| !child.is_empty())
                }
                NodeView::Extension { child, .. } => Some(child),
                NodeView::Account { storage, .. } => Some(storage),
                NodeView::Stub(&stub) => {
                    self.dead.extend(stub.place.map(addr_of_place));
                    let place = Some(to);
                    return self.new.set_stub(link, Stub { place, ..stub });
                }
                NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => None,
            };
            let Some(next) = next else { return };
            self.touched.insert(link);
            link = next;
        }
    }

    /// Removes an old subtrie.
    pub(super) fn remove(&mut self, at: OldNode) {
        let mut todo = vec![at.link];
        while let Some(link) = todo.pop() {
            match self.old.visit(link) {
                NodeView::Empty => continue,
                NodeView::Branch { children } => todo.extend(children),
                NodeView::Extension { child, .. } => todo.push(child),
                NodeView::Account { storage, .. } => todo.push(storage),
                NodeView::Stub(_) | NodeView::Slot { .. } | NodeView::Entry { .. } => {}
            }
            self.free_node(link);
        }
    }

    /// Removes an old subtrie except for the part at `to`.
    fn remove_around(&mut self, mut at: OldNode, to: &Path) {
        loop {
            let next = match self.step(at, to) {
                Step::Here => return,
                Step::Nowhere => return self.remove(at),
                Step::To(next) => next,
            };
            if let NodeView::Branch { children } = self.old.visit(at.link) {
                let others = children.iter().filter(|child| **child != next.link);
                others.for_each(|child| {
                    let (link, depth) = (*child, next.depth);
                    self.remove(OldNode { link, depth });
                });
            }
            self.free_node(at.link);
            at = next;
        }
    }

    /// Frees one node of the old index.
    fn free_node(&mut self, link: Link) {
        if let NodeView::Stub(stub) = self.old.visit(link) {
            self.dead.extend(stub.place.map(addr_of_place));
        }
        self.new.free_node(link);
    }

    /// Ends the edit: the node at `root` becomes the root of the new index.
    pub(super) fn finish(mut self, root: Link) -> EditedIndex {
        self.new.set_root(root);
        let compact = self.new.compacted();
        let moved = compact.is_some();
        EditedIndex {
            index: compact.unwrap_or(self.new),
            touched: (!moved).then_some(self.touched),
            dead: self.dead,
            unhashed: self.unhashed,
        }
    }
}

/// One step in the old index towards a path.
enum Step {
    /// The node is at the path, or the path is a part of it.
    Here,
    /// The next node on the way.
    To(OldNode),
    /// The index has nothing at the path.
    Nowhere,
}

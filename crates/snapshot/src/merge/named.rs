//! The pages that a shard of an index names, each with the account whose first page it is.

use super::walk::first_page;
use cambium_primitives::{Account, Path};
use cambium_trie::{Link, NodeView, PartialTrie, Stub};

/// A page by the index.
pub struct NamedPage {
    /// The node that names it: its reference, and its place.
    pub stub: Stub,
    /// Path of its subtrie.
    pub prefix: Path,
    /// The account whose slots begin in this page, if its leaf is in the index.
    pub owner: Option<Account>,
}

/// The pages that a whole shard names, in the order of their prefixes. They are found batch by batch: a shard with a large storage
/// names millions.
pub struct NamedPages<'a> {
    index: &'a PartialTrie,
    /// Nodes that are still to be visited, the next one last.
    todo: Vec<(Link, Path)>,
    /// The first page of an account's storage, and the account.
    owner: Option<(Link, Account)>,
    slots: u64,
}

impl<'a> NamedPages<'a> {
    /// Begins with the first page.
    pub fn new(index: &'a PartialTrie) -> Self {
        Self {
            index,
            todo: vec![(index.root(), *index.base())],
            owner: None,
            slots: 0,
        }
    }

    /// Number of slots in the index itself that were passed.
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns the next pages, at most `pages_max`; none at the end. Shows each account in the index itself that it passes to
    /// `account`.
    pub fn next_batch(
        &mut self,
        pages_max: usize,
        mut account: impl FnMut(&Account),
    ) -> Vec<NamedPage> {
        let mut named = Vec::new();
        while named.len() < pages_max
            && let Some((link, at)) = self.todo.pop()
        {
            match self.index.visit(link) {
                NodeView::Empty => {}
                NodeView::Stub(stub) => named.push(NamedPage {
                    stub: *stub,
                    prefix: at,
                    owner: (self.owner)
                        .take_if(|(first, _)| *first == link)
                        .map(|(_, owner)| owner),
                }),
                NodeView::Branch { children } => {
                    let nibbles = children.iter().zip(0u8..16).rev();
                    let there = nibbles.filter(|(child, _)| !child.is_empty());
                    let below = there.map(|(child, nibble)| (*child, at.child(nibble)));
                    self.todo.extend(below);
                }
                NodeView::Extension { path, child } => self.todo.push((child, at.join(&path))),
                NodeView::Account {
                    key,
                    account: found,
                    storage,
                    ..
                } => {
                    account(&found);
                    let path = Path::account(&key);
                    let first = first_page(self.index, storage, &path);
                    self.owner = first.map(|(first, _)| (first, found));
                    self.todo.push((storage, path));
                }
                NodeView::Slot { .. } => self.slots += 1,
                // Entries are in pages.
                NodeView::Entry { .. } => {}
            }
        }
        named
    }
}

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

/// Returns the pages that a whole shard names, in the order of their prefixes, and the number of slots
/// that are in the index itself. Shows each account that is there to `account`.
pub fn named_pages(
    index: &PartialTrie,
    mut account: impl FnMut(&Account),
) -> (Vec<NamedPage>, u64) {
    let (mut named, mut slots) = (Vec::new(), 0);
    let mut owner = None;
    let mut todo: Vec<(Link, Path)> = vec![(index.root(), *index.base())];
    while let Some((link, at)) = todo.pop() {
        match index.visit(link) {
            NodeView::Empty => {}
            NodeView::Stub(stub) => named.push(NamedPage {
                stub: *stub,
                prefix: at,
                owner: owner
                    .take_if(|(first, _)| *first == link)
                    .map(|(_, owner)| owner),
            }),
            NodeView::Branch { children } => {
                let nibbles = children.iter().zip(0u8..16).rev();
                let there = nibbles.filter(|(child, _)| !child.is_empty());
                todo.extend(there.map(|(child, nibble)| (*child, at.child(nibble))));
            }
            NodeView::Extension { path, child } => todo.push((child, at.join(&path))),
            NodeView::Account {
                key,
                account: found,
                storage,
                ..
            } => {
                account(&found);
                let path = Path::account(&key);
                let first = first_page(index, storage, &path);
                owner = first.map(|(first, _)| (first, found));
                todo.push((storage, path));
            }
            NodeView::Slot { .. } => slots += 1,
            // Entries are in pages.
            NodeView::Entry { .. } => {}
        }
    }
    (named, slots)
}

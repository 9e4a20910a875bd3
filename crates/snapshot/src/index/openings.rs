//! Which lower levels of a shard a merge opens.

use cambium_primitives::Path;
use cambium_store::PageAddr;
use cambium_trie::{Link, NodeView, PartialTrie};
use std::collections::BTreeSet;

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The turn of blocks or parts that a merge opens although it changes nothing in them, so that pages which they name can be
/// moved.
pub(crate) struct Turn<'a> {
    /// Number of the turn: with the next one, other blocks or parts are opened.
    pub(crate) number: u64,
    /// Whether a page is to be moved.
    pub(crate) is_moved: &'a dyn Fn(&PageAddr) -> bool,
}

impl Turn<'_> {
    /// Where the turn begins among `of` parts, or bytes. The multiples of an irrational number are spread evenly: each has its
    /// turn.
    pub(super) fn first(&self, of: usize) -> usize {
        ((u128::from(self.number.wrapping_mul(GOLDEN)) * of as u128) >> 64) as usize
    }
}

/// Decides which subtries of a shard a merge opens, in path order: those that the blinded nodes of the
/// dirty trie do not cover, and those with the first page of a storage whose account the dirty trie has
/// expanded, since that page has a copy of the account's leaf.
pub(super) struct Openings<'a> {
    dirty: &'a PartialTrie,
    /// Where the unchanged subtries are that such storages begin with, without those whose first page
    /// has been reached.
    first: BTreeSet<Path>,
}

impl<'a> Openings<'a> {
    pub(super) fn of(dirty: &'a PartialTrie) -> Self {
        let first = first_unchanged(dirty);
        Self { dirty, first }
    }

    /// Whether to open the subtrie at `at`.
    pub(super) fn opens(&self, at: &Path) -> bool {
        let is_covered = || {
            let found = self.dirty.find_or_stub(at);
            found.is_some_and(|(link, _)| link.is_stub())
        };
        self.begins(at).is_some() || !is_covered()
    }

    /// Notes that the first page of the subtrie at `at` is open, or is going to be.
    pub(super) fn reached(&mut self, at: &Path) {
        if let Some(begins) = self.begins(at) {
            self.first.remove(&begins);
        }
    }

    /// Returns the storage's subtrie whose first page may be at `at` or below.
    fn begins(&self, at: &Path) -> Option<Path> {
        let above = self.first.range(..=*at).next_back().copied();
        above.filter(|above| at.starts_with(above))
    }
}

/// Returns where the unchanged subtries are that the storages of a dirty trie's expanded accounts
/// begin with. The first page of such a storage has a copy of the account's leaf, which changes.
fn first_unchanged(dirty: &PartialTrie) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    let mut todo = vec![(dirty.root(), *dirty.base())];
    while let Some((link, at)) = todo.pop() {
        match dirty.visit(link) {
            NodeView::Branch { children } => {
                let children = (0u8..).zip(children);
                let expanded = children.filter(|(_, child)| !child.is_empty() && !child.is_stub());
                todo.extend(expanded.map(|(nibble, child)| (*child, at.child(nibble))));
            }
            NodeView::Extension { path, child } => todo.push((child, at.join(&path))),
            NodeView::Account { key, storage, .. } => {
                found.extend(first_stub(dirty, storage, &Path::account(&key)));
            }
            NodeView::Slot { .. }
            | NodeView::Entry { .. }
            | NodeView::Stub(_)
            | NodeView::Empty => {}
        }
    }
    found
}

/// Returns the path of the blinded node that the subtrie at `link`, whose path is `at`, begins with.
fn first_stub(trie: &PartialTrie, mut link: Link, at: &Path) -> Option<Path> {
    let mut at = *at;
    loop {
        match trie.visit(link) {
            NodeView::Stub(_) => return Some(at),
            NodeView::Branch { children } => {
                let mut there = (0u8..).zip(children).filter(|(_, child)| !child.is_empty());
                let (nibble, child) = there.next()?;
                (link, at) = (*child, at.child(nibble));
            }
            NodeView::Extension { path, child } => (link, at) = (child, at.join(&path)),
            NodeView::Account { .. }
            | NodeView::Slot { .. }
            | NodeView::Entry { .. }
            | NodeView::Empty => return None,
        }
    }
}

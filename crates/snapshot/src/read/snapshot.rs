//! The snapshot, and iteration over the slots of an account in it.

use crate::{
    base::{
        error::StateError,
        layout::{decode_leaf, is_under},
    },
    cache::values::ValueCache,
    index::{HeldParts, Index, IndexLookup, TrieRef},
    pages::{Pages, ReadCause},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{BlockId, Path};
use cambium_trie::{LeafValue, Link, NodeView, Stub};
use std::sync::Arc;

/// The state at one block, on disk: an index over leaf pages, and the pages. It is immutable; a
/// merge makes a new one.
pub struct Snapshot {
    /// The block whose state this is.
    pub block: BlockId,
    /// State root after that block.
    pub state_root: B256,
    /// The upper part of the state trie.
    pub index: Index,
    /// The leaf pages, shared by all snapshots of the database.
    pub pages: Arc<Pages>,
    /// The value cache, for this snapshot's generation.
    pub value_cache: ValueCache,
}

impl Snapshot {
    /// Iterates over the slots of an account, given by keccak(address), in the order of their
    /// paths. Reads one page at a time. An absent account has no slots.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn slots(&self, account: &B256) -> Result<Slots<'_>, StateError> {
        let path = Path::account(account);
        let mut slots = Slots {
            snapshot: self,
            account: path,
            held: HeldParts::default(),
            todo: Vec::new(),
            read: Vec::new().into_iter(),
        };
        if let IndexLookup::Page { stub, depth } = self.index.look_up(&path, &mut slots.held)? {
            slots.read_page(&stub, &path.prefix(depth))?;
            return Ok(slots);
        }
        let storage = self.index.node_at(&path, &mut slots.held)?;
        let storage = storage.filter(|node| node.depth == path.len());
        slots
            .todo
            .extend(storage.map(|node| (node.trie, node.link, path)));
        Ok(slots)
    }
}

/// Fallible iterator over the slots of an account: see [`Snapshot::slots`].
pub struct Slots<'a> {
    snapshot: &'a Snapshot,
    account: Path,
    held: HeldParts,
    /// Stack of nodes of the index still to visit, with their paths.
    todo: Vec<(TrieRef<'a>, Link, Path)>,
    /// Remaining slots of the page that was read last.
    read: std::vec::IntoIter<(B256, U256)>,
}

impl Slots<'_> {
    fn read_page(&mut self, stub: &Stub, prefix: &Path) -> Result<(), StateError> {
        let page = self.snapshot.pages.read(stub, prefix, ReadCause::Value)?;
        let leaves = page.leaves();
        let mut read = Vec::new();
        for (leaf, bytes) in leaves.filter(|(leaf, _)| is_under(leaf, &self.account)) {
            if let (Some(slot), LeafValue::Slot(value)) =
                (leaf.slot_part(), decode_leaf(&leaf, bytes)?)
            {
                read.push((slot, value));
            }
        }
        self.read = read.into_iter();
        Ok(())
    }

    /// Returns the next slot, by keccak(slot), with its value. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn next(&mut self) -> Result<Option<(B256, U256)>, StateError> {
        loop {
            if let Some(slot) = self.read.next() {
                return Ok(Some(slot));
            }
            let Some((trie, link, at)) = self.todo.pop() else {
                return Ok(None);
            };
            match trie.visit(link) {
                NodeView::Stub(stub) => {
                    let part = self.snapshot.index.part_at(stub, &at, &mut self.held)?;
                    match part {
                        Some(part) => self.todo.push((part.trie, part.link, at)),
                        None => self.read_page(stub, &at)?,
                    }
                }
                NodeView::Branch { children } => {
                    let nibbles = children.iter().zip(0u8..16).rev();
                    let there = nibbles.filter(|(child, _)| !child.is_empty());
                    let there =
                        there.map(|(child, nibble)| (trie.clone(), *child, at.child(nibble)));
                    self.todo.extend(there);
                }
                NodeView::Extension { path, child } => {
                    self.todo.push((trie.clone(), child, at.join(&path)));
                }
                NodeView::Slot { key, value, .. } => return Ok(Some((key, value))),
                NodeView::Account { .. } | NodeView::Entry { .. } | NodeView::Empty => {}
            }
        }
    }
}

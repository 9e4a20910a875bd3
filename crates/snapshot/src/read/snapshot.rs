//! The snapshot, and iteration over the slots of an account in it.

use crate::{
    base::{
        error::StateError,
        layout::{decode_leaf, is_under, shard_of, shard_prefix},
    },
    cache::values::ValueCache,
    index::{HeldParts, Index, IndexLookup, TrieRef},
    pages::{Pages, ReadCause},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{BlockId, EntryValue, Path};
use cambium_trie::{LeafValue, Link, NodeView, SHARDS, Stub};
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

/// Fallible iterator over entries: see [`Snapshot::entries`].
pub struct Entries<'a> {
    snapshot: &'a Snapshot,
    from: Path,
    held: HeldParts,
    /// Stack of nodes of the index still to visit, with their paths.
    todo: Vec<(TrieRef<'a>, Link, Path)>,
    /// Next shard to visit.
    shard: usize,
    /// Remaining entries of the page that was read last.
    read: std::vec::IntoIter<(B256, EntryValue)>,
}

impl Snapshot {
    /// Iterates over the entries of a key-value database from key `from` on, in the order of their
    /// keys. Reads one page at a time.
    ///
    /// # Errors
    ///
    /// None before the first call of [`Entries::next`].
    pub fn entries(&self, from: &B256) -> Result<Entries<'_>, StateError> {
        let from = Path::account(from);
        Ok(Entries {
            snapshot: self,
            from,
            held: HeldParts::default(),
            todo: Vec::new(),
            shard: shard_of(&from),
            read: Vec::new().into_iter(),
        })
    }
}

impl Entries<'_> {
    /// Returns the next entry. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn next(&mut self) -> Result<Option<(B256, EntryValue)>, StateError> {
        loop {
            if let Some(entry) = self.read.next() {
                return Ok(Some(entry));
            }
            let Some((trie, link, at)) = self.todo.pop() else {
                if self.shard == SHARDS {
                    return Ok(None);
                }
                let top = self.snapshot.index.top(self.shard);
                let root = (TrieRef::Resident(top), top.root(), shard_prefix(self.shard));
                self.todo.push(root);
                self.shard += 1;
                continue;
            };
            // Whole subtries before the first key are passed over.
            if at < self.from.prefix(at.len()) {
                continue;
            }
            match trie.visit(link) {
                NodeView::Stub(stub) => {
                    match self.snapshot.index.part_at(stub, &at, &mut self.held)? {
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
                NodeView::Entry { key, value, .. } if Path::account(&key) >= self.from => {
                    return Ok(Some((key, value.clone())));
                }
                NodeView::Entry { .. }
                | NodeView::Slot { .. }
                | NodeView::Account { .. }
                | NodeView::Empty => {}
            }
        }
    }

    fn read_page(&mut self, stub: &Stub, prefix: &Path) -> Result<(), StateError> {
        let page = self.snapshot.pages.read(stub, prefix, ReadCause::Value)?;
        let mut read = Vec::new();
        for (leaf, bytes) in page.leaves().filter(|(leaf, _)| *leaf >= self.from) {
            if let (Some(key), LeafValue::Entry(value)) =
                (leaf.account_part(), decode_leaf(&leaf, bytes)?)
            {
                read.push((key, value));
            }
        }
        self.read = read.into_iter();
        Ok(())
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

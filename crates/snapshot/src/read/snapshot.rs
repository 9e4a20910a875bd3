//! The snapshot, and iteration over its accounts or entries, and over the slots of an account.

use crate::{
    base::{
        error::StateError,
        layout::{addr_of_stub, decode_leaf, is_under, shard_of, shard_prefix},
    },
    cache::values::ValueCache,
    index::{HeldParts, Index, IndexLookup, PartRef, TrieRef},
    pages::{Pages, ReadCause},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, BlockId, EntryValue, Path};
use cambium_store::Page;
use cambium_trie::{LeafValue, Link, NodeView, SHARDS, Stub};
use std::{collections::VecDeque, sync::Arc, vec};

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
    /// Iterates over the slots of an account, given by keccak(address), from keccak(slot) `from` on, in the
    /// order of their paths. Reads a page, then several at a time. An absent account has no slots.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn slots(&self, account: &B256, from: &B256) -> Result<Slots<'_>, StateError> {
        let path = Path::account(account);
        let mut leaves = Leaves::new(self, Path::slot(account, from), path);
        if let IndexLookup::Page { stub, depth } = self.index.look_up(&path, &mut leaves.held)? {
            leaves.read_page(&stub, &path.prefix(depth))?;
        } else {
            let storage = self.index.node_at(&path, &mut leaves.held)?;
            let storage = storage.filter(|node| node.depth == path.len());
            let root = storage.map(|node| (node.trie, node.link, path));
            leaves.todo.extend(root);
        }
        Ok(Slots(leaves))
    }

    /// Iterates over the accounts, by keccak(address), or the entries of a key-value database, from key
    /// `from` on, in the order of their keys. Reads a page, then several at a time.
    pub fn top_leaves(&self, from: &B256) -> TopLeaves<'_> {
        let from = Path::account(from);
        TopLeaves {
            shard: shard_of(&from),
            leaves: Leaves::new(self, from, Path::EMPTY),
        }
    }
}

/// Fallible iterator over accounts or entries: see [`Snapshot::top_leaves`].
pub struct TopLeaves<'a> {
    leaves: Leaves<'a>,
    /// Next shard to visit.
    shard: usize,
}

impl TopLeaves<'_> {
    /// Returns the next account. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn next_account(&mut self) -> Result<Option<(B256, Account)>, StateError> {
        self.next_of(|value| match value {
            LeafValue::Account(account) => Some(account),
            _ => None,
        })
    }

    /// Returns the next entry. `None` at the end.
    ///
    /// # Errors
    ///
    /// As [`TopLeaves::next_account`].
    pub fn next_entry(&mut self) -> Result<Option<(B256, EntryValue)>, StateError> {
        self.next_of(|value| match value {
            LeafValue::Entry(value) => Some(value),
            _ => None,
        })
    }

    fn next_of<T>(
        &mut self,
        wanted: impl Fn(LeafValue) -> Option<T>,
    ) -> Result<Option<(B256, T)>, StateError> {
        loop {
            while let Some((path, value)) = self.leaves.next()? {
                if let (Some(key), Some(value)) = (path.account_part(), wanted(value)) {
                    return Ok(Some((key, value)));
                }
            }
            if self.shard == SHARDS {
                return Ok(None);
            }
            let top = self.leaves.snapshot.index.top(self.shard);
            let root = (TrieRef::Resident(top), top.root(), shard_prefix(self.shard));
            self.leaves.todo.push(root);
            self.shard += 1;
        }
    }
}

/// Fallible iterator over the slots of an account: see [`Snapshot::slots`].
pub struct Slots<'a>(Leaves<'a>);

impl Slots<'_> {
    /// Returns the next slot, by keccak(slot), with its value. `None` at the end.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn next_slot(&mut self) -> Result<Option<(B256, U256)>, StateError> {
        while let Some((path, value)) = self.0.next()? {
            if let (Some(slot), LeafValue::Slot(value)) = (path.slot_part(), value) {
                return Ok(Some((slot, value)));
            }
        }
        Ok(None)
    }
}

/// Leaves of some subtries, in the order of their paths.
struct Leaves<'a> {
    snapshot: &'a Snapshot,
    /// Leaves before this path are passed over, and whole subtries of them.
    from: Path,
    /// Pages may have leaves outside this subtrie, which are passed over.
    within: Path,
    held: HeldParts,
    /// Stack of nodes of the index still to visit, with their paths.
    todo: Vec<(TrieRef<'a>, Link, Path)>,
    /// Remaining leaves of the page that was read last.
    read: vec::IntoIter<(Path, LeafValue)>,
    /// Pages read together with the last one: those that come next, by their prefixes.
    ahead: VecDeque<(Path, Result<Arc<Page>, StateError>)>,
    /// Most pages that are read together next time.
    pages_max: usize,
}

/// Most pages that are read together: the children of a branch.
const PAGES_TOGETHER_MAX: usize = 16;

impl<'a> Leaves<'a> {
    fn new(snapshot: &'a Snapshot, from: Path, within: Path) -> Self {
        Self {
            snapshot,
            from,
            within,
            held: HeldParts::default(),
            todo: Vec::new(),
            read: Vec::new().into_iter(),
            ahead: VecDeque::new(),
            pages_max: 1,
        }
    }

    fn next(&mut self) -> Result<Option<(Path, LeafValue)>, StateError> {
        loop {
            if let Some(leaf) = self.read.next() {
                return Ok(Some(leaf));
            }
            let Some((trie, link, at)) = self.todo.pop() else {
                return Ok(None);
            };
            if at < self.from.prefix(at.len().min(self.from.len())) {
                continue;
            }
            let (path, value) = match trie.visit(link) {
                NodeView::Stub(stub) => {
                    match self.snapshot.index.part_at(stub, &at, &mut self.held)? {
                        Some(part) => self.todo.push((part.trie, part.link, at)),
                        None => self.read_page(stub, &at)?,
                    }
                    continue;
                }
                NodeView::Branch { children } => {
                    let nibbles = children.iter().zip(0u8..16).rev();
                    let there = nibbles.filter(|(child, _)| !child.is_empty());
                    let there =
                        there.map(|(child, nibble)| (trie.clone(), *child, at.child(nibble)));
                    self.todo.extend(there);
                    continue;
                }
                NodeView::Extension { path, child } => {
                    self.todo.push((trie.clone(), child, at.join(&path)));
                    continue;
                }
                NodeView::Entry { key, value, .. } => {
                    (Path::account(&key), LeafValue::Entry(value.clone()))
                }
                NodeView::Slot { key, value, .. } => (
                    at.prefix(ACCOUNT_NIBBLES).join(&Path::account(&key)),
                    LeafValue::Slot(value),
                ),
                // Its slots are in a trie of their own.
                NodeView::Account { key, account, .. } => {
                    (Path::account(&key), LeafValue::Account(account))
                }
                NodeView::Empty => continue,
            };
            if path >= self.from {
                return Ok(Some((path, value)));
            }
        }
    }

    /// Reads the page at `prefix`, and in the same batch those that are visited next: twice as many each time, so that who looks
    /// at the first leaves alone reads little.
    fn read_together(&mut self, stub: &Stub, prefix: &Path) -> Result<Arc<Page>, StateError> {
        let pages = &self.snapshot.pages;
        let is_cached = |stub: &Stub, prefix: &Path| {
            let addr = addr_of_stub(stub, prefix);
            addr.is_ok_and(|addr| pages.has(addr))
        };
        self.ahead.clear();
        let mut batch = vec![(stub, *prefix)];
        let next = self.todo.iter().rev().take(self.pages_max - 1);
        for (trie, link, at) in next.filter(|_| !is_cached(stub, prefix)) {
            match trie.visit(*link) {
                NodeView::Stub(stub) if PartRef::of(stub).is_none() && !is_cached(stub, at) => {
                    batch.push((stub, *at));
                }
                _ => break,
            }
        }
        self.pages_max = (2 * self.pages_max).min(PAGES_TOGETHER_MAX);
        if batch.len() == 1 {
            return pages.read(stub, prefix, ReadCause::Value);
        }
        let mut read = pages.read_batch(&batch, ReadCause::Value).into_iter();
        let first = read.next().expect("a result for each page");
        let others = batch[1..].iter().map(|(_, path)| *path);
        self.ahead.extend(others.zip(read));
        first
    }

    fn read_page(&mut self, stub: &Stub, prefix: &Path) -> Result<(), StateError> {
        let page = match self.ahead.pop_front() {
            Some((path, page)) if path == *prefix => page?,
            _ => self.read_together(stub, prefix)?,
        };
        let is_wanted = |path: &Path| *path >= self.from && is_under(path, &self.within);
        let leaves = page.leaves().filter(|(path, _)| is_wanted(path));
        let decoded = leaves.map(|(path, bytes)| Ok((path, decode_leaf(&path, bytes)?)));
        let decoded: Result<Vec<_>, StateError> = decoded.collect();
        self.read = decoded?.into_iter();
        Ok(())
    }
}

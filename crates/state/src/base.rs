//! What the newest blocks stand on: the snapshot on disk and, while it is being merged, the
//! intermediate layer above it. Immutable; a merge makes a new one.
//!
//! ```text
//!   delta (newest blocks)           crate::delta, crate::overlay
//!   intermediate (being merged)     Intermediate: values by key, and its hashed dirty tries
//!   snapshot                        Snapshot: index over leaf pages
//! ```

use crate::{
    entries::Entries,
    error::StateError,
    forest::Forest,
    index::{Found, Held, Index, TrieRef},
    overlay::{Lineage, Overlay},
    pages::{Pages, ReadFor, decode_leaf},
    pool,
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, BlockId, Path};
use cambium_trie::{LeafValue, Link, NodeView, PartialTrie, Stub};
use std::sync::Arc;

/// The state at a block, on disk: the index, whose stubs name pages, and these.
pub(crate) struct Snapshot {
    pub(crate) block: BlockId,
    pub(crate) state_root: B256,
    pub(crate) index: Index,
    pub(crate) pages: Arc<Pages>,
    /// Answers of single reads.
    pub(crate) entries: Entries,
}

impl Snapshot {
    /// The slots of an account, in the order of their paths, a page at a time.
    pub(crate) fn slots(&self, account: &B256) -> Result<Slots<'_>, StateError> {
        let path = Path::account(account);
        let mut slots = Slots {
            snapshot: self,
            account: path,
            held: Held::default(),
            todo: Vec::new(),
            read: Vec::new().into_iter(),
        };
        if let Found::Page { stub, depth } = self.index.look_up(&path, &mut slots.held)? {
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

/// See [`Snapshot::slots`].
pub(crate) struct Slots<'a> {
    snapshot: &'a Snapshot,
    account: Path,
    held: Held,
    /// Nodes of the index that come next, the first one last.
    todo: Vec<(TrieRef<'a>, Link, Path)>,
    /// What is left of the page that was read last.
    read: std::vec::IntoIter<(B256, U256)>,
}

impl Slots<'_> {
    fn read_page(&mut self, stub: &Stub, prefix: &Path) -> Result<(), StateError> {
        let page = self.snapshot.pages.read(stub, prefix, ReadFor::Value)?;
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

    /// The next slot.
    pub(crate) fn next(&mut self) -> Result<Option<(B256, U256)>, StateError> {
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
                NodeView::Account { .. } | NodeView::Empty => {}
            }
        }
    }
}

/// Layers frozen for merging: their values, and the tries of the newest of them.
pub(crate) struct Intermediate {
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    pub(crate) state_root: B256,
    pub(crate) lineage: Lineage,
    pub(crate) forest: Arc<Forest>,
    pub(crate) overlay: Arc<Overlay>,
}

impl Drop for Intermediate {
    /// Much memory, and whoever lets go of it last may be a commit.
    fn drop(&mut self) {
        pool::drop_later((self.forest.clone(), self.overlay.clone()));
    }
}

/// A state that layers stand on.
pub(crate) struct Base {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) intermediate: Option<Arc<Intermediate>>,
}

impl Base {
    pub(crate) fn block(&self) -> BlockId {
        self.intermediate
            .as_ref()
            .map_or(self.snapshot.block, |middle| middle.block)
    }

    /// A trie of nothing but a stub that stands for shard `shard` of this state.
    pub(crate) fn shard_root(&self, shard: usize) -> Result<PartialTrie, StateError> {
        let trie = match &self.intermediate {
            Some(middle) => middle.forest.shard(shard),
            None => self.snapshot.index.top(shard),
        };
        let mut root = PartialTrie::new(*trie.base());
        if !trie.is_empty() {
            let broken = StateError::Broken {
                path: *trie.base(),
                what: "a hashed root",
            };
            let stub = trie.as_stub(trie.root()).ok_or(broken)?;
            let link = root.push_stub(Stub {
                place: None,
                ..stub
            });
            root.set_root(link);
        }
        Ok(root)
    }
}

/// Whether a leaf is in the subtrie at `prefix`. At an account's path that is its storage: the
/// account itself is a leaf above it.
pub(crate) fn is_under(leaf: &Path, prefix: &Path) -> bool {
    leaf.starts_with(prefix) && (prefix.len() < ACCOUNT_NIBBLES || leaf.len() > ACCOUNT_NIBBLES)
}

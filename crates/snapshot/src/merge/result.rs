//! What merging makes.

use crate::base::layout::page_addr;
use cambium_store::PageAddr;
use cambium_trie::{Link, NodeView, PartialTrie};
use rustc_hash::FxBuildHasher;
use std::{collections::HashSet, sync::Arc};

/// What a merge made, besides the index.
#[derive(Default)]
pub struct Merged {
    /// Pages that the new index no longer names.
    pub dead: Vec<PageAddr>,
    /// Number of pages written with changed content.
    pub pages_written: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// Number of pages that were split.
    pub pages_split: u64,
    /// Number of pages that came of joining smaller ones.
    pub pages_joined: u64,
}

/// What merging one shard made.
pub struct MergedShard {
    /// The shard of the new index.
    pub index: Arc<PartialTrie>,
    /// Pages that it names.
    pub named: u64,
    /// Pages that it no longer names.
    pub dead: Vec<PageAddr>,
    /// Pages written.
    pub pages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Pages of before that became several.
    pub split: u64,
    /// Pages written in place of several.
    pub joined: u64,
}

impl MergedShard {
    /// A shard that stays as it is.
    pub fn unchanged(index: Arc<PartialTrie>) -> Self {
        Self {
            named: places(&index).len() as u64,
            index,
            dead: Vec::new(),
            pages: 0,
            bytes: 0,
            split: 0,
            joined: 0,
        }
    }
}

/// The pages that `old` names and those in `new` do not, of which some are `written` since.
pub(crate) fn dead_pages(
    old: &PartialTrie,
    new: &[(PageAddr, Link)],
    written: &HashSet<PageAddr, FxBuildHasher>,
) -> Vec<PageAddr> {
    let kept = new.iter().map(|(addr, _)| *addr);
    let mut kept = kept.filter(|addr| !written.contains(addr)).peekable();
    // Both are in path order, and what is kept is at its old path.
    let old = places(old).into_iter().map(|(addr, _)| addr);
    old.filter(|addr| kept.next_if_eq(addr).is_none()).collect()
}

/// The pages that an index names, with its stubs, in path order.
pub fn places(index: &PartialTrie) -> Vec<(PageAddr, Link)> {
    let mut places = Vec::new();
    let mut todo = vec![index.root()];
    while let Some(link) = todo.pop() {
        match index.visit(link) {
            NodeView::Stub(stub) => {
                places.extend(stub.place.map(|place| (page_addr(place), link)));
            }
            NodeView::Branch { children } => todo.extend(children.iter().rev()),
            NodeView::Extension { child, .. } => todo.push(child),
            NodeView::Account { storage, .. } => todo.push(storage),
            NodeView::Slot { .. } | NodeView::Empty => {}
        }
    }
    places
}

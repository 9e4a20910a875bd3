//! Results of a merge, and the pages that an index names.

use crate::{
    base::layout::addr_of_place,
    index::{PartRef, TouchedNodes},
};
use cambium_store::PageAddr;
use cambium_trie::{Link, NodeView, PartialTrie, Stub};
use std::sync::Arc;

/// Statistics of a merge, and the pages that it made unreachable.
#[derive(Default)]
pub struct Merged {
    /// Pages that the new index no longer names.
    pub dead: Vec<PageAddr>,
    /// Parts of the old index in the segments that the new one does not have.
    pub dead_parts: Vec<PageAddr>,
    /// Number of pages written with changed content.
    pub pages_written: u64,
    /// Size of the pages written with changed content, in bytes.
    pub bytes_written: u64,
    /// Number of old pages that were split.
    pub pages_split: u64,
    /// Number of pages written in place of several smaller ones.
    pub pages_joined: u64,
}

/// Result of merging one shard.
pub struct MergedShard {
    /// The shard of the new index. Parts and blocks of it that are not opened are blinded nodes, as
    /// pages are.
    pub index: Arc<PartialTrie>,
    /// Expanded nodes of the index that were added, or below which something has changed. `None` if
    /// it has to be compared whole.
    pub touched: Option<TouchedNodes>,
    /// Number of its blinded nodes.
    pub named: u64,
    /// Pages that it no longer names.
    pub dead: Vec<PageAddr>,
    /// Number of pages written with changed content.
    pub pages: u64,
    /// Size of the pages written with changed content, in bytes.
    pub bytes: u64,
    /// Number of old pages that were split.
    pub split: u64,
    /// Number of pages written in place of several smaller ones.
    pub joined: u64,
}

impl MergedShard {
    /// Returns the result for a shard without changes.
    pub fn unchanged(index: Arc<PartialTrie>) -> Self {
        Self {
            named: index.counts().1 as u64,
            touched: Some(TouchedNodes::default()),
            index,
            dead: Vec::new(),
            pages: 0,
            bytes: 0,
            split: 0,
            joined: 0,
        }
    }
}

/// Returns the pages that a shard of an index names, with the links of their blinded nodes, in path
/// order. Those of parts and blocks that are not opened are left out.
pub fn places(index: &PartialTrie) -> Vec<(PageAddr, Link)> {
    let mut places = Vec::new();
    each_blinded(index, &mut |link, stub| {
        if PartRef::of(stub).is_none() {
            places.extend(stub.place.map(|place| (addr_of_place(place), link)));
        }
    });
    places
}

/// Returns the parts in the segments that are blinded in a shard of an index, with the links of their nodes, in path order.
pub(super) fn parts(index: &PartialTrie) -> Vec<(PageAddr, Link)> {
    let mut parts = Vec::new();
    each_blinded(index, &mut |link, stub| {
        let addr = PartRef::of(stub).and_then(PartRef::addr);
        parts.extend(addr.map(|addr| (addr, link)));
    });
    parts
}

/// Calls `visit` for each blinded node, in path order.
fn each_blinded(index: &PartialTrie, visit: &mut dyn FnMut(Link, &Stub)) {
    let mut todo = vec![index.root()];
    while let Some(link) = todo.pop() {
        match index.visit(link) {
            NodeView::Stub(stub) => visit(link, stub),
            NodeView::Branch { children } => todo.extend(children.iter().rev()),
            NodeView::Extension { child, .. } => todo.push(child),
            NodeView::Account { storage, .. } => todo.push(storage),
            NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => {}
        }
    }
}

//! Merging: the dirty tries of the intermediate layer become pages, and the index takes their
//! addresses.
//!
//! A page is a whole subtrie. Walking the dirty trie bottom-up, subtries that fit into one page
//! stay *loose*; where a branch's loose children no longer fit together, each becomes a page of
//! its own and the branch becomes part of the index. What the trie did not expand is the
//! snapshot's still, and its part of the index is copied.
//!
//! ```text
//!            index:     (branch)             too large for a page
//!                      /   |    \
//!            pages:  [..] [..]  [..]         whole subtries of up to PAGE_BYTES_MAX
//! ```

mod old_pages;
mod rewrite;
mod walk;

use crate::{
    base::Snapshot,
    clean::Cleaning,
    error::StateError,
    forest::Forest,
    index::IndexWriter,
    pages::{HeldPages, Pages, page_addr},
    pool,
};
use cambium_store::PageAddr;
use cambium_trie::{Link, NodeView, PartialTrie, SHARDS};
use rayon::prelude::*;
use rustc_hash::FxBuildHasher;
use std::{collections::HashSet, sync::Arc};
use walk::Merger;
pub(crate) use walk::first_page;

/// Leaves of more bytes than this are split over several pages: two blocks of a device.
const PAGE_BYTES_MAX: usize = 8 * 1024;
/// Neighbouring pages of fewer bytes than this together become one when one of them changes.
const PAGE_BYTES_JOIN: usize = PAGE_BYTES_MAX / 4;
/// An inner branch over at least this many leaves has its hash cached in the page.
const DIGEST_LEAVES_MIN: usize = 6;
/// A child of the page's topmost branch over at least this many leaves has its hash cached:
/// whatever changes in the page, it is needed, and need not be looked at if nothing below changes.
/// For a single leaf its hash costs less than the 36 bytes.
const DIGEST_CHILD_LEAVES_MIN: usize = 2;
/// An account of at least this many slots has its storage root cached in the page.
const DIGEST_SLOTS_MIN: usize = 3;
/// What a digest takes in a page, about.
const DIGEST_BYTES: usize = 40;

/// What a merge made, besides the index.
#[derive(Default)]
pub(crate) struct Merged {
    pub(crate) dead: Vec<PageAddr>,
    pub(crate) pages_written: u64,
    pub(crate) bytes_written: u64,
    pub(crate) pages_split: u64,
    pub(crate) pages_joined: u64,
}

/// Writes the pages of all that `forest`, which is hashed, has expanded above `old`, moves pages
/// out of what `cleaning` has chosen, and puts the index of the new snapshot into `index`, shard by
/// shard.
pub(crate) fn merge(
    old: &Snapshot,
    forest: &Forest,
    cleaning: &Cleaning,
    index: &IndexWriter,
) -> Result<Merged, StateError> {
    let pages = &*old.pages;
    let one = |shard| -> Result<Merged, StateError> {
        let (trie, held) = (forest.shard(shard), forest.held(shard));
        let mut merged = merge_shard(&old.index.whole(shard)?, trie, held, pages)?;
        cleaning.clean(&mut merged, pages)?;
        index.put(shard, merged.index, merged.named)?;
        pages.counters.merge_parts.add(1);
        Ok(Merged {
            dead: merged.dead,
            pages_written: merged.pages,
            bytes_written: merged.bytes,
            pages_split: merged.split,
            pages_joined: merged.joined,
        })
    };
    let shards: Vec<_> = pool::install_in_background(|| {
        (0..SHARDS)
            .into_par_iter()
            .map(one)
            .collect::<Result<_, _>>()
    })?;
    let mut all = Merged::default();
    for merged in shards {
        all.dead.extend(merged.dead);
        all.pages_written += merged.pages_written;
        all.bytes_written += merged.bytes_written;
        all.pages_split += merged.pages_split;
        all.pages_joined += merged.pages_joined;
    }
    Ok(all)
}

/// What merging one shard made.
pub(crate) struct MergedShard {
    pub(crate) index: Arc<PartialTrie>,
    /// Pages that it names.
    pub(crate) named: u64,
    pub(crate) dead: Vec<PageAddr>,
    /// Pages written.
    pub(crate) pages: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// Pages of before that became several.
    pub(crate) split: u64,
    /// Pages written in place of several.
    pub(crate) joined: u64,
}

impl MergedShard {
    /// A shard that stays as it is.
    pub(crate) fn unchanged(index: Arc<PartialTrie>) -> Self {
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

/// Merges one shard: see [`merge`].
pub(crate) fn merge_shard(
    old: &Arc<PartialTrie>,
    trie: &PartialTrie,
    held: &HeldPages,
    pages: &Pages,
) -> Result<MergedShard, StateError> {
    if trie.root().is_stub() {
        return Ok(MergedShard::unchanged(old.clone()));
    }
    let merged = Merger::new(old, trie, held, pages)?.merge()?;
    merged.dead.iter().for_each(|addr| pages.forget(*addr));
    Ok(merged)
}

/// The pages that `old` names and those in `new` do not, of which some are `written` since.
fn dead_pages(
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
pub(crate) fn places(index: &PartialTrie) -> Vec<(PageAddr, Link)> {
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

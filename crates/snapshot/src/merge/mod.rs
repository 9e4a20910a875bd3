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

mod sizes;
mod result;
mod old_pages;
mod rewrite;
mod walk;
mod clean;

pub use clean::Cleaning;
pub use result::{Merged, MergedShard, places};
pub use walk::first_page;

use crate::{
    base::{error::StateError, pool},
    dirty::{DirtyShard, HeldPages},
    index::IndexWriter,
    pages::Pages,
    read::snapshot::Snapshot,
};
use cambium_trie::{PartialTrie, SHARDS};
use rayon::prelude::*;
use std::sync::Arc;
use walk::Merger;

/// Writes the pages of all that `shards`, which are hashed, have expanded above `old`, moves pages
/// out of what `cleaning` has chosen, and puts the index of the new snapshot into `index`, shard by
/// shard.
pub fn merge(
    old: &Snapshot,
    shards: &[DirtyShard],
    cleaning: &Cleaning,
    index: &IndexWriter,
) -> Result<Merged, StateError> {
    let pages = &*old.pages;
    let one = |shard| -> Result<Merged, StateError> {
        let DirtyShard { trie, held } = &shards[shard];
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

//! Merging: writes the dirty tries of the intermediate layer to pages, and makes the index of the
//! next snapshot from their addresses.
//!
//! A page contains a whole subtrie. A merge walks the dirty trie bottom-up. Subtries that fit into
//! one page stay *loose*: their leaves wait in memory for a page. Where the loose children of a
//! branch no longer fit into one page together, or the index has room for smaller pages (`sizes.rs`), each
//! becomes a page of its own, and the branch becomes part of the index. The blinded subtries of the
//! dirty trie are unchanged.
//!
//! `walk.rs` does this for one shard, on a copy of what it opens of the old index (`edit.rs`). It has a fast path, `rewrite.rs`, for a page in which only
//! values of leaves changed or leaves were added. Afterwards, `clean.rs` moves pages of the shard
//! out of segments with much dead space.
//!
//! ```text
//!            index:     (branch)             too large for a page
//!                      /   |    \
//!            pages:  [..] [..]  [..]         whole subtries of up to SPLIT_ABOVE_BYTES
//! ```

mod sizes;
mod result;
mod old_pages;
mod edit;
mod rewrite;
mod walk;
mod named;
mod clean;

pub use clean::{Cleaning, emptiest};
pub use named::{NamedPage, NamedPages};
pub use result::{Merged, MergedShard, places};
pub(crate) use sizes::PageSizes;
pub use sizes::split_above_bytes;

use crate::{
    base::{error::StateError, pool},
    dirty::{DirtyShard, HeldPages},
    index::{IndexWriter, Opened},
    pages::{Pages, retry_transient},
    read::snapshot::Snapshot,
};
use cambium_store::PageAddr;
use cambium_trie::{PartialTrie, SHARDS};
use rayon::prelude::*;
use std::{collections::HashSet, sync::Arc};
use walk::Merger;

/// Merges the dirty trie above the snapshot `old` into pages, moves pages out of the segments that
/// `cleaning` has chosen, and writes the shards of the new index to `index`. Runs at low priority
/// in the pool for merges.
///
/// `shards` are the 256 shards of the dirty trie, all hashed. `completed` returns a shard in place of one of these, if
/// leaves that have changed are not loaded there.
///
/// # Errors
///
/// [`StateError::Store`] or another error of damage if reading or writing fails. The new snapshot
/// is incomplete then, and `old` stays valid.
pub fn merge(
    old: &Snapshot,
    shards: &[DirtyShard],
    completed: &(dyn Fn(usize) -> Result<Option<DirtyShard>, StateError> + Sync),
    cleaning: &Cleaning,
    index: &IndexWriter,
) -> Result<Merged, StateError> {
    let pages = &*old.pages;
    let sizes = PageSizes::of_merge(&old.index, index.bytes_max());
    // An empty shard is neither expanded nor blinded.
    let changed = shards.iter().filter(|shard| shard.trie.counts().0 > 0);
    let changed = changed.count() as u64;
    let one = |shard| -> Result<Merged, StateError> {
        let completed = retry_transient(|| completed(shard))?;
        let DirtyShard { trie, held } = completed.as_ref().unwrap_or(&shards[shard]);
        if trie.root().is_stub() && index.put_unchanged(shard)? {
            pages.counters.merge_parts.add(1);
            return Ok(Merged::default());
        }
        let is_moved = |addr: &PageAddr| cleaning.is_chosen(addr);
        // A shard in which nothing is written moves nothing.
        let turn = cleaning.turn(&old.index, &is_moved);
        let turn = turn.filter(|_| !trie.root().is_stub());
        let mut before = retry_transient(|| old.index.opened(shard, trie, turn.as_ref()))?;
        if let Opened::Blocks(blocks) = &before.opened {
            pages.counters.index_blocks_opened.add(blocks.opened());
        }
        let blinded = before.trie.counts().1 as u64;
        let mut merged = merge_shard(&before.trie, trie, held, pages, sizes)?;
        // The pages of what was not opened are the same as before.
        let before_all = old.index.pages_of(shard);
        let named = before_all + merged.named - blinded;
        debug_assert_eq!(
            named + merged.dead.iter().collect::<HashSet<_>>().len() as u64,
            before_all + merged.pages,
            "each page that was there or was written is named or dead"
        );
        let mut dead_parts = cleaning.clean(&mut before, &mut merged, changed, pages)?;
        dead_parts.extend(index.put_edited(
            shard,
            &before,
            &merged.index,
            merged.touched.as_ref(),
            named,
        )?);
        pages.counters.merge_parts.add(1);
        Ok(Merged {
            dead: merged.dead,
            dead_parts,
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
        all.dead_parts.extend(merged.dead_parts);
        all.pages_written += merged.pages_written;
        all.bytes_written += merged.bytes_written;
        all.pages_split += merged.pages_split;
        all.pages_joined += merged.pages_joined;
    }
    Ok(all)
}

/// Merges one shard: writes the changed pages of the dirty `trie` above the index `old`, which become as large as `sizes`
/// says.
pub(crate) fn merge_shard(
    old: &Arc<PartialTrie>,
    trie: &PartialTrie,
    held: &HeldPages,
    pages: &Pages,
    sizes: PageSizes,
) -> Result<MergedShard, StateError> {
    if trie.root().is_stub() {
        return Ok(MergedShard::unchanged(old.clone()));
    }
    Merger::new(old, trie, held, pages, sizes)?.merge()
}

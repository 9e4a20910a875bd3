//! Making the index again from pages alone, where neither of the last two checkpoints can be read
//! with all that it is on: one bad bit in the whole index at the bottom does that to both.
//!
//! ```text
//!   checkpoints   which pages there are                      named.rs
//!   segments      read from end to end, each page hashed     pages come in any order
//!     -> a entry for each page, by shard, spilled if need be
//!     -> shard by shard: sorted, and put together            tries.rs
//!   checkpoint    a new one, whole, once the root is right
//! ```
//!
//! A page tells the path of its subtrie, and the first page of an account whose slots have pages of
//! their own has a copy of its leaf. That, and the list of the pages that count, is all that the
//! index says.
//!
//! Nothing is changed before the state root is what the checkpoint says. It takes a scan of all
//! segments, and memory within the budget, but for eight bytes a page.

mod faults;
mod named;
mod tries;

use crate::{
    base::{
        counters::Counters,
        error::StateError,
        layout::{shard_prefix, subtrie_of},
        pool,
    },
    checkpoint::{self, AboveSnapshot, read_manifest, read_meta, read_retired, read_segments},
    index::{FoundIndex, IndexWriter, PartCache},
};
use cambium_disk::Disk;
use cambium_store::{Checkpoint, Manifest, Page, PageAddr, SegmentOptions, Segments};
use cambium_trie::{PartialTrie, SHARDS, crown};
use faults::damaged_index;
use named::NamedPages;
use rayon::prelude::*;
use std::sync::Arc;
use tries::{IndexEntries, IndexEntry, trie_of_entries};

/// So many pages are hashed together, on all cores.
const PAGES_AT_ONCE: usize = 1024;

/// Makes the index again of the state that the newest checkpoint is of whose own sections can be
/// read, and writes it as a checkpoint after all that there are.
pub fn rebuild<L: AboveSnapshot>(
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    sizes: &SegmentOptions,
    memory_bytes: u64,
    parts: &Arc<PartCache>,
) -> Result<checkpoint::Read<L>, StateError> {
    let mut failed = None;
    for sequence in Checkpoint::usable(disk)? {
        let made = Checkpoint::open(disk, sequence)
            .map_err(StateError::from)
            .and_then(|newest| rebuild_at(&newest, disk, manifest, sizes, memory_bytes, parts));
        match made {
            Err(error) if error.is_damage() => _ = failed.get_or_insert(error),
            made => return made,
        }
    }
    Err(failed.unwrap_or(StateError::Unfinished))
}

fn rebuild_at<L: AboveSnapshot>(
    newest: &Checkpoint,
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    sizes: &SegmentOptions,
    memory_bytes: u64,
    parts: &Arc<PartCache>,
) -> Result<checkpoint::Read<L>, StateError> {
    let meta = read_meta::<L>(newest)?;
    let (table, retired) = (read_segments(newest)?, read_retired(newest)?);
    read_manifest(newest)?;
    let named = NamedPages::by(newest, disk)?;
    let (segments, _) = Segments::open(
        disk.clone(),
        sizes.clone(),
        manifest.salt(),
        Some(&table),
        &retired,
    )?;
    tracing::warn!(
        "the index is made again from {} segments: this takes as long as reading them",
        segments.live().len()
    );
    let counters = Counters::default();
    let mut entries = IndexEntries::new(disk.clone(), memory_bytes / 8);
    read_pages(&segments, named, &counters, &mut entries)?;
    let writer = IndexWriter::whole(disk.clone(), Arc::default(), parts.clone(), None, false)?;
    let mut tops = Vec::with_capacity(SHARDS);
    for shard in 0..SHARDS {
        let found = entries.of(shard)?;
        let trie = trie_of_entries(&found, &shard_prefix(shard), &counters)?;
        tops.push(top_of(&trie, &found, &segments, &counters)?);
        writer.put(shard, Arc::new(trie), found.len() as u64)?;
    }
    let state_root = crown(&tops.iter().collect::<Vec<_>>())
        .ok()
        .and_then(|crown| crown.state_root());
    if state_root != Some(meta.state.state_root) {
        return Err(damaged_index("the pages make another state root"));
    }
    let index = checkpoint::write_whole(writer, &meta, table.clone(), manifest, &retired)?;
    Ok(checkpoint::Read {
        sequence: index.files().sequence(),
        meta,
        segments: table,
        retired,
        index: FoundIndex::Index(index),
    })
}

/// Reads the pages that count, and keeps of each what the index is to say.
fn read_pages(
    segments: &Segments,
    named: NamedPages,
    counters: &Counters,
    entries: &mut IndexEntries,
) -> Result<(), StateError> {
    let mut read = Vec::with_capacity(PAGES_AT_ONCE);
    let mut hash = |read: &mut Vec<(PageAddr, Page)>| {
        let entry = |(addr, page): &(PageAddr, Page)| IndexEntry::of(*addr, page, counters);
        let hashed: Vec<_> = pool::install(|| read.par_iter().map(entry).collect());
        read.clear();
        hashed
            .into_iter()
            .try_for_each(|entry| entries.push(&entry?))
    };
    for (segment, mut wanted) in named.into_segments() {
        let scan = segments.scan(segment, 0).into_iter().flatten();
        for page in scan {
            let (addr, page) = page?;
            if wanted.take(addr) {
                read.push((addr, page));
            }
            if read.len() == PAGES_AT_ONCE {
                hash(&mut read)?;
            }
        }
        if let Some(missing) = wanted.missing() {
            // The error says what is wrong with it.
            segments.read(missing)?;
            return Err(damaged_index("a page was passed over"));
        }
    }
    hash(&mut read)
}

/// The root of a shard as a crown is made from it: its node, over stubs.
fn top_of(
    trie: &PartialTrie,
    entries: &[IndexEntry],
    segments: &Segments,
    counters: &Counters,
) -> Result<PartialTrie, StateError> {
    let mut top = PartialTrie::new(*trie.base());
    let root = match (trie.root().is_stub(), entries) {
        // One page has all of the shard.
        (true, [entry]) => {
            let (page, root) = subtrie_of(&segments.read(entry.addr)?, true, counters)?;
            top.graft_node(&page, root)?
        }
        _ => top.graft_node(trie, trie.root())?,
    };
    top.set_root(root);
    Ok(top)
}

//! Rebuilding the index from the pages alone, where neither of the last two checkpoints can be
//! read: a single bad bit in the whole index that both are on is enough for that.
//!
//! ```text
//!   checkpoints   list the live pages                          named.rs
//!   segments      read from end to end, each page hashed       pages come in any order
//!     -> an index entry for each page, by shard, spilled if needed
//!     -> shard by shard: sorted, and assembled to a trie       tries.rs
//!   checkpoint    a new one with a whole index, if the state root is right
//! ```
//!
//! A page contains the path of its subtrie, and the first page of an account whose slots have pages
//! of their own contains a copy of the account's leaf. Together with the list of live pages, this
//! determines the index. Checkpoints of an index on disk have no such list: with both damaged, there is
//! nothing to rebuild from. Its parts are in the segments, and damaged ones can be restored singly (`parts.rs`).
//!
//! The disk stays unchanged until the state root equals that of the checkpoint. A rebuild reads all segments once, and
//! keeps to the memory budget, except for eight bytes for each page, and as many again while these are sorted by segment.

mod faults;
mod named;
mod tries;
mod parts;

pub use parts::restore_parts;

use crate::{
    base::{
        counters::Counters,
        error::StateError,
        layout::{shard_prefix, subtrie_of},
        pool,
    },
    checkpoint::{self, AboveSnapshot, read_manifest, read_meta, read_retired, read_segments},
    index::{IndexWriter, LoadedIndex, PartCache},
};
use cambium_disk::Disk;
use cambium_store::{Checkpoint, Manifest, Page, PageAddr, SegmentOptions, Segments};
use cambium_trie::{Commitment, PartialTrie, SHARDS, top_levels};
use faults::damaged_index;
use named::NamedPages;
use rayon::prelude::*;
use std::sync::Arc;
use tries::{IndexEntries, IndexEntry, trie_of_entries};

/// Number of pages that are hashed together, in parallel.
const PAGES_AT_ONCE: usize = 1024;

/// Rebuilds the index of the newest checkpoint whose sections other than the index can be read, and
/// writes it to a new checkpoint after all existing ones. Returns the contents of that.
///
/// `memory_bytes` is the memory budget of the database, of which a rebuild uses an eighth for index
/// entries.
///
/// # Errors
///
/// The first error of damage if no checkpoint suffices; [`StateError::Unfinished`] if there is no
/// checkpoint; and [`StateError::Store`] if reading or writing fails otherwise.
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

/// Rebuilds the index of the checkpoint `newest`.
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
        "rebuilding the index from {} segments: this takes as long as reading all of them",
        segments.live().len()
    );
    let (counters, commitment) = (Counters::default(), parts.commitment());
    let mut entries = IndexEntries::new(disk.clone(), memory_bytes / 8);
    read_pages(&segments, named, commitment, &counters, &mut entries)?;
    let writer = IndexWriter::whole(disk.clone(), Arc::default(), parts.clone(), None, false)?;
    let mut tops = Vec::with_capacity(SHARDS);
    for shard in 0..SHARDS {
        let found = entries.of(shard)?;
        let trie = trie_of_entries(&found, &shard_prefix(shard), commitment, &counters)?;
        tops.push(top_of(&trie, &found, &segments, &counters)?);
        writer.put(shard, &trie, found.len() as u64)?;
    }
    let state_root = top_levels(&tops.iter().collect::<Vec<_>>())
        .ok()
        .and_then(|top_levels| top_levels.state_root());
    if state_root != Some(meta.state.state_root) {
        return Err(damaged_index("the pages hash to another state root"));
    }
    let index = checkpoint::write_whole(writer, &meta, table.clone(), manifest, &retired)?;
    Ok(checkpoint::Read {
        sequence: index.files().sequence(),
        meta,
        segments: table,
        retired,
        index: LoadedIndex::Index(index),
    })
}

/// Reads the live pages in all segments, and adds an index entry for each.
fn read_pages(
    segments: &Segments,
    named: NamedPages,
    commitment: Commitment,
    counters: &Counters,
    entries: &mut IndexEntries,
) -> Result<(), StateError> {
    let mut read = Vec::with_capacity(PAGES_AT_ONCE);
    let mut hash = |read: &mut Vec<(PageAddr, Page)>| {
        let entry =
            |(addr, page): &(PageAddr, Page)| IndexEntry::of(*addr, page, commitment, counters);
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
            // Reading the page returns an error that says what is wrong with it.
            segments.read(missing)?;
            return Err(damaged_index("a live page was skipped"));
        }
    }
    hash(&mut read)
}

/// Returns the root node of a shard over blinded children, as the top levels of the trie need it.
fn top_of(
    trie: &PartialTrie,
    entries: &[IndexEntry],
    segments: &Segments,
    counters: &Counters,
) -> Result<PartialTrie, StateError> {
    let mut top = PartialTrie::new(*trie.base()).committed_by(trie.commitment());
    let root = match (trie.root().is_stub(), entries) {
        // The shard is a single page, which contains the root node.
        (true, [entry]) => {
            let (page, root) = {
                let page = segments.read(entry.addr)?;
                subtrie_of(&page, true, trie.commitment(), counters)?
            };
            top.graft_node(&page, root)?
        }
        _ => top.graft_node(trie, trie.root())?,
    };
    top.set_root(root);
    Ok(top)
}

//! Reading the index from a checkpoint.

use super::{
    blocks::{SplitShard, split},
    files::IndexChain,
    lookup::Index,
    part_ref::PartRef,
    parts::{
        LostPart, PartCache, PartFile, joined, joined_from_segments, lost_parts, parts_of_top,
    },
    section::{CHANGED, CHANGES, INDEX, TOPS, damaged_section, parse_section},
    shard::Shard,
};
use crate::{
    base::{error::StateError, layout::shard_prefix, pool},
    pages::Pages,
};
use cambium_primitives::{DecodeError, Reader};
use cambium_store::{Checkpoint, PageAddr, SectionReader, Segments};
use cambium_trie::{Commitment, PartialTrie, SHARDS};
use rayon::prelude::*;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Result of reading the index from a checkpoint.
pub enum LoadedIndex {
    /// The index, held in memory whole or, if it exceeds its limit, with its parts on disk.
    Index(Index),
    /// The index exceeds its memory limit and is stored as changes, so that its parts can't be read
    /// singly. The caller must write a checkpoint with the whole index first.
    TooLarge(StoredIndex),
    /// The tops of an index whose parts are in the segments. The caller opens these first.
    InSegments(SegmentIndex),
}

/// An index whose parts are in the segments, as its checkpoint has it: the tops.
pub struct SegmentIndex {
    tops: Vec<Shard>,
    files: IndexChain,
    /// Parts that were restored: what would be read if they were intact.
    restored: HashMap<PartRef, Vec<u8>>,
}

/// An index as stored in a chain of checkpoints, read shard by shard.
pub struct StoredIndex {
    /// Tops of the whole index, from the first checkpoint.
    tops: Vec<Shard>,
    /// Parts of the whole index, in the first checkpoint.
    parts: SectionReader,
    /// Changes in the later checkpoints, oldest first.
    changes: Vec<CheckpointChanges>,
}

/// The changes to the index in one checkpoint.
struct CheckpointChanges {
    reader: SectionReader,
    shards: Vec<ShardChanges>,
}

/// Position of the changes of one shard in the section, in bytes.
struct ShardChanges {
    offset: u64,
    len: u64,
    /// Number of pages that the shard names after these changes.
    pages: u64,
}

impl SegmentIndex {
    /// Opens the index with its parts in the segments of `pages`: in memory if it fits into its limit there and all of its
    /// parts can be read, else on disk. Shards are decoded in parallel. Also returns the error of a damaged part that keeps it
    /// on disk.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails. Damaged parts are reported to whatever needs them.
    pub fn open(
        self,
        pages: &Arc<Pages>,
        cache: &Arc<PartCache>,
    ) -> Result<(Index, Option<StateError>), StateError> {
        let bytes_max = cache.bytes_max();
        let lens = self.tops.iter().map(|shard| shard.len);
        let bytes = lens.fold(0, u64::saturating_add);
        let whole = |shard: usize| self.whole(shard, &pages.segments);
        let in_memory = match may_fit(bytes, bytes_max) {
            true => in_memory(&self.tops, &whole, bytes_max),
            false => Ok(None),
        };
        let file = PartFile::in_segments(pages.clone(), cache.clone());
        let on_disk = Index::new(self.tops, Some(file), self.files);
        match in_memory {
            Ok(Some(shards)) => {
                let stale_parts = on_disk.parts_in_segments();
                let index = Index::new(shards, None, self.files);
                let index = Index {
                    stale_parts,
                    ..index
                };
                Ok((index, None))
            }
            Ok(None) => Ok((on_disk, None)),
            Err(error) if error.is_damage() => Ok((on_disk, Some(error))),
            Err(error) => Err(error),
        }
    }

    /// Reads a whole shard, 0 to 255. Returns it with the number of pages that it names.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the shard can't be read or decoded.
    pub fn whole(
        &self,
        shard: usize,
        segments: &Segments,
    ) -> Result<(PartialTrie, u64), StateError> {
        let shard = &self.tops[shard];
        let (trie, _) = joined_from_segments(shard, segments, &self.restored)?;
        Ok((trie, shard.pages))
    }

    /// Finds the damaged parts of a shard, 0 to 255.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails.
    pub fn lost_parts(
        &self,
        shard: usize,
        segments: &Segments,
    ) -> Result<Vec<LostPart>, StateError> {
        lost_parts(&self.tops[shard], segments)
    }

    /// Puts the subtrie `trie` in place of a damaged part, for [`SegmentIndex::whole`].
    pub fn restore(&mut self, lost: &LostPart, trie: &PartialTrie) {
        if let Some(part) = PartRef::of(&lost.stub) {
            let mut bytes = Vec::new();
            trie.encode_to(&mut bytes);
            self.restored.insert(part, bytes);
        }
    }

    /// Returns the addresses of all parts.
    pub fn parts(&self) -> Vec<PageAddr> {
        let parts = self.tops.iter().flat_map(|shard| parts_of_top(&shard.trie));
        parts.filter_map(PartRef::addr).collect()
    }
}

impl StoredIndex {
    /// Opens the index in `chain`: a checkpoint with a whole index, and then those with changes,
    /// each on the one before it. Its nodes are hashed by `commitment`.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or [`StateError::Damaged`] if the tops or the positions of changes
    /// can't be read.
    ///
    /// # Panics
    ///
    /// If `chain` is empty.
    pub fn open(chain: &[&Checkpoint], commitment: Commitment) -> Result<Self, StateError> {
        let (first, newer) = chain.split_first().expect("a checkpoint");
        let changes = newer.iter().map(|checkpoint| {
            Ok(CheckpointChanges {
                reader: checkpoint.read_pieces(CHANGES)?,
                shards: parse_section(checkpoint, CHANGED, |reader| {
                    (0..SHARDS).map(|_| ShardChanges::read(reader)).collect()
                })?,
            })
        });
        Ok(Self {
            tops: read_tops(first, commitment)?,
            parts: first.read_pieces(INDEX)?,
            changes: changes.collect::<Result<_, StateError>>()?,
        })
    }

    /// Reads a whole shard, 0 to 255. Returns it with the number of pages that it names.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the shard can't be read or decoded.
    pub fn whole(&self, shard: usize) -> Result<(PartialTrie, u64), StateError> {
        let top = &self.tops[shard];
        let mut trie = joined(top, &self.parts)?;
        let mut pages = top.pages;
        for CheckpointChanges { reader, shards } in &self.changes {
            let ShardChanges { offset, len, .. } = shards[shard];
            let piece = reader.read(offset, len)?;
            let changes = reader.check(offset, &piece)?;
            trie = PartialTrie::decode_changes(&trie, changes)
                .map_err(|error| reader.corrupt(offset, error.what))?;
            pages = shards[shard].pages;
        }
        trie.shrink_to_fit();
        Ok((trie, pages))
    }
}

/// Reads the index of a checkpoint: whole if it fits into its memory limit, otherwise its tops, or
/// [`LoadedIndex::TooLarge`] if it is stored as changes. Verifies all of its bytes in the checkpoints.
/// Shards are decoded in parallel.
pub(crate) fn read_index(
    checkpoint: &Checkpoint,
    cache: &Arc<PartCache>,
) -> Result<LoadedIndex, StateError> {
    let mut older = Vec::new();
    while let Some(before) = older.last().unwrap_or(checkpoint).before()? {
        older.push(before);
    }
    // Oldest first.
    let mut chain: Vec<&Checkpoint> = older.iter().rev().collect();
    chain.push(checkpoint);
    let files = chain.iter().fold(None, |before, checkpoint| {
        let bytes_of = |name: &str| checkpoint.section_len(name);
        Some(IndexChain::new(checkpoint.id(), bytes_of, before))
    });
    let files = files.expect("a checkpoint");
    let Some(parts_bytes) = chain[0].section_len(INDEX) else {
        let tops = read_tops(chain[0], cache.commitment())?;
        let mut parts = tops.iter().flat_map(|top| parts_of_top(&top.trie));
        let is_in_file = tops.iter().any(|top| top.offset > 0) || chain.len() > 1;
        if is_in_file || parts.any(|part| part.addr().is_none()) {
            let what = "a part of the index that is not in the segments";
            let source = DecodeError { what, offset: 0 };
            return Err(damaged_section(chain[0], TOPS, source));
        }
        return Ok(LoadedIndex::InSegments(SegmentIndex {
            tops,
            files,
            restored: HashMap::new(),
        }));
    };
    let index = StoredIndex::open(&chain, cache.commitment())?;
    let bytes_max = cache.bytes_max();
    if may_fit(parts_bytes, bytes_max) {
        let whole = in_memory(&index.tops, &|shard| index.whole(shard), bytes_max);
        let whole = whole.map_err(|error| first_damage(&index).unwrap_or(error))?;
        if let Some(whole) = whole {
            return Ok(LoadedIndex::Index(Index::new(whole, None, files)));
        }
    }
    for (at, checkpoint) in chain.iter().enumerate() {
        let verified = checkpoint.verify_section(if at == 0 { INDEX } else { CHANGES });
        verified.map_err(|error| first_damage(&index).unwrap_or(error.into()))?;
    }
    if !index.changes.is_empty() {
        return Ok(LoadedIndex::TooLarge(index));
    }
    let parts = PartFile::in_checkpoint(index.parts, cache.clone());
    Ok(LoadedIndex::Index(Index::new(
        index.tops,
        Some(parts),
        files,
    )))
}

/// Whether an index whose parts take `bytes` bytes on disk may fit into `bytes_max` bytes of memory.
const fn may_fit(bytes: u64, bytes_max: u64) -> bool {
    // A blinded node takes 41 bytes on disk, and at least 38 in memory.
    bytes / 41 * 38 <= bytes_max
}

/// Reads all shards into memory. Returns `None` if they take more than `bytes_max` bytes there.
fn in_memory(
    tops: &[Shard],
    whole: &(dyn Fn(usize) -> Result<(PartialTrie, u64), StateError> + Sync),
    bytes_max: u64,
) -> Result<Option<Vec<Shard>>, StateError> {
    let taken = AtomicU64::new(0);
    let one = |shard: usize| -> Result<Option<Shard>, StateError> {
        if taken.load(Ordering::Relaxed) > bytes_max {
            return Ok(None);
        }
        let (trie, pages) = whole(shard)?;
        let SplitShard { top, blocks } = split(&trie)?;
        let Shard { offset, len, .. } = tops[shard];
        let shard = Shard {
            trie: top,
            blocks,
            pages,
            offset,
            len,
        };
        taken.fetch_add(shard.memory_bytes() as u64, Ordering::Relaxed);
        Ok(Some(shard))
    };
    let all: Option<Vec<_>> = pool::install(|| {
        (0..SHARDS)
            .into_par_iter()
            .map(one)
            .collect::<Result<_, _>>()
    })?;
    Ok(all.filter(|_| taken.into_inner() <= bytes_max))
}

/// Returns the error of the first damaged shard. Threads find damaged shards in any order, but a
/// dry run of a repair must report the same error as the repair.
fn first_damage(index: &StoredIndex) -> Option<StateError> {
    (0..SHARDS).find_map(|shard| index.whole(shard).err())
}

impl ShardChanges {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            offset: reader.varint()?,
            len: reader.varint()?,
            pages: reader.varint()?,
        })
    }
}

fn read_tops(checkpoint: &Checkpoint, commitment: Commitment) -> Result<Vec<Shard>, StateError> {
    parse_section(checkpoint, TOPS, |reader| {
        let tops: Vec<_> = (0..SHARDS)
            .map(|_| EncodedTop::read(reader))
            .collect::<Result<_, _>>()?;
        let decode = |(shard, top): (usize, &EncodedTop<'_>)| top.decode(shard, commitment);
        let decoded: Vec<_> = pool::install(|| tops.par_iter().enumerate().map(decode).collect());
        decoded.into_iter().collect()
    })
}

/// Top of one shard as the section `tops` encodes it.
struct EncodedTop<'a> {
    /// Offset of the shard's parts in the section `index`, in bytes.
    offset: u64,
    /// Length of the shard's parts, in bytes.
    len: u64,
    /// Number of pages that the shard names.
    pages: u64,
    /// The encoded trie.
    bytes: &'a [u8],
}

impl<'a> EncodedTop<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (offset, len, pages) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let bytes = reader.count(1)?;
        Ok(Self {
            offset,
            len,
            pages,
            bytes: reader.take(bytes)?,
        })
    }

    fn decode(&self, shard: usize, commitment: Commitment) -> Result<Shard, DecodeError> {
        let mut trie = PartialTrie::decode(self.bytes)?.committed_by(commitment);
        if *trie.base() != shard_prefix(shard) {
            return Err(DecodeError {
                what: "the top of another shard",
                offset: 0,
            });
        }
        trie.shrink_to_fit();
        Ok(Shard {
            trie: Arc::new(trie),
            blocks: Arc::default(),
            pages: self.pages,
            offset: self.offset,
            len: self.len,
        })
    }
}

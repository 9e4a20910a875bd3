//! Reading the index from a checkpoint.

use super::{
    blocks::{SplitShard, split},
    files::IndexChain,
    lookup::Index,
    parts::{PartCache, PartFile, join, read_all},
    section::{CHANGED, CHANGES, INDEX, TOPS, parse_section},
    shard::Shard,
};
use crate::base::{error::StateError, layout::shard_prefix, pool};
use cambium_primitives::{DecodeError, Reader};
use cambium_store::{Checkpoint, SectionReader};
use cambium_trie::{Commitment, PartialTrie, SHARDS};
use rayon::prelude::*;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Result of reading the index from a checkpoint.
pub enum LoadedIndex {
    /// The index, held in memory whole or, if it exceeds its limit, with its parts on disk.
    Index(Index),
    /// The index exceeds its memory limit and is stored as changes, so that its parts can't be read
    /// singly. The caller must write a checkpoint with the whole index first.
    TooLarge(StoredIndex),
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
        let mut trie = join(top, &self.parts, &read_all(top, &self.parts)?, &mut |_| {
            true
        })?;
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
/// [`LoadedIndex::TooLarge`] if it is stored as changes. Verifies all of its bytes in each case.
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
    let index = StoredIndex::open(&chain, cache.commitment())?;
    let bytes_max = cache.bytes_max();
    // A blinded node takes 41 bytes on disk, and at least 38 in memory.
    if chain[0].section_len(INDEX).unwrap_or(0) / 41 * 38 <= bytes_max {
        let taken = AtomicU64::new(0);
        let whole = |shard: usize| -> Result<Option<Shard>, StateError> {
            if taken.load(Ordering::Relaxed) > bytes_max {
                return Ok(None);
            }
            let (trie, pages) = index.whole(shard)?;
            let SplitShard { top, blocks } = split(&trie)?;
            let Shard { offset, len, .. } = index.tops[shard];
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
        let whole: Result<Option<Vec<_>>, _> = pool::install(|| {
            (0..SHARDS)
                .into_par_iter()
                .map(whole)
                .collect::<Result<_, _>>()
        });
        let whole = whole.map_err(|error| first_damage(&index).unwrap_or(error))?;
        if let Some(whole) = whole
            && taken.into_inner() <= bytes_max
        {
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
    let parts = PartFile::new(index.parts, cache.clone());
    Ok(LoadedIndex::Index(Index::new(
        index.tops,
        Some(parts),
        files,
    )))
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

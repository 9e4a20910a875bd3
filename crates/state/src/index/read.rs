//! Reading the index from a checkpoint.

use super::{
    INDEX, Index, PartCache, Shard, TOPS,
    parts::{PartFile, join},
};
use crate::{checkpoint::parse_section, error::StateError, forest::shard_prefix, pool};
use cambium_primitives::{DecodeError, Reader};
use cambium_store::Checkpoint;
use cambium_trie::{PartialTrie, SHARDS};
use rayon::prelude::*;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Reads the index: whole if its memory allows, else its tops. All of it is verified, and read
/// once; shards are decoded on all cores.
pub(crate) fn read_index(
    checkpoint: &Checkpoint,
    cache: &Arc<PartCache>,
) -> Result<Index, StateError> {
    let shards = read_tops(checkpoint)?;
    let reader = checkpoint.read_pieces(INDEX)?;
    let bytes_max = cache.bytes_max();
    // In memory it takes more than on disk.
    if checkpoint.section_len(INDEX).unwrap_or(0) <= bytes_max {
        let taken = AtomicU64::new(0);
        let whole = |shard: &Shard| -> Result<Option<Shard>, StateError> {
            if taken.load(Ordering::Relaxed) > bytes_max {
                return Ok(None);
            }
            let trie = join(shard, &reader)?;
            taken.fetch_add(trie.memory_bytes() as u64, Ordering::Relaxed);
            Ok(Some(Shard {
                trie: Arc::new(trie),
                ..*shard
            }))
        };
        let whole: Option<Vec<_>> =
            pool::install(|| shards.par_iter().map(whole).collect::<Result<_, _>>())?;
        if let Some(whole) = whole
            && taken.into_inner() <= bytes_max
        {
            return Ok(Index::resident(whole));
        }
    }
    checkpoint.verify_section(INDEX)?;
    Ok(Index::over(shards, PartFile::new(reader, cache.clone())))
}

impl Index {
    /// An index of which the tops are in memory.
    pub(super) fn over(shards: Vec<Shard>, parts: PartFile) -> Self {
        let tops = shards.iter().map(|shard| shard.trie.memory_bytes());
        parts.make_room(tops.sum());
        let parts = Some(parts);
        Self { shards, parts }
    }
}

fn read_tops(checkpoint: &Checkpoint) -> Result<Vec<Shard>, StateError> {
    parse_section(checkpoint, TOPS, |reader| {
        let tops: Vec<_> = (0..SHARDS)
            .map(|_| Top::read(reader))
            .collect::<Result<_, _>>()?;
        let decode = |(shard, top): (usize, &Top<'_>)| top.decode(shard);
        pool::install(|| tops.par_iter().enumerate().map(decode).collect())
    })
}

/// What the section of tops has of one shard.
struct Top<'a> {
    offset: u64,
    len: u64,
    pages: u64,
    bytes: &'a [u8],
}

impl<'a> Top<'a> {
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

    fn decode(&self, shard: usize) -> Result<Shard, DecodeError> {
        let mut trie = PartialTrie::decode(self.bytes)?;
        if *trie.base() != shard_prefix(shard) {
            return Err(DecodeError {
                what: "the top of another shard",
                offset: 0,
            });
        }
        trie.shrink_to_fit();
        Ok(Shard {
            trie: Arc::new(trie),
            pages: self.pages,
            offset: self.offset,
            len: self.len,
        })
    }
}

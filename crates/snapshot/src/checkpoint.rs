//! The engine's checkpoint: the index of a snapshot, the position in the block log to replay from,
//! and the lists of pages that a rebuild of the index needs.

use crate::{
    base::error::StateError,
    index::{
        Index, IndexWriter, LoadedIndex, PartCache, StoredIndex, WrittenIndex, parse_section,
        read_index,
    },
    pages::Pages,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, DecodeError, Reader, put_varint};
use cambium_store::{Checkpoint, Codes, LogPosition, Manifest, PageAddr};
use cambium_trie::SHARDS;
use std::sync::Arc;

// Names of sections: see `finish`.
const META: &str = "meta";
const SEGMENTS: &str = "segments";
const RETIRED: &str = "retired";
const RETIRED_BEFORE: &str = "retired_before";
const LIVE: &str = "live";
const MANIFEST: &str = "manifest";
/// Number of low bits of an address that encode the page's length. The others are its position.
const LEN_BITS: u32 = 16;

/// The state that a checkpoint contains.
#[derive(Clone, Copy)]
pub struct CheckpointState {
    /// The block of the snapshot.
    pub block: BlockId,
    /// Hash of that block's parent.
    pub parent_hash: B256,
    /// State root after that block.
    pub state_root: B256,
}

/// Contents of a checkpoint besides the index and the lists of pages.
pub struct Meta<L> {
    /// The state that the index contains.
    pub state: CheckpointState,
    /// Length of the code file when the checkpoint was written, in bytes.
    pub codes_len: u64,
    /// The data of the layers above the snapshot.
    pub log: L,
}

/// All contents of a checkpoint.
pub struct Read<L> {
    /// Sequence number of the checkpoint.
    pub sequence: u64,
    /// Contents besides the index and the lists of pages.
    pub meta: Meta<L>,
    /// The encoded segment table.
    pub segments: Vec<u8>,
    /// Retired pages: those that the checkpoint before names, and this one does not.
    pub retired: Vec<PageAddr>,
    /// The index.
    pub index: LoadedIndex,
}

/// Data that a checkpoint contains for the layers above the snapshot: head, replay position, and
/// sections of their own.
pub trait AboveSnapshot: Clone {
    /// Head of the chain: the checkpoint's block or a descendant. If the checkpoint was written
    /// while the head was moving far down in several steps, the block that it was moving to.
    fn head(&self) -> BlockId;

    /// Position in the block log from which recovery replays: its end when the checkpoint's block
    /// became the base, or an earlier record if a replay was still under way then.
    fn replay(&self) -> LogPosition;

    /// Additional sections with their names, which must differ from those of the checkpoint itself.
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)>;

    /// Reads the additional sections of a checkpoint, whose `state`, `head` and `replay` position
    /// have been read.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or [`StateError::Damaged`] if a section can't be read or decoded.
    fn read(
        checkpoint: &Checkpoint,
        state: &CheckpointState,
        head: BlockId,
        replay: LogPosition,
    ) -> Result<Self, StateError>;
}

/// Pages that a checkpoint no longer names. A page is *retired* while only the checkpoint before
/// the newest one names it, and dead after that.
#[derive(Clone, Copy)]
pub struct RetiredPages<'a> {
    /// Pages, and parts of the index in the segments, that the previous checkpoint names and this one does not.
    pub now: &'a [PageAddr],
    /// Pages that were retired by the previous checkpoint. They are dead once this one is durable.
    pub before: &'a [PageAddr],
}

/// Makes pages and codes durable, and then writes and finishes the checkpoint that was begun with
/// the index. Returns the index, and the size of the checkpoint in bytes.
///
/// # Errors
///
/// [`StateError::Store`] if writing or syncing fails.
pub fn write<L: AboveSnapshot>(
    index: WrittenIndex,
    pages: &Pages,
    codes: &Codes,
    manifest: &Manifest,
    state: CheckpointState,
    log: L,
    retired: RetiredPages<'_>,
) -> Result<(Index, u64), StateError> {
    pages.segments.sync()?;
    let meta = Meta {
        state,
        codes_len: codes.sync()?,
        log,
    };
    let table = pages.segments.encode_table(retired.before);
    finish(index, &meta, table, manifest, retired)
}

/// Finishes a checkpoint that replaces another of the same state with a whole index, because the
/// index was too large for its memory limit or had to be rebuilt. Returns the index.
///
/// # Errors
///
/// [`StateError::Store`] if writing or syncing fails.
///
/// # Panics
///
/// If a shard was not put into `writer`.
pub fn write_whole<L: AboveSnapshot>(
    writer: IndexWriter<'_>,
    meta: &Meta<L>,
    segments: Vec<u8>,
    manifest: &Manifest,
    retired: &[PageAddr],
) -> Result<Index, StateError> {
    let retired = RetiredPages {
        now: retired,
        before: &[],
    };
    let (index, _) = finish(writer.finish()?, meta, segments, manifest, retired)?;
    Ok(index)
}

/// Begins a checkpoint with a whole index, and writes all shards of `index` to it, one at a time. The checkpoints that it is copied from stay:
/// there may be a damaged one between them and the new one, and what has failed afterwards begins with them again.
///
/// # Errors
///
/// [`StateError::Store`] if reading or writing fails.
pub fn copy_index(
    disk: &Arc<dyn Disk>,
    parts: &Arc<PartCache>,
    index: &StoredIndex,
) -> Result<IndexWriter<'static>, StateError> {
    let mut writer = IndexWriter::whole(disk.clone(), Arc::default(), parts.clone(), None, true)?;
    writer.keep_older();
    for shard in 0..SHARDS {
        let (whole, pages) = index.whole(shard)?;
        writer.put(shard, &whole, pages)?;
    }
    Ok(writer)
}

/// Writes the remaining sections of a checkpoint that was begun with the index, and finishes it.
///
/// | section | offset | size | meaning |
/// |---|---|---|---|
/// | `meta` | 0 | 8 | number of the block, little-endian |
/// | | 8 | 32 | its hash |
/// | | 40 | 32 | its parent's hash |
/// | | 72 | 32 | its state root |
/// | | 104 | 8 | length of the code file, little-endian |
/// | | 112 | 8 | number of the head, little-endian |
/// | | 120 | 32 | its hash |
/// | | 152 | 8 | position in the log to replay from, little-endian |
/// | `segments` | | | the segment table |
/// | `manifest` | | | a copy of the manifest |
/// | `retired` | | | the pages that only the checkpoint before names: [`put_pages`] |
/// | others | | | those of [`AboveSnapshot::sections`] |
/// | `index`, `tops`, or `changes`, `changed`, or `tops` alone | | | the index: [`IndexWriter::finish`] |
///
/// An incremental checkpoint has these sections too. A rebuild of the index needs them if another
/// checkpoint of the chain is damaged:
///
/// | section | meaning |
/// |---|---|
/// | `retired_before` | a copy of `retired` of the checkpoint before |
/// | `live` | in the first one after a whole index: all pages that it names, without their lengths |
fn finish<L: AboveSnapshot>(
    mut index: WrittenIndex,
    of: &Meta<L>,
    segments: Vec<u8>,
    manifest: &Manifest,
    retired: RetiredPages<'_>,
) -> Result<(Index, u64), StateError> {
    let Meta {
        state,
        codes_len,
        log,
    } = of;
    let mut meta = Vec::with_capacity(160);
    meta.extend_from_slice(&state.block.number.to_le_bytes());
    meta.extend_from_slice(state.block.hash.as_slice());
    meta.extend_from_slice(state.parent_hash.as_slice());
    meta.extend_from_slice(state.state_root.as_slice());
    meta.extend_from_slice(&codes_len.to_le_bytes());
    meta.extend_from_slice(&log.head().number.to_le_bytes());
    meta.extend_from_slice(log.head().hash.as_slice());
    meta.extend_from_slice(&log.replay().to_u64().to_le_bytes());
    let mut sections = vec![(META, meta)];
    sections.extend(log.sections());
    sections.extend([
        (SEGMENTS, segments),
        (MANIFEST, manifest.encode()),
        (RETIRED, put_pages(retired.now.to_vec(), true)),
    ]);
    if let Some(before) = index.is_on() {
        sections.push((RETIRED_BEFORE, put_pages(retired.before.to_vec(), true)));
        if before.before().is_none() {
            sections.push((LIVE, put_pages(index.pages(), false)));
        }
    }
    for (name, bytes) in sections {
        index.checkpoint.section(name)?;
        index.checkpoint.write(&bytes)?;
    }
    index.seal()
}

/// Encodes page addresses, sorted.
///
/// | size | meaning |
/// |---|---|
/// | 1-10 | number of pages, LEB128 |
/// | each 1-10 | its address without the low 16 bits, minus that of the page before, LEB128 |
/// | 1-3 | the low 16 bits, LEB128, if lengths are kept |
fn put_pages(mut pages: Vec<PageAddr>, with_lengths: bool) -> Vec<u8> {
    pages.sort_unstable();
    let mut bytes = Vec::with_capacity(10 + pages.len() * 3);
    put_varint(&mut bytes, pages.len() as u64);
    let mut before = 0;
    for addr in pages {
        let (place, len) = (
            addr.to_u64() >> LEN_BITS,
            addr.to_u64() & ((1 << LEN_BITS) - 1),
        );
        put_varint(&mut bytes, place - std::mem::replace(&mut before, place));
        if with_lengths {
            put_varint(&mut bytes, len);
        }
    }
    bytes
}

/// Decodes page addresses: the reverse of [`put_pages`]. Without lengths, the length bits are 0.
fn take_pages(reader: &mut Reader<'_>, with_lengths: bool) -> Result<Vec<PageAddr>, DecodeError> {
    let count = reader.count(1 + usize::from(with_lengths))?;
    let mut pages = Vec::with_capacity(count);
    let mut place = 0u64;
    for _ in 0..count {
        let next = place.checked_add(reader.varint()?);
        place = next
            .filter(|place| *place < 1 << (63 - LEN_BITS))
            .ok_or_else(|| reader.error("an impossible page"))?;
        let len = match with_lengths {
            true => reader.varint()?,
            false => 0,
        };
        let addr = (len < 1 << LEN_BITS).then_some(place << LEN_BITS | len);
        let addr = addr.and_then(PageAddr::from_u64);
        pages.push(addr.ok_or_else(|| reader.error("an impossible page"))?);
    }
    Ok(pages)
}

/// Reads a checkpoint's contents besides the index and the lists of pages.
///
/// # Errors
///
/// [`StateError::Store`] or [`StateError::Damaged`] if a section can't be read or decoded.
pub fn read_meta<L: AboveSnapshot>(checkpoint: &Checkpoint) -> Result<Meta<L>, StateError> {
    let (state, codes_len, head, replay) = parse_section(checkpoint, META, |reader| {
        let state = CheckpointState {
            block: BlockId::new(reader.u64()?, reader.b256()?),
            parent_hash: reader.b256()?,
            state_root: reader.b256()?,
        };
        let codes_len = reader.u64()?;
        let head = BlockId::new(reader.u64()?, reader.b256()?);
        Ok((state, codes_len, head, LogPosition::from_u64(reader.u64()?)))
    })?;
    Ok(Meta {
        state,
        codes_len,
        log: L::read(checkpoint, &state, head, replay)?,
    })
}

/// Reads all contents of a checkpoint.
///
/// # Errors
///
/// [`StateError::Store`] or another error of damage if a section, or a checkpoint that this one is
/// on, can't be read or decoded.
pub fn read<L: AboveSnapshot>(
    checkpoint: &Checkpoint,
    parts: &Arc<PartCache>,
) -> Result<Read<L>, StateError> {
    Ok(Read {
        sequence: checkpoint.sequence(),
        meta: read_meta(checkpoint)?,
        segments: checkpoint.read_section(SEGMENTS)?,
        retired: read_retired(checkpoint)?,
        index: read_index(checkpoint, parts)?,
    })
}

/// Reads the encoded segment table.
///
/// # Errors
///
/// [`StateError::Store`] if the section can't be read.
pub fn read_segments(checkpoint: &Checkpoint) -> Result<Vec<u8>, StateError> {
    Ok(checkpoint.read_section(SEGMENTS)?)
}

/// Reads the encoded copy of the manifest.
///
/// # Errors
///
/// [`StateError::Store`] if the section can't be read.
pub fn read_manifest(checkpoint: &Checkpoint) -> Result<Vec<u8>, StateError> {
    Ok(checkpoint.read_section(MANIFEST)?)
}

/// Reads the pages that the checkpoint before names and this one does not.
///
/// # Errors
///
/// [`StateError::Store`] or [`StateError::Damaged`] if the section can't be read or decoded.
pub fn read_retired(checkpoint: &Checkpoint) -> Result<Vec<PageAddr>, StateError> {
    parse_section(checkpoint, RETIRED, |reader| take_pages(reader, true))
}

/// Reads a copy of the result of [`read_retired`] for the checkpoint that this one is on.
///
/// # Errors
///
/// [`StateError::Store`] or [`StateError::Damaged`] if the section is absent, or can't be read or
/// decoded.
pub fn read_retired_before(checkpoint: &Checkpoint) -> Result<Vec<PageAddr>, StateError> {
    parse_section(checkpoint, RETIRED_BEFORE, |reader| {
        take_pages(reader, true)
    })
}

/// Reads the list of all pages that a checkpoint names, with 0 for their lengths. `None` if the
/// checkpoint has no such list.
///
/// # Errors
///
/// [`StateError::Store`] or [`StateError::Damaged`] if the section can't be read or decoded.
pub fn read_live(checkpoint: &Checkpoint) -> Result<Option<Vec<PageAddr>>, StateError> {
    match checkpoint.section_len(LIVE) {
        None => Ok(None),
        Some(_) => parse_section(checkpoint, LIVE, |reader| take_pages(reader, false)).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pages_survive_their_encoding(words in proptest::collection::vec(1u64..1 << 63, 0..60)) {
            let addrs = words.into_iter().filter_map(PageAddr::from_u64);
            let mut addrs: Vec<_> = addrs.collect();
            let bytes = put_pages(addrs.clone(), true);
            addrs.sort_unstable();
            prop_assert_eq!(&take_pages(&mut Reader::new(&bytes), true).unwrap(), &addrs);
            for end in 0..bytes.len() {
                let mut reader = Reader::new(&bytes[..end]);
                prop_assert!(take_pages(&mut reader, true).is_err());
            }
            let bytes = put_pages(addrs.clone(), false);
            if addrs.iter().all(|addr| addr.to_u64() >> LEN_BITS > 0) {
                let taken = take_pages(&mut Reader::new(&bytes), false).unwrap();
                let place = |addr: &PageAddr| addr.to_u64() >> LEN_BITS;
                prop_assert!(taken.iter().map(place).eq(addrs.iter().map(place)));
            }
        }

        #[test]
        fn made_up_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            for with_lengths in [false, true] {
                let _ = take_pages(&mut Reader::new(&bytes), with_lengths);
            }
        }
    }
}

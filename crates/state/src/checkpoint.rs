//! The engine's checkpoint: the index, and where in the log to go on from.

use crate::{
    blocks::RecentBlock,
    error::StateError,
    index::{FoundIndex, Index, IndexOnDisk, IndexWriter, PartCache, WrittenIndex, read_index},
    pages::Pages,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, DecodeError, Reader, put_varint};
use cambium_store::{Checkpoint, Codes, LogPosition, PageAddr};
use cambium_trie::SHARDS;
use std::sync::Arc;

const META: &str = "meta";
const SEGMENTS: &str = "segments";
const RETIRED: &str = "retired";
const RECENT: &str = "recent";
/// One block in the section of recent blocks.
const RECENT_BYTES: usize = 80;

/// What a checkpoint is of.
#[derive(Clone, Copy)]
pub(crate) struct CheckpointState {
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    pub(crate) state_root: B256,
}

/// What a checkpoint says besides the index.
pub(crate) struct Meta {
    pub(crate) state: CheckpointState,
    pub(crate) codes_len: u64,
    pub(crate) log: LogState,
}

/// All that a checkpoint has.
pub(crate) struct Read {
    pub(crate) meta: Meta,
    /// The segment table.
    pub(crate) segments: Vec<u8>,
    /// Pages that only the checkpoint before names.
    pub(crate) retired: Vec<PageAddr>,
    pub(crate) index: FoundIndex,
}

/// What the log said when the checkpoint's block became the base.
pub(crate) struct LogState {
    /// The head: the checkpoint's block, or one above it.
    pub(crate) head: B256,
    /// Where the log ended: what comes later is replayed.
    pub(crate) replay: LogPosition,
    /// The blocks of the newest heights, whatever their branch.
    pub(crate) recent: Vec<RecentBlock>,
}

/// Makes pages and codes durable, and then the checkpoint that has been begun with the index.
/// Returns the index, and the checkpoint's size.
pub(crate) fn write(
    index: WrittenIndex,
    pages: &Pages,
    codes: &Codes,
    state: CheckpointState,
    log: LogState,
    retired: &[PageAddr],
) -> Result<(Index, u64), StateError> {
    pages.segments.sync()?;
    let meta = Meta {
        state,
        codes_len: codes.sync()?,
        log,
    };
    finish(index, &meta, pages.segments.encode_table(), retired)
}

/// Writes a checkpoint again with a whole index, which is too large for its memory.
pub(crate) fn write_whole(
    disk: &Arc<dyn Disk>,
    parts: &Arc<PartCache>,
    index: &IndexOnDisk,
    meta: &Meta,
    segments: Vec<u8>,
    retired: &[PageAddr],
) -> Result<Index, StateError> {
    let writer = IndexWriter::whole(disk.clone(), Arc::default(), parts.clone(), None, true)?;
    for shard in 0..SHARDS {
        let (whole, pages) = index.whole(shard)?;
        writer.put(shard, Arc::new(whole), pages)?;
    }
    let (index, _) = finish(writer.finish()?, meta, segments, retired)?;
    Ok(index)
}

/// Finishes a checkpoint that has been begun with the index.
///
/// | section | offset | size | meaning |
/// |---|---|---|---|
/// | `meta` | 0 | 8 | number of the block, little-endian |
/// | | 8 | 32 | its hash |
/// | | 40 | 32 | its parent's hash |
/// | | 72 | 32 | its state root |
/// | | 104 | 8 | length of the code file, little-endian |
/// | | 112 | 32 | hash of the head |
/// | | 144 | 8 | position in the log to replay from, little-endian |
/// | `recent` | | 1-10 | number of recent blocks, LEB128 |
/// | | | each 80 | number (8), hash, parent's hash, position in the log (8); little-endian |
/// | `segments` | | | the segment table |
/// | `retired` | | 1-10 | number of pages that only the checkpoint before names, LEB128 |
/// | | | each 8 | address, little-endian |
/// | `index`, `tops`, or `changes`, `changed` | | | the index: [`IndexWriter::finish`] |
fn finish(
    mut index: WrittenIndex,
    of: &Meta,
    segments: Vec<u8>,
    retired: &[PageAddr],
) -> Result<(Index, u64), StateError> {
    let Meta {
        state,
        codes_len,
        log,
    } = of;
    let mut meta = Vec::with_capacity(152);
    meta.extend_from_slice(&state.block.number.to_le_bytes());
    meta.extend_from_slice(state.block.hash.as_slice());
    meta.extend_from_slice(state.parent_hash.as_slice());
    meta.extend_from_slice(state.state_root.as_slice());
    meta.extend_from_slice(&codes_len.to_le_bytes());
    meta.extend_from_slice(log.head.as_slice());
    meta.extend_from_slice(&log.replay.to_u64().to_le_bytes());
    let mut recent = Vec::with_capacity(10 + log.recent.len() * RECENT_BYTES);
    put_varint(&mut recent, log.recent.len() as u64);
    for block in &log.recent {
        recent.extend_from_slice(&block.id.number.to_le_bytes());
        recent.extend_from_slice(block.id.hash.as_slice());
        recent.extend_from_slice(block.parent.as_slice());
        recent.extend_from_slice(&block.position.to_u64().to_le_bytes());
    }
    let mut dead = Vec::with_capacity(10 + retired.len() * 8);
    put_varint(&mut dead, retired.len() as u64);
    for addr in retired {
        dead.extend_from_slice(&addr.to_u64().to_le_bytes());
    }
    let small = [
        (META, meta),
        (RECENT, recent),
        (SEGMENTS, segments),
        (RETIRED, dead),
    ];
    for (name, bytes) in small {
        index.checkpoint.section(name)?;
        index.checkpoint.write(&bytes)?;
    }
    index.seal()
}

fn damaged(checkpoint: &Checkpoint, section: &str, source: DecodeError) -> StateError {
    let sequence = checkpoint.sequence();
    StateError::Damaged {
        what: format!("section {section} of checkpoint {sequence}"),
        source,
    }
}

/// Reads a section all of which `parse` takes.
pub(crate) fn parse_section<T>(
    checkpoint: &Checkpoint,
    section: &str,
    parse: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, StateError> {
    let bytes = checkpoint.read_section(section)?;
    let mut reader = Reader::new(&bytes);
    let parsed = parse(&mut reader).and_then(|parsed| reader.finish().map(|()| parsed));
    parsed.map_err(|source| damaged(checkpoint, section, source))
}

pub(crate) fn read_meta(checkpoint: &Checkpoint) -> Result<Meta, StateError> {
    let recent = parse_section(checkpoint, RECENT, |reader| {
        let count = reader.count(RECENT_BYTES)?;
        let mut recent = Vec::with_capacity(count);
        for _ in 0..count {
            recent.push(RecentBlock {
                id: BlockId::new(reader.u64()?, reader.b256()?),
                parent: reader.b256()?,
                position: LogPosition::from_u64(reader.u64()?),
            });
        }
        Ok(recent)
    })?;
    parse_section(checkpoint, META, |reader| {
        Ok(Meta {
            state: CheckpointState {
                block: BlockId::new(reader.u64()?, reader.b256()?),
                parent_hash: reader.b256()?,
                state_root: reader.b256()?,
            },
            codes_len: reader.u64()?,
            log: LogState {
                head: reader.b256()?,
                replay: LogPosition::from_u64(reader.u64()?),
                recent,
            },
        })
    })
}

/// Reads all of a checkpoint.
pub(crate) fn read(checkpoint: &Checkpoint, parts: &Arc<PartCache>) -> Result<Read, StateError> {
    Ok(Read {
        meta: read_meta(checkpoint)?,
        segments: checkpoint.read_section(SEGMENTS)?,
        retired: read_retired(checkpoint)?,
        index: read_index(checkpoint, parts)?,
    })
}

fn read_retired(checkpoint: &Checkpoint) -> Result<Vec<PageAddr>, StateError> {
    parse_section(checkpoint, RETIRED, |reader| {
        let count = reader.count(8)?;
        let mut pages = Vec::with_capacity(count);
        for _ in 0..count {
            let addr = PageAddr::from_u64(reader.u64()?);
            pages.push(addr.ok_or_else(|| reader.error("a page address of zero"))?);
        }
        Ok(pages)
    })
}

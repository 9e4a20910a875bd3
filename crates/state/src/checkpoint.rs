//! The engine's checkpoint: the resident index, and where in the log to go on from.

use crate::{base::Snapshot, blocks::RecentBlock, db::Inner, error::StateError, pages::Pages};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, DecodeError, Reader, put_varint};
use cambium_store::{Checkpoint, CheckpointWriter, LogPosition, PageAddr};
use cambium_trie::{PartialTrie, SHARDS};
use std::sync::Arc;

const META: &str = "meta";
const SEGMENTS: &str = "segments";
const RETIRED: &str = "retired";
const RECENT: &str = "recent";
const INDEX: &str = "index";
/// One block in the section of recent blocks.
const RECENT_BYTES: usize = 80;

/// What a checkpoint says of its block.
pub(crate) struct Meta {
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    pub(crate) state_root: B256,
    pub(crate) codes_len: u64,
    pub(crate) log: LogState,
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

/// Makes pages and codes durable, and then a checkpoint of `snapshot`. Returns its size.
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
/// | `index` | | 256 times | LEB128 length, then that many bytes: one shard's partial trie |
pub(crate) fn write(
    inner: &Inner,
    snapshot: &Snapshot,
    log: &LogState,
    retired: &[PageAddr],
) -> Result<u64, StateError> {
    inner.pages.segments.sync()?;
    let codes_len = inner.codes.sync()?;
    let mut meta = Vec::with_capacity(152);
    meta.extend_from_slice(&snapshot.block.number.to_le_bytes());
    meta.extend_from_slice(snapshot.block.hash.as_slice());
    meta.extend_from_slice(snapshot.parent_hash.as_slice());
    meta.extend_from_slice(snapshot.state_root.as_slice());
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
    let mut pages = Vec::with_capacity(10 + retired.len() * 8);
    put_varint(&mut pages, retired.len() as u64);
    for addr in retired {
        pages.extend_from_slice(&addr.to_u64().to_le_bytes());
    }
    let mut writer = CheckpointWriter::create(inner.disk.clone())?;
    let segments = inner.pages.segments.encode_table();
    let small = [
        (META, meta),
        (RECENT, recent),
        (SEGMENTS, segments),
        (RETIRED, pages),
    ];
    for (name, bytes) in small {
        writer.section(name)?;
        writer.write(&bytes)?;
    }
    writer.section(INDEX)?;
    let mut bytes = Vec::new();
    for shard in &snapshot.index {
        bytes.clear();
        shard.encode_to(&mut bytes);
        let mut len = Vec::with_capacity(10);
        put_varint(&mut len, bytes.len() as u64);
        writer.write(&len)?;
        writer.write(&bytes)?;
    }
    Ok(writer.finish()?.bytes)
}

fn damaged(checkpoint: &Checkpoint, section: &str, source: DecodeError) -> StateError {
    let sequence = checkpoint.sequence();
    StateError::Damaged {
        what: format!("section {section} of checkpoint {sequence}"),
        source,
    }
}

/// Reads a section all of which `parse` takes.
fn parse_section<T>(
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
            block: BlockId::new(reader.u64()?, reader.b256()?),
            parent_hash: reader.b256()?,
            state_root: reader.b256()?,
            codes_len: reader.u64()?,
            log: LogState {
                head: reader.b256()?,
                replay: LogPosition::from_u64(reader.u64()?),
                recent,
            },
        })
    })
}

pub(crate) fn read_segments(checkpoint: &Checkpoint) -> Result<Vec<u8>, StateError> {
    Ok(checkpoint.read_section(SEGMENTS)?)
}

pub(crate) fn read_retired(checkpoint: &Checkpoint) -> Result<Vec<PageAddr>, StateError> {
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

pub(crate) fn read_snapshot(
    checkpoint: &Checkpoint,
    meta: &Meta,
    pages: Arc<Pages>,
) -> Result<Snapshot, StateError> {
    let index = parse_section(checkpoint, INDEX, |reader| {
        let mut index = Vec::with_capacity(SHARDS);
        for _ in 0..SHARDS {
            let len = reader.count(1)?;
            index.push(Arc::new(PartialTrie::decode(reader.take(len)?)?));
        }
        Ok(index)
    })?;
    Ok(Snapshot {
        block: meta.block,
        parent_hash: meta.parent_hash,
        state_root: meta.state_root,
        index,
        pages,
    })
}

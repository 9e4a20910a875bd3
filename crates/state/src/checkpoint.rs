//! The engine's checkpoint: the resident index and where to replay the log from.

use crate::{base::Snapshot, db::Inner, error::StateError, pages::Pages};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, DecodeError, Reader, put_varint};
use cambium_store::{Checkpoint, CheckpointWriter, LogPosition, PageAddr};
use cambium_trie::{PartialTrie, SHARDS};
use std::sync::Arc;

const META: &str = "meta";
const SEGMENTS: &str = "segments";
const RETIRED: &str = "retired";
const INDEX: &str = "index";

/// What a checkpoint says of its block.
pub(crate) struct Meta {
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    pub(crate) state_root: B256,
    pub(crate) position: LogPosition,
    pub(crate) codes_len: u64,
}

/// Makes pages and codes durable, and then a checkpoint of `snapshot`. Returns its size.
///
/// | section | offset | size | meaning |
/// |---|---|---|---|
/// | `meta` | 0 | 8 | number of the block, little-endian |
/// | | 8 | 32 | its hash |
/// | | 40 | 32 | its parent's hash |
/// | | 72 | 32 | its state root |
/// | | 104 | 8 | position of its record in the log, little-endian |
/// | | 112 | 8 | length of the code file, little-endian |
/// | `segments` | | | the segment table |
/// | `retired` | | 1-10 | number of pages that only the checkpoint before names, LEB128 |
/// | | | each 8 | address, little-endian |
/// | `index` | | 256 times | LEB128 length, then that many bytes: one shard's partial trie |
pub(crate) fn write(
    inner: &Inner,
    snapshot: &Snapshot,
    position: LogPosition,
    retired: &[PageAddr],
) -> Result<u64, StateError> {
    inner.pages.segments.sync()?;
    let codes_len = inner.codes.sync()?;
    let mut meta = Vec::with_capacity(120);
    meta.extend_from_slice(&snapshot.block.number.to_le_bytes());
    meta.extend_from_slice(snapshot.block.hash.as_slice());
    meta.extend_from_slice(snapshot.parent_hash.as_slice());
    meta.extend_from_slice(snapshot.state_root.as_slice());
    meta.extend_from_slice(&position.to_u64().to_le_bytes());
    meta.extend_from_slice(&codes_len.to_le_bytes());
    let mut pages = Vec::with_capacity(10 + retired.len() * 8);
    put_varint(&mut pages, retired.len() as u64);
    for addr in retired {
        pages.extend_from_slice(&addr.to_u64().to_le_bytes());
    }
    let mut written = 0;
    let mut writer = CheckpointWriter::create(inner.disk.clone())?;
    let segments = inner.pages.segments.encode_table();
    for (name, bytes) in [(META, meta), (SEGMENTS, segments), (RETIRED, pages)] {
        writer.section(name)?;
        writer.write(&bytes)?;
        written += bytes.len() as u64;
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
        written += (len.len() + bytes.len()) as u64;
    }
    writer.finish()?;
    Ok(written)
}

fn damaged(checkpoint: &Checkpoint, section: &str, source: DecodeError) -> StateError {
    let sequence = checkpoint.sequence();
    StateError::Damaged {
        what: format!("section {section} of checkpoint {sequence}"),
        source,
    }
}

pub(crate) fn read_meta(checkpoint: &Checkpoint) -> Result<Meta, StateError> {
    let bytes = checkpoint.read_section(META)?;
    let parse = || {
        let mut reader = Reader::new(&bytes);
        let meta = Meta {
            block: BlockId::new(reader.u64()?, reader.b256()?),
            parent_hash: reader.b256()?,
            state_root: reader.b256()?,
            position: LogPosition::from_u64(reader.u64()?),
            codes_len: reader.u64()?,
        };
        reader.finish()?;
        Ok(meta)
    };
    parse().map_err(|source| damaged(checkpoint, META, source))
}

pub(crate) fn read_segments(checkpoint: &Checkpoint) -> Result<Vec<u8>, StateError> {
    Ok(checkpoint.read_section(SEGMENTS)?)
}

pub(crate) fn read_retired(checkpoint: &Checkpoint) -> Result<Vec<PageAddr>, StateError> {
    let bytes = checkpoint.read_section(RETIRED)?;
    let parse = || {
        let mut reader = Reader::new(&bytes);
        let count = reader.count(8)?;
        let mut pages = Vec::with_capacity(count);
        for _ in 0..count {
            let addr = PageAddr::from_u64(reader.u64()?);
            pages.push(addr.ok_or_else(|| reader.error("a page address of zero"))?);
        }
        reader.finish()?;
        Ok(pages)
    };
    parse().map_err(|source| damaged(checkpoint, RETIRED, source))
}

pub(crate) fn read_snapshot(
    checkpoint: &Checkpoint,
    meta: &Meta,
    pages: Arc<Pages>,
) -> Result<Snapshot, StateError> {
    let bytes = checkpoint.read_section(INDEX)?;
    let parse = || {
        let mut reader = Reader::new(&bytes);
        let mut index = Vec::with_capacity(SHARDS);
        for _ in 0..SHARDS {
            let len = reader.count(1)?;
            index.push(Arc::new(PartialTrie::decode(reader.take(len)?)?));
        }
        reader.finish()?;
        Ok(index)
    };
    let index = parse().map_err(|source| damaged(checkpoint, INDEX, source))?;
    Ok(Snapshot {
        block: meta.block,
        parent_hash: meta.parent_hash,
        state_root: meta.state_root,
        index,
        pages,
    })
}

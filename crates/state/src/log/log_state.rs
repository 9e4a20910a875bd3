//! The part of a checkpoint that describes the block log: the head, the recent blocks, and where
//! replay and retention begin.

use crate::log::{blocks::RecentBlock, finality::Finality, kept::Kept};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, DecodeError, Reader, put_varint};
use cambium_snapshot::{
    AboveSnapshot, CheckpointState, StateError, checkpoint, damaged_section, parse_section,
};
use cambium_store::{Checkpoint, LogPosition};

/// Name of the section with the recent blocks.
const RECENT: &str = "recent";
/// Name of the section with the retention.
const KEPT: &str = "kept";
/// Name of the section with the table of value segments.
const VALUES: &str = "values";
/// Name of the section with the roots of the `layered` commitment.
const LAYERED: &str = "layered";
/// Size of one root in that section.
const ROOT_BYTES: usize = 72;
/// Name of the section with the safe and finalized blocks.
const FINALITY: &str = "finality";
/// Size of one block in the section of recent blocks.
const RECENT_BYTES: usize = 80;

/// The metadata of this engine's checkpoints.
pub(crate) type Meta = checkpoint::Meta<LogState>;
/// A checkpoint of this engine, as it was read.
pub(crate) type ReadCheckpoint = checkpoint::Read<LogState>;

/// The block log at the moment when the checkpoint's block became the base.
#[derive(Clone)]
pub(crate) struct LogState {
    /// The head: the checkpoint's block or a descendant. If the engine was moving the head far down
    /// in several steps, the block that it was moving to; opening the database continues the move.
    pub(crate) head: BlockId,
    /// Position from which opening replays the log: see [`AboveSnapshot::replay`].
    pub(crate) replay: LogPosition,
    /// The blocks of the newest heights, on any branch.
    pub(crate) recent: Vec<RecentBlock>,
    /// From where on blocks are kept.
    pub(crate) kept: Kept,
    /// The safe and finalized blocks.
    pub(crate) finality: Finality,
    /// The table of value segments, as [`Values::encode_table`](cambium_store::Values::encode_table)
    /// returned it. Empty in a database of accounts.
    pub(crate) values: Vec<u8>,
    /// Roots of the `layered` commitment, if the chain has that.
    pub(crate) layered: Option<LayeredRoots>,
}

/// Roots of the `layered` commitment in a checkpoint. The checkpoint's own state root is that of the trie in its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayeredRoots {
    /// The root in the header of the checkpoint's block.
    pub(crate) state_root: B256,
    /// Known roots of the tries after the blocks at which intervals end.
    pub(crate) snapshots: Vec<(BlockId, B256)>,
}

/// The sections of a checkpoint:
///
/// | section | offset | size | meaning |
/// |---|---|---|---|
/// | `recent` | | 1-10 | number of recent blocks, LEB128 |
/// | | | each 80 | number (8), hash, parent's hash, position in the log (8); little-endian |
/// | `kept` | 0 | 8 | the lowest block that can be the head again, little-endian; no section if all blocks are kept |
/// | | 8 | 8 | the lowest canonical block whose record is in the log, little-endian |
/// | | 16 | 8 | position from which on the log is complete, little-endian |
/// | `finality` | 0 | | safe and finalized blocks, as [`Finality::encode_to`] encodes them; no section if there are none |
/// | `values` | 0 | | table of value segments; no section in a database of accounts |
/// | `layered` | 0 | 32 | root in the header of the checkpoint's block; no section under other commitments |
/// | | 32 | 1-10 | number of roots of snapshots, LEB128 |
/// | | | each 72 | number (8, little-endian) and hash of the block, root of its state's trie |
impl AboveSnapshot for LogState {
    fn head(&self) -> BlockId {
        self.head
    }

    fn replay(&self) -> LogPosition {
        self.replay
    }

    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut recent = Vec::with_capacity(10 + self.recent.len() * RECENT_BYTES);
        put_varint(&mut recent, self.recent.len() as u64);
        for block in &self.recent {
            recent.extend_from_slice(&block.id.number.to_le_bytes());
            recent.extend_from_slice(block.id.hash.as_slice());
            recent.extend_from_slice(block.parent.as_slice());
            recent.extend_from_slice(&block.position.to_u64().to_le_bytes());
        }
        let mut sections = vec![(RECENT, recent)];
        if self.kept != Kept::ALL {
            let Kept {
                number,
                lowest,
                position,
            } = self.kept;
            let words = [number, lowest, position.to_u64()];
            sections.push((KEPT, words.map(u64::to_le_bytes).concat()));
        }
        if self.finality != Finality::default() {
            let mut bytes = Vec::new();
            self.finality.encode_to(&mut bytes);
            sections.push((FINALITY, bytes));
        }
        if !self.values.is_empty() {
            sections.push((VALUES, self.values.clone()));
        }
        if let Some(layered) = &self.layered {
            let mut bytes = layered.state_root.to_vec();
            put_varint(&mut bytes, layered.snapshots.len() as u64);
            for (block, root) in &layered.snapshots {
                bytes.extend_from_slice(&block.number.to_le_bytes());
                bytes.extend_from_slice(block.hash.as_slice());
                bytes.extend_from_slice(root.as_slice());
            }
            sections.push((LAYERED, bytes));
        }
        sections
    }

    fn read(
        checkpoint: &Checkpoint,
        state: &CheckpointState,
        head: BlockId,
        replay: LogPosition,
    ) -> Result<Self, StateError> {
        let recent = parse_section(checkpoint, RECENT, read_recent)?;
        let kept = match checkpoint.section_len(KEPT) {
            None => Kept::ALL,
            Some(_) => parse_section(checkpoint, KEPT, read_kept)?,
        };
        let finality = match checkpoint.section_len(FINALITY) {
            None => Finality::default(),
            Some(_) => parse_section(checkpoint, FINALITY, Finality::take)?,
        };
        let all = |reader: &mut Reader<'_>| Ok(reader.take(reader.remaining())?.to_vec());
        let values = match checkpoint.section_len(VALUES) {
            None => Vec::new(),
            Some(_) => parse_section(checkpoint, VALUES, all)?,
        };
        let Kept {
            number,
            lowest,
            position,
        } = kept;
        if lowest > number || number > state.block.number || position > replay {
            let what = "a retention that excludes needed blocks";
            let error = DecodeError { what, offset: 0 };
            return Err(damaged_section(checkpoint, KEPT, error));
        }
        let layered = match checkpoint.section_len(LAYERED) {
            None => None,
            Some(_) => Some(parse_section(checkpoint, LAYERED, read_layered)?),
        };
        Ok(Self {
            head,
            replay,
            recent,
            kept,
            finality,
            values,
            layered,
        })
    }
}

fn read_recent(reader: &mut Reader<'_>) -> Result<Vec<RecentBlock>, DecodeError> {
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
}

fn read_kept(reader: &mut Reader<'_>) -> Result<Kept, DecodeError> {
    let kept = Kept {
        number: reader.u64()?,
        lowest: reader.u64()?,
        position: LogPosition::from_u64(reader.u64()?),
    };
    Ok(kept)
}

fn read_layered(reader: &mut Reader<'_>) -> Result<LayeredRoots, DecodeError> {
    let state_root = reader.b256()?;
    let count = reader.count(ROOT_BYTES)?;
    let mut snapshots = Vec::with_capacity(count);
    for _ in 0..count {
        let block = BlockId::new(reader.u64()?, reader.b256()?);
        snapshots.push((block, reader.b256()?));
    }
    Ok(LayeredRoots {
        state_root,
        snapshots,
    })
}

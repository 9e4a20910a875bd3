//! Search of the block log for blocks of a branch that is in memory no more: it was left many blocks
//! ago, or was freed when another one was finalized.

use crate::log::{
    journal::{Journal, start_of},
    records::{BlockHead, BlockRecord, CHECKED_HEAD_BYTES, KIND_BLOCK, describe},
};
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use cambium_snapshot::StateError;
use cambium_store::LogPosition;
use std::collections::{HashMap, VecDeque};

/// Most files of the log that are searched, before the canonical blocks of about the same number and as
/// many after them: a branch is written about when they are.
const FILES_MAX: u32 = 64;

/// Positions of the block `tip` and of ancestors down to the lowest that the search has found, oldest
/// first. Empty if `tip` is not found. Only the heads of records are read.
pub(super) fn branch_of(
    journal: &Journal,
    tip: BlockId,
) -> Result<VecDeque<(BlockId, LogPosition)>, StateError> {
    let heights = journal.options.unfinalized_blocks as u64;
    let Some(near) = journal.blocks.position_near(tip.number, heights)? else {
        return Ok(VecDeque::new());
    };
    let last = near.file.saturating_add(FILES_MAX);
    let first = start_of(near.file.saturating_sub(FILES_MAX));
    let from = first.max(journal.log.start());
    let numbers = tip.number.saturating_sub(heights)..=tip.number;
    let mut found: HashMap<B256, (BlockHead, LogPosition)> = HashMap::new();
    for record in journal.log.scan_heads(from, CHECKED_HEAD_BYTES) {
        let (position, record) = record.map_err(|error| journal.unless_behind(error))?;
        if position.file > last {
            break;
        }
        if record.kind != KIND_BLOCK {
            continue;
        }
        let head = BlockRecord::decode_head(&record.payload);
        let head = head.map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })?;
        if numbers.contains(&head.id.number) {
            found.insert(head.id.hash, (head, position));
        }
    }
    let (mut branch, mut next) = (VecDeque::new(), tip);
    while let Some((head, position)) = found.remove(&next.hash)
        && head.id == next
        && let Some(below) = next.number.checked_sub(1)
    {
        branch.push_front((next, position));
        next = BlockId::new(below, head.parent);
    }
    Ok(branch)
}

//! Completes the block index on disk when a database is opened: it must have the base of the
//! checkpoint and all ancestors of it, and is rebuilt from the log where it does not.

use crate::log::{
    finality::{CanonicalRecord, KIND_CANONICAL},
    log_state::Meta,
    records::{BlockHead, BlockRecord, CHECKED_HEAD_BYTES, KIND_BLOCK, KIND_HEAD, decode_new_head},
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::StateError;
use cambium_store::{BlockEntry, BlockIndex, BlockLog, IndexState, LogPosition, StoreError};
use std::collections::{BTreeMap, HashMap};

/// While the index is rebuilt, blocks of any branch are remembered down to this many heights below
/// the tip, and at most `REMEMBERED_BLOCKS_MAX` of them. A longer branch can't be followed.
const REMEMBERED_HEIGHTS: u64 = 1024;
/// Most blocks that are remembered while the index is rebuilt.
const REMEMBERED_BLOCKS_MAX: usize = 1 << 16;

/// Whether a reader may rebuild the index in its own memory, which is sound only without a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MayRebuild(pub(crate) bool);

/// The note for the owner of the database about the state in which the index was found, if it
/// needed repair.
pub(crate) fn note_of(found: IndexState, was_rebuilt: bool, base: BlockId) -> Option<String> {
    match found {
        IndexState::Rebuild { reason } => Some(format!(
            "blocks.idx, the block index, was rebuilt from the log: {reason}"
        )),
        IndexState::Short { numbers } if was_rebuilt => Some(format!(
            "blocks.idx, the block index, was rebuilt from the log: it holds {numbers} of {} \
             blocks",
            base.number + 1
        )),
        IndexState::Ready if was_rebuilt => Some(
            "blocks.idx, the block index, was rebuilt from the log: it held another chain"
                .to_owned(),
        ),
        IndexState::Short { .. } | IndexState::Ready => None,
    }
}

/// Makes the index hold the base and its ancestors. A crash during a merge may have left it short,
/// or with entries of another branch. The entries of recent blocks are set again; if that is not
/// enough, the whole index is rebuilt from the log, and the result is true.
///
/// Recent ancestors are set again even where they are right: an earlier opening may have set them
/// and failed to sync, so that they are in the system's page cache alone.
///
/// A `reader` beside a writing process gets [`StoreError::ReaderBehind`] instead of a rebuild,
/// unless it may rebuild the index. It uses the entries below the recent blocks as long as they
/// belong to the base's chain.
pub(crate) fn complete_index(
    index: &BlockIndex,
    log: &BlockLog,
    genesis: BlockId,
    meta: &Meta,
    reader: Option<MayRebuild>,
) -> Result<bool, StateError> {
    let base = meta.state.block;
    let recent = meta.log.recent.iter();
    let recent: HashMap<_, _> = recent.map(|block| (block.id, block)).collect();
    let mut set_again = Vec::new();
    let mut lowest_wrong = None;
    let mut next = base;
    loop {
        let is_there = match index.get(next.number) {
            Ok(entry) => entry.is_some_and(|entry| entry.hash == next.hash),
            Err(error) if error.is_corruption() => false,
            Err(error) => return Err(error.into()),
        };
        if !is_there {
            lowest_wrong = Some(next.number);
        }
        match recent.get(&next) {
            Some(block) => set_again.push(**block),
            None if is_there => {
                if reader.is_some() {
                    index.set_anchor(next.number, next.hash);
                }
                break;
            }
            None if reader == Some(MayRebuild(false)) => {
                let what = "the block index of its chain".to_owned();
                return Err(StoreError::ReaderBehind { what }.into());
            }
            None => {
                rebuild_index(index, log, meta)?;
                return Ok(true);
            }
        }
        if next == genesis {
            break;
        }
        next = BlockId::new(next.number - 1, recent[&next].parent);
    }
    if let Some(lowest) = lowest_wrong {
        index.truncate(lowest)?;
    }
    for block in set_again.into_iter().rev() {
        index.set(block.id.number, block.entry())?;
    }
    Ok(false)
}

/// Rebuilds the index from the whole log. The entries of blocks that the log does not keep any more
/// stay as they are.
pub(crate) fn rebuild_index(
    index: &BlockIndex,
    log: &BlockLog,
    meta: &Meta,
) -> Result<(), StateError> {
    IndexRebuild::new(index, log, meta).run(meta.log.replay)
}

/// A rebuild of the index. It follows the moves of the head through the log, and sets the index to
/// the chain of each head. Only the blocks of the newest heights are in memory, and only the first
/// bytes of each record are read.
struct IndexRebuild<'a> {
    index: &'a BlockIndex,
    log: &'a BlockLog,
    /// The block at which the rebuilt chain must end.
    base: BlockId,
    /// The index may be the only place of blocks below this one: their entries stay.
    lowest: BlockNumber,
    tip: Option<BlockId>,
    remembered: HashMap<B256, (BlockHead, LogPosition)>,
    by_number: BTreeMap<u64, Vec<B256>>,
}

impl<'a> IndexRebuild<'a> {
    fn new(index: &'a BlockIndex, log: &'a BlockLog, meta: &Meta) -> Self {
        Self {
            index,
            log,
            base: meta.state.block,
            lowest: meta.log.kept.lowest,
            tip: None,
            remembered: HashMap::new(),
            by_number: BTreeMap::new(),
        }
    }

    /// Rebuilds the index from all records before `end`, the log position at the checkpoint.
    fn run(mut self, end: LogPosition) -> Result<(), StateError> {
        let last = self.follow(end)?;
        if !self.has_base()? {
            // The head was moving down past the base, so the base's chain is that of an earlier
            // moment.
            let last = last.unwrap_or(self.log.start());
            self.tip = None;
            self.remembered.clear();
            self.by_number.clear();
            self.follow(last)?;
        }
        self.index.truncate(self.base.number + 1)?;
        Ok(())
    }

    /// Whether the index ends in the base's chain.
    fn has_base(&self) -> Result<bool, StateError> {
        let entry = self.index.get(self.base.number)?;
        Ok(entry.is_some_and(|entry| entry.hash == self.base.hash))
    }

    /// Follows the head through the log up to `end`. Returns the position after the last record at
    /// which the base was an ancestor of the head, or `None` if it never was.
    fn follow(&mut self, end: LogPosition) -> Result<Option<LogPosition>, StateError> {
        // Truncating is not enough: a power failure could bring back entries of another branch.
        self.index.restart(self.lowest)?;
        let mut last = None;
        let mut scan = self.log.scan_heads(self.log.start(), CHECKED_HEAD_BYTES);
        while let Some(record) = scan.next() {
            let (position, record) = record?;
            if position >= end {
                break;
            }
            match record.kind {
                KIND_BLOCK => {
                    if let Ok(head) = BlockRecord::decode_head(&record.payload) {
                        self.remember(head, position);
                        if head.head {
                            self.set_tip(head.id)?;
                        }
                    }
                }
                KIND_HEAD => {
                    if let Ok(id) = decode_new_head(&record.payload) {
                        self.set_tip(id)?;
                    }
                }
                KIND_CANONICAL => {
                    if let Ok(id) = CanonicalRecord::decode_head(&record.payload) {
                        self.set_tip(id)?;
                    }
                }
                _ => {}
            }
            let is_above = self.tip.is_some_and(|tip| tip.number >= self.base.number);
            if is_above && self.has_base()? {
                last = Some(scan.position());
            }
        }
        Ok(last)
    }

    /// Remembers a block, and forgets those that are too far below the tip.
    fn remember(&mut self, head: BlockHead, position: LogPosition) {
        self.remembered.insert(head.id.hash, (head, position));
        self.by_number
            .entry(head.id.number)
            .or_default()
            .push(head.id.hash);
        let lowest = self
            .tip
            .map_or(0, |tip| tip.number.saturating_sub(REMEMBERED_HEIGHTS));
        while let Some(entry) = self.by_number.first_entry()
            && (*entry.key() < lowest || self.remembered.len() > REMEMBERED_BLOCKS_MAX)
        {
            for hash in entry.remove() {
                self.remembered.remove(&hash);
            }
        }
    }

    /// Sets the index to the remembered blocks of the chain up to `tip`.
    fn set_tip(&mut self, tip: BlockId) -> Result<(), StateError> {
        let mut new = Vec::new();
        let mut next = tip;
        let keep = loop {
            // Older entries stay: their records, and those of their siblings, may have left the
            // log.
            if next.number < self.lowest {
                break self.lowest;
            }
            let entry = self.index.get(next.number)?;
            if entry.is_some_and(|entry| entry.hash == next.hash) {
                break next.number + 1;
            }
            let Some((head, position)) = self.remembered.get(&next.hash) else {
                // Its record was lost, or it is too far back: the entries below it stay. Its child knows its hash.
                if let (None, Some((_, above))) = (entry, new.last()) {
                    new.push((next, lost_below(*above)));
                }
                break next.number;
            };
            if head.id != next {
                return Ok(());
            }
            new.push((head.id, *position));
            match next.number.checked_sub(1) {
                Some(below) => next = BlockId::new(below, head.parent),
                None => break 0,
            }
        };
        if keep < self.index.numbers() {
            self.index.truncate(keep)?;
        }
        for (id, position) in new.into_iter().rev() {
            let hash = id.hash;
            self.index.set(id.number, BlockEntry { hash, position })?;
        }
        self.tip = Some(tip);
        Ok(())
    }
}

/// A position for a record that the log has lost, before that of its child: records begin at multiples of 8.
const fn lost_below(above: LogPosition) -> LogPosition {
    LogPosition {
        offset: above.offset.saturating_sub(4),
        ..above
    }
}

/// Whether an entry has a position that [`IndexRebuild`] gives to blocks whose records are lost.
pub(crate) const fn is_lost_below(position: LogPosition) -> bool {
    !position.offset.is_multiple_of(8)
}

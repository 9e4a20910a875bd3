//! The block index on disk is held against what a checkpoint says, and made again where it does not
//! tell of the base and all its ancestors.

use crate::log::{
    log_state::Meta,
    records::{BlockHead, BlockRecord, CHECKED_HEAD_BYTES, KIND_BLOCK, KIND_HEAD, decode_new_head},
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::StateError;
use cambium_store::{BlockEntry, BlockIndex, BlockLog, IndexState, LogPosition, StoreError};
use std::collections::{BTreeMap, HashMap};

/// Heights below the tip of which all blocks are remembered while the index is made again, whatever
/// their branch, and most such blocks: a branch that was longer can't be followed.
const REMEMBERED_HEIGHTS: u64 = 1024;
const REMEMBERED_BLOCKS_MAX: usize = 1 << 16;

/// Whether somebody who only reads may make the index again, in its own memory: where nobody writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MayRebuild(pub(crate) bool);

/// What to say about the state in which the index was found.
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

/// Sees to it that the index has the base and its ancestors. A merge that was cut short may have
/// left it short, or with another branch: of both as much is amended as the recent blocks tell. If
/// that is not enough it is made anew from the whole log, and the answer is true.
///
/// Recent ancestors are set again even where they are right: what an opening before this one has
/// amended, and failed to sync, may be in the system's cache alone.
///
/// A reader, beside a process that writes, is told to come again instead, unless it `may_remake` the
/// index; and what it reads below the recent blocks counts as long as that is of the base's chain.
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

/// Makes the index anew from the whole log: of blocks that it does not keep any more, what the index
/// has stays.
pub(crate) fn rebuild_index(
    index: &BlockIndex,
    log: &BlockLog,
    meta: &Meta,
) -> Result<(), StateError> {
    IndexRebuild::new(index, log, meta).run(meta.log.replay)
}

/// The index is made anew: the head goes through the log as it went when that was written, and the
/// index follows it. In memory are the blocks of the newest heights alone, and of each record no
/// more is read than its first bytes.
struct IndexRebuild<'a> {
    index: &'a BlockIndex,
    log: &'a BlockLog,
    /// The chain that ends here is wanted.
    base: BlockId,
    /// Blocks below this one may be in the index alone: what it has of them stays.
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

    /// `end` is where the base had become what it is.
    fn run(mut self, end: LogPosition) -> Result<(), StateError> {
        let last = self.follow(end)?;
        if !self.has_base()? {
            // The head was on its way down past the base: its chain is that of an earlier moment.
            let last = last.unwrap_or(self.log.start());
            self.tip = None;
            self.remembered.clear();
            self.by_number.clear();
            self.follow(last)?;
        }
        self.index.truncate(self.base.number + 1)?;
        Ok(())
    }

    fn has_base(&self) -> Result<bool, StateError> {
        let entry = self.index.get(self.base.number)?;
        Ok(entry.is_some_and(|entry| entry.hash == self.base.hash))
    }

    /// Goes through the log up to `end`. Returns the end of the last record with which the base was
    /// an ancestor of the head.
    fn follow(&mut self, end: LogPosition) -> Result<Option<LogPosition>, StateError> {
        // Not cut off alone: a power failure could bring back what another branch had there.
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
                _ => {}
            }
            let is_above = self.tip.is_some_and(|tip| tip.number >= self.base.number);
            if is_above && self.has_base()? {
                last = Some(scan.position());
            }
        }
        Ok(last)
    }

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

    /// Makes the index that of the chain up to `tip`, as far as it is known.
    fn set_tip(&mut self, tip: BlockId) -> Result<(), StateError> {
        let mut new = Vec::new();
        let mut next = tip;
        let keep = loop {
            // What the index has of older ones stays: their records, and their siblings', may be gone.
            if next.number < self.lowest {
                break self.lowest;
            }
            let entry = self.index.get(next.number)?;
            if entry.is_some_and(|entry| entry.hash == next.hash) {
                break next.number + 1;
            }
            let Some((head, position)) = self.remembered.get(&next.hash) else {
                // A block whose record was lost, or too far back: what is below stays.
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

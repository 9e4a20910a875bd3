//! The block log of an open database, with the locks under which it is appended to and pruned.

use super::{
    access::{Access, ReadAccess},
    blocks::{BaseMove, Blocks},
    finality::Finality,
    kept::{Keeping, Kept},
    records::{BlockMeta, BlockRecord, CHECKED_HEAD_BYTES, KIND_BLOCK, describe},
};
use crate::{layered::intervals::Intervals, options::Options};
use cambium_primitives::{BlockId, BlockNumber, DecodeError};
use cambium_snapshot::{StateError, retry_transient};
use cambium_store::{
    BlockLog, Checkpoint, LogPosition, Manifest, Record, RemovedLogFile, StoreError,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Most files that a merge reads for pruning, and most that it removes. The limit bounds the time
/// that this adds to a merge, however long the log is.
const FILES_AT_ONCE: usize = 16;

/// Number of blocks kept below a fork, for a reader of the log that knows the hash of only one block in that many.
const KEPT_BELOW_FORK: u64 = 64;

/// The block log of an open database. A block is durable once its record is in the synced log.
pub(crate) struct Journal {
    pub(crate) options: Options,
    pub(crate) manifest: Manifest,
    pub(crate) genesis: BlockId,
    /// The intervals of the `layered` commitment, whose roots need the changes of two of them.
    pub(crate) intervals: Option<Intervals>,
    pub(crate) log: BlockLog,
    pub(crate) blocks: Blocks,
    /// Held while blocks are committed or the head moves, from the first check to the end of the
    /// move.
    pub(crate) head_moves: Mutex<()>,
    /// Held while the log is appended to, and while layers are frozen.
    pub(crate) writer: Mutex<()>,
    /// From where on the log is kept.
    pub(crate) keeping: Mutex<Keeping>,
    /// Position of the record that is being replayed, if merges are needed to apply it: checkpoints
    /// must name it, so that the next opening replays from there.
    pub(crate) replaying: Mutex<Option<LogPosition>>,
    /// The head that the log names, while the head in memory is still moving down to it. Read and changed only under
    /// `writer`, or before the database is shared.
    pub(crate) target_head: Mutex<Option<BlockId>>,
    /// The safe and finalized blocks. Changed only under `writer`, or before the database is shared.
    pub(crate) finality: Mutex<Finality>,
    /// Lowest block number above which each reader needs blocks, kept regardless of the options.
    pub(crate) kept_above: Mutex<BTreeMap<&'static str, BlockNumber>>,
    /// Dropped last: it holds the lock of the directory.
    pub(crate) access: Access,
}

impl Journal {
    /// The state of a reader, or `None` for the writer.
    pub(crate) const fn read_access(&self) -> Option<&ReadAccess> {
        self.access.read_access()
    }

    /// Whether the database is open for reading alone.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self.access, Access::Reader(_))
    }

    /// Fails with [`StateError::ReadOnly`] if the database is open for reading alone.
    pub(crate) fn check_writable(&self, what: &'static str) -> Result<(), StateError> {
        match self.is_read_only() {
            false => Ok(()),
            true => Err(StateError::ReadOnly(what)),
        }
    }

    /// Whether the writing process has removed the log file at `position`, which this reader needs.
    /// It has written a newer checkpoint in that case; otherwise the file was lost.
    pub(crate) fn was_removed(&self, position: LogPosition) -> Result<bool, StateError> {
        match &self.access {
            Access::Writer(_) => Ok(false),
            Access::Reader(reading) => {
                let is_gone = !BlockLog::is_there(&**reading.disk(), position)?;
                Ok(is_gone && Checkpoint::newest(&**reading.disk())? > Some(reading.sequence()))
            }
        }
    }

    /// The error of a scan of the log. In a reader with a newer checkpoint before it, the writing process may have
    /// removed what was read.
    pub(crate) fn unless_behind(&self, error: StoreError) -> StateError {
        let is_behind = match &self.access {
            Access::Writer(_) => false,
            Access::Reader(reading) => Checkpoint::newest(&**reading.disk())
                .is_ok_and(|newest| newest > Some(reading.sequence())),
        };
        match is_behind {
            true => StoreError::ReaderBehind {
                what: "the block log".to_owned(),
            }
            .into(),
            false => error.into(),
        }
    }

    /// Reads a record, and explains a record that is missing because blocks were removed.
    fn read_log(&self, position: LogPosition) -> Result<Record, StateError> {
        self.log.read(position).map_err(|error| match error {
            StoreError::NotKept { .. } => self.not_kept(),
            // It was removed between the look-up and the read.
            _ if position < self.log.start() => self.not_kept(),
            // The writing process has removed the file.
            _ if self.was_removed(position).unwrap_or(false) => {
                let what = describe(position);
                StoreError::ReaderBehind { what }.into()
            }
            error => error.into(),
        })
    }

    /// Reads the block `id`, whose record is at `position`. If another block's is there, a repair has cut off the log
    /// before it, and the log has grown again.
    pub(crate) fn record_of(
        &self,
        id: BlockId,
        position: LogPosition,
    ) -> Result<BlockRecord, StateError> {
        let record = self.read_log(position)?;
        let decoded = BlockRecord::decode(&record.payload);
        let record = decoded.map_err(|source| damaged(position, source))?;
        match record.meta.id == id {
            true => Ok(record),
            false => Err(self.log.lost(position).into()),
        }
    }

    /// As [`Journal::record_of`], without the changes.
    pub(crate) fn meta_of(
        &self,
        id: BlockId,
        position: LogPosition,
    ) -> Result<BlockMeta, StateError> {
        let record = self.read_log(position)?;
        let decoded = BlockRecord::decode_meta(&record.payload);
        let meta = decoded.map_err(|source| damaged(position, source))?;
        match meta.id == id {
            true => Ok(meta),
            false => Err(self.log.lost(position).into()),
        }
    }

    /// From where on blocks are kept, once the checkpoint that is being written is durable.
    pub(crate) fn kept(&self) -> Kept {
        self.keeping.lock().planned
    }

    /// Reads the highest block number of each old file of the log that retention may soon drop.
    /// Stops at a file that can't be read, which is therefore kept.
    pub(crate) fn scan_old_files(&self, head: BlockNumber) {
        let Some(blocks) = self.options.keep_blocks else {
            return;
        };
        let lowest = self.lowest_below(head.saturating_sub(blocks));
        let newest = self.log.end().file;
        let first = self.kept().position.file;
        for file in (first..newest).take(FILES_AT_ONCE) {
            let known = self.keeping.lock().highest.get(&file).copied();
            let Some(highest) = known.or_else(|| retry_transient(|| self.highest_in(file)).ok())
            else {
                return;
            };
            self.keeping.lock().highest.insert(file, highest);
            if highest >= lowest {
                return;
            }
        }
    }

    /// The highest block number in a file of the log.
    fn highest_in(&self, file: u32) -> Result<BlockNumber, StateError> {
        let mut highest = 0;
        for record in self.log.scan_heads(start_of(file), CHECKED_HEAD_BYTES) {
            let (position, record) = record?;
            if position.file > file {
                break;
            }
            if record.kind == KIND_BLOCK {
                let head = BlockRecord::decode_head(&record.payload);
                let head = head.map_err(|source| StateError::Damaged {
                    what: describe(position),
                    source,
                })?;
                highest = highest.max(head.id.number);
            }
        }
        Ok(highest)
    }

    /// The lowest block whose record is needed to work on block `number`.
    fn lowest_below(&self, number: BlockNumber) -> BlockNumber {
        let spare = number.saturating_sub(self.options.files.log_spare_blocks);
        // The snapshot of the block after it is restored by reverts from there on.
        let snapshot = |intervals: Intervals| intervals.snapshot_of(number.saturating_add(1));
        spare
            .min(self.intervals.map_or(u64::MAX, snapshot))
            .max(self.genesis.number)
    }

    /// The lowest number above which a reader of the log needs the blocks.
    fn kept_above(&self) -> BlockNumber {
        let kept_above = self.kept_above.lock();
        kept_above
            .values()
            .copied()
            .min()
            .unwrap_or(BlockNumber::MAX)
    }

    /// Keeps the blocks that readers of the log need when blocks from `changed` on have left the chain. The caller has
    /// locked `writer`.
    pub(crate) fn keep_from_fork(&self, changed: BlockNumber) {
        let fork = changed.saturating_sub(1 + KEPT_BELOW_FORK);
        for above in self.kept_above.lock().values_mut() {
            *above = fork.min(*above);
        }
    }

    /// Forgets safe and finalized blocks from `changed` on that are not canonical any more. Does nothing while the head
    /// is on its way down: the canonical chain in memory is not yet the one that the log names.
    pub(crate) fn forget_changed(&self, changed: BlockNumber) {
        if self.target_head.lock().is_some() {
            return;
        }
        // The head's chain is in memory from where it changed.
        let is_kept = |block: BlockId| match self.blocks.canonical(block.number) {
            Ok(entry) => entry.is_some_and(|entry| entry.hash == block.hash),
            Err(_) => true,
        };
        let mut finality = self.finality.lock();
        finality.retain(|block| block.number < changed || is_kept(block));
    }

    /// Forgets safe and finalized blocks that are not canonical. After an error nothing is forgotten.
    pub(crate) fn forget_uncanonical(&self) -> Result<(), StateError> {
        let known = *self.finality.lock();
        let mut gone = Vec::new();
        for block in known.blocks() {
            match self.blocks.canonical(block.number) {
                // Too old to be undone.
                Err(StateError::NotKept { .. }) => {}
                entry => {
                    if entry?.is_none_or(|entry| entry.hash != block.hash) {
                        gone.push(block);
                    }
                }
            }
        }
        self.finality.lock().retain(|block| !gone.contains(&block));
        Ok(())
    }

    /// Plans what a merge that does `base_move`, with the head at `head`, keeps of the log. The
    /// caller has locked `writer`.
    pub(crate) fn plan_kept(&self, base_move: &BaseMove, head: BlockId) -> Kept {
        let before = self.kept();
        let Some(blocks) = self.options.keep_blocks else {
            return before;
        };
        // A head on its way down, or a replay that is not over, may need older records.
        if self.target_head.lock().is_some() || self.replaying.lock().is_some() {
            return before;
        }
        let lowest_recent = base_move.recent().iter().map(|block| block.id.number).min();
        let number = head
            .number
            .saturating_sub(blocks)
            .min(self.kept_above())
            .min(base_move.to().number)
            // Branches leave the base's chain below their lowest block.
            .min(lowest_recent.map_or(u64::MAX, |lowest| lowest.saturating_sub(1)))
            .max(self.genesis.number);
        if number < before.number {
            return before;
        }
        // Removed blocks don't come back when more are to be kept than before.
        let lowest = self.lowest_below(number).max(before.lowest);
        let mut keeping = self.keeping.lock();
        let mut file = before.position.file;
        while keeping
            .highest
            .get(&file)
            .is_some_and(|highest| *highest < lowest)
        {
            keeping.highest.remove(&file);
            file += 1;
        }
        keeping.planned = Kept {
            number,
            lowest,
            position: start_of(file),
        };
        keeping.planned
    }

    /// Removes the files that neither of the last two checkpoints needs, and returns them. The
    /// checkpoint with `kept` is durable.
    pub(crate) fn remove_unkept(&self, kept: Kept) -> Result<Vec<RemovedLogFile>, StateError> {
        let before = std::mem::replace(&mut self.keeping.lock().newest, kept);
        Ok(self.log.remove_before(before.position)?)
    }

    /// The error for work that needs blocks which are not kept.
    pub(crate) fn not_kept(&self) -> StateError {
        let oldest = self.kept().number;
        StateError::NotKept { oldest }
    }
}

fn damaged(position: LogPosition, source: DecodeError) -> StateError {
    let what = describe(position);
    StateError::Damaged { what, source }
}

/// Position of the first record of a file.
pub(crate) const fn start_of(file: u32) -> LogPosition {
    LogPosition {
        file,
        ..LogPosition::START
    }
}

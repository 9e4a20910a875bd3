//! The block log of an open database, and where blocks are in it.

use super::{
    access::{Access, ReadAccess},
    blocks::{BaseMove, Blocks},
    kept::{Keeping, Kept},
    records::{BlockMeta, BlockRecord, CHECKED_HEAD_BYTES, KIND_BLOCK, describe},
};
use crate::options::Options;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::{StateError, retried};
use cambium_store::{
    BlockLog, Checkpoint, LogPosition, Manifest, Record, RemovedLogFile, StoreError,
};
use parking_lot::Mutex;

/// No merge looks through more files than this, nor removes more, however long the log is: those
/// who wait for it would wait for that.
const FILES_AT_ONCE: usize = 16;

/// The log of an open database: what is appended to it makes blocks durable.
pub(crate) struct Journal {
    pub(crate) options: Options,
    pub(crate) manifest: Manifest,
    pub(crate) genesis: BlockId,
    pub(crate) log: BlockLog,
    pub(crate) blocks: Blocks,
    /// Held by whoever commits blocks or moves the head, until that is done.
    pub(crate) head_moves: Mutex<()>,
    /// Held by whoever appends to the log, and while layers are frozen.
    pub(crate) writer: Mutex<()>,
    /// From where on the log is kept.
    pub(crate) keeping: Mutex<Keeping>,
    /// The record of the log that is replayed, from which the next opening is to go on.
    pub(crate) replaying: Mutex<Option<LogPosition>>,
    /// The head by the log, while the one in memory is on its way down to it. Whoever changes or
    /// reads it has locked `writer`, or is the only one there is.
    pub(crate) target_head: Mutex<Option<BlockId>>,
    /// Dropped last.
    pub(crate) access: Access,
}

impl Journal {
    /// What a database that is open for reading alone holds.
    pub(crate) const fn read_access(&self) -> Option<&ReadAccess> {
        self.access.read_access()
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self.access, Access::Reader(_))
    }

    /// Refuses a change to what another process writes.
    pub(crate) fn check_writable(&self, what: &'static str) -> Result<(), StateError> {
        match self.is_read_only() {
            false => Ok(()),
            true => Err(StateError::ReadOnly(what)),
        }
    }

    /// Whether the process that writes has removed a file of the log that this one reads: it has
    /// written a checkpoint before, or else the file is lost.
    pub(crate) fn was_removed(&self, position: LogPosition) -> Result<bool, StateError> {
        match &self.access {
            Access::Writer(_) => Ok(false),
            Access::Reader(reading) => {
                let is_gone = !BlockLog::is_there(&**reading.disk(), position)?;
                Ok(is_gone && Checkpoint::newest(&**reading.disk())? > Some(reading.sequence()))
            }
        }
    }

    fn read_log(&self, position: LogPosition) -> Result<Record, StateError> {
        self.log.read(position).map_err(|error| match error {
            StoreError::NotKept { .. } => self.not_kept(),
            // Whoever writes does not keep it any more.
            _ if self.was_removed(position).unwrap_or(false) => {
                let what = describe(position);
                StoreError::ReaderBehind { what }.into()
            }
            error => error.into(),
        })
    }

    /// The block whose record is at `position`.
    pub(crate) fn record_at(&self, position: LogPosition) -> Result<BlockRecord, StateError> {
        let record = self.read_log(position)?;
        BlockRecord::decode(&record.payload).map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })
    }

    /// As [`Journal::record_at`], without its changes.
    pub(crate) fn meta_at(&self, position: LogPosition) -> Result<BlockMeta, StateError> {
        let record = self.read_log(position)?;
        BlockRecord::decode_meta(&record.payload).map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })
    }

    /// From where on blocks are kept, now or soon.
    pub(crate) fn kept(&self) -> Kept {
        self.keeping.lock().planned
    }

    /// Looks through old files of the log, as far as they may soon be passed. One that can't be read
    /// is not passed.
    pub(crate) fn scan_old_files(&self, head: BlockNumber) {
        let Some(blocks) = self.options.keep_blocks else {
            return;
        };
        let lowest = self.lowest_below(head.saturating_sub(blocks));
        let newest = self.log.end().file;
        let first = self.kept().position.file;
        for file in (first..newest).take(FILES_AT_ONCE) {
            let known = self.keeping.lock().highest.get(&file).copied();
            let Some(highest) = known.or_else(|| retried(|| self.highest_in(file)).ok()) else {
                return;
            };
            self.keeping.lock().highest.insert(file, highest);
            if highest >= lowest {
                return;
            }
        }
    }

    /// Number of the highest block in a file of the log.
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

    /// The lowest block whose record is kept for what is done with block `number`.
    fn lowest_below(&self, number: BlockNumber) -> BlockNumber {
        number
            .saturating_sub(self.options.files.log_spare_blocks)
            .max(self.genesis.number)
    }

    /// What a merge is to say that does `base_move` with the head at `head`. The caller has locked
    /// `writer`.
    pub(crate) fn plan_kept(&self, base_move: &BaseMove, head: BlockId) -> Kept {
        let before = self.kept();
        let Some(blocks) = self.options.keep_blocks else {
            return before;
        };
        // A head on its way down, or a log that is still replayed, may need what is there.
        if self.target_head.lock().is_some() || self.replaying.lock().is_some() {
            return before;
        }
        let lowest_recent = base_move.recent().iter().map(|block| block.id.number).min();
        let number = head
            .number
            .saturating_sub(blocks)
            .min(base_move.to().number)
            // Branches leave the base's chain below their lowest block.
            .min(lowest_recent.map_or(u64::MAX, |lowest| lowest.saturating_sub(1)))
            .max(self.genesis.number);
        if number < before.number {
            return before;
        }
        // What has left does not come back, however many more are to be spared now.
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

    /// The checkpoint that says `kept` is durable, and so is the one before it: what neither needs
    /// leaves the log. Returns the files that were removed.
    pub(crate) fn remove_unkept(&self, kept: Kept) -> Result<Vec<RemovedLogFile>, StateError> {
        let before = std::mem::replace(&mut self.keeping.lock().newest, kept);
        Ok(self.log.remove_before(before.position)?)
    }

    /// That something needs blocks which are not kept.
    pub(crate) fn not_kept(&self) -> StateError {
        let oldest = self.kept().number;
        StateError::NotKept { oldest }
    }
}

/// Where the records of a file begin.
const fn start_of(file: u32) -> LogPosition {
    LogPosition {
        file,
        ..LogPosition::START
    }
}

//! Which blocks the log keeps: all, or those that [`Options::keep_blocks`](crate::Options) says.
//!
//! ```text
//!   genesis .......... | lowest ... | number ........ base ...... head
//!   whole files leave  |            | can be gone back to
//!                      | position in the log
//! ```
//!
//! Each merge says in its checkpoint from where on the log is kept. Files before that leave it when
//! the *next* checkpoint is durable, so that the last two can both be opened. From the moment a
//! merge has planned what it will say, nothing that needs older blocks gets into the log.
//!
//! A file is passed when all blocks in it, of whatever branch, are old. Where a block was lost and
//! imported again its record comes after those of its children: so files are looked through before
//! they are passed, each once, and not told from where some block is.

use crate::{
    blocks::BaseMove,
    commit::describe,
    db::Inner,
    records::{BlockRecord, CHECKED_HEAD_BYTES, KIND_BLOCK},
    tree::Layer,
};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::{StateError, retried};
use cambium_store::LogPosition;
use std::collections::BTreeMap;

/// No merge looks through more files than this, nor removes more, however long the log is: those
/// who wait for it would wait for that.
const FILES_AT_ONCE: usize = 16;

/// From where on blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The lowest canonical block that can be the head again.
    pub(crate) number: BlockNumber,
    /// The lowest canonical block whose record is in the log:
    /// [`log_spare_blocks`](crate::FileSizes::log_spare_blocks) before that.
    pub(crate) lowest: BlockNumber,
    /// All records from here on are in the log, and among them those of these blocks and of all
    /// recent ones. The beginning of a file.
    pub(crate) position: LogPosition,
}

impl Kept {
    /// All blocks.
    pub(crate) const ALL: Self = Self {
        number: 0,
        lowest: 0,
        position: LogPosition::START,
    };
}

/// What is kept, of an open database.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    /// By the newest checkpoint.
    newest: Kept,
    /// By the one that is being written, if there is one.
    planned: Kept,
    /// The highest block of each file that was looked through: older ones than the newest, which
    /// don't change any more.
    highest: BTreeMap<u32, BlockNumber>,
}

impl Keeping {
    pub(crate) const fn new(newest: Kept) -> Self {
        Self {
            newest,
            planned: newest,
            highest: BTreeMap::new(),
        }
    }
}

impl Inner {
    /// From where on blocks are kept, now or soon.
    pub(crate) fn kept(&self) -> Kept {
        self.keeping.lock().planned
    }

    /// Looks through old files of the log, as far as they may soon be passed. One that can't be read
    /// is not passed.
    pub(crate) fn look_through_old_files(&self) {
        let Some(blocks) = self.options.keep_blocks else {
            return;
        };
        let head = self.current.read().tree.head().block.number;
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
        if self.head_to_be.lock().is_some() || self.replaying.lock().is_some() {
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
    /// leaves the log.
    pub(crate) fn let_go_of_log(&self, kept: Kept, newest: u64) -> Result<(), StateError> {
        let before = std::mem::replace(&mut self.keeping.lock().newest, kept);
        let removed = self.log.remove_before(before.position)?;
        let mut reclaim = self.reclaim.lock();
        for one in removed {
            reclaim.lent.add(newest, one.bytes, one.file);
        }
        Ok(())
    }

    /// Refuses to make a block the head, or to commit one on it, whose way back needs blocks that
    /// are not kept. The caller has locked `writer`.
    pub(crate) fn check_kept(&self, id: BlockId) -> Result<(), StateError> {
        let kept = self.kept();
        if kept == Kept::ALL {
            return Ok(());
        }
        let jump = {
            let current = self.current.read();
            let tree = &current.tree;
            let layer = tree.by_hash(&id.hash);
            // Of what is in memory only that needs the log which hangs on the root from below it.
            layer.map(|layer| {
                tree.chain(layer.id)
                    .find(|layer| tree.is_jump(layer))
                    .cloned()
            })
        };
        let fork = match jump {
            Some(None) => return Ok(()),
            Some(Some(jump)) => self.fork_of_jump(&jump)?,
            None => {
                let tree = self.current.read().tree.clone();
                self.fork_of(&tree, id)?.number
            }
        };
        match fork < kept.number {
            true => Err(self.not_kept()),
            false => Ok(()),
        }
    }

    /// Number of the canonical block that a layer is, or that its block is built on.
    fn fork_of_jump(&self, jump: &Layer) -> Result<BlockNumber, StateError> {
        let BlockId { number, hash } = jump.block;
        let canonical = self.blocks.base_ancestor(number)?;
        Ok(match canonical.is_some_and(|entry| entry.hash == hash) {
            true => number,
            false => number.saturating_sub(1),
        })
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

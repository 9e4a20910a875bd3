//! Retention of blocks: all, or those that [`Options::keep_blocks`](crate::Options) asks for.
//!
//! ```text
//!   genesis .......... | lowest ... | number ........ base ...... head
//!   whole files leave  |            | the head can go back to these
//!                      | position in the log
//! ```
//!
//! Each merge writes into its checkpoint from where on the log is kept. Files before that position
//! are removed when the *next* checkpoint is durable, so that both of the last two can be opened.
//! As soon as a merge has planned that position, nothing that needs older blocks gets into the log.
//!
//! A file can be removed when all blocks in it, on any branch, are old. Where a block was lost and
//! imported again, its record comes after those of its children. So the place of one block proves
//! nothing about a file: each file is read once before it is removed.

use cambium_primitives::BlockNumber;
use cambium_store::LogPosition;
use std::collections::BTreeMap;

/// From where on blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The lowest canonical block that can be the head again.
    pub(crate) number: BlockNumber,
    /// The lowest canonical block whose record is in the log:
    /// [`log_spare_blocks`](crate::FileSizes::log_spare_blocks) below `number`.
    pub(crate) lowest: BlockNumber,
    /// The beginning of a file. The log has all records from here on, among them those of all
    /// blocks from `lowest` on and of all recent blocks.
    pub(crate) position: LogPosition,
}

impl Kept {
    /// Every block is kept.
    pub(crate) const ALL: Self = Self {
        number: 0,
        lowest: 0,
        position: LogPosition::START,
    };
}

/// Retention state of an open database.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    /// Range that the newest checkpoint keeps.
    pub(super) newest: Kept,
    /// Range that the checkpoint being written will keep; equal to `newest` if there is none.
    pub(super) planned: Kept,
    /// The highest block of each file that was read. Only files before the newest, which don't
    /// change any more.
    pub(super) highest: BTreeMap<u32, BlockNumber>,
}

impl Keeping {
    /// The state for a newest checkpoint that keeps `newest`.
    pub(crate) const fn new(newest: Kept) -> Self {
        Self {
            newest,
            planned: newest,
            highest: BTreeMap::new(),
        }
    }

    /// Returns the range that the newest checkpoint keeps.
    pub(crate) const fn newest(&self) -> Kept {
        self.newest
    }
}

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

use cambium_primitives::BlockNumber;
use cambium_store::LogPosition;
use std::collections::BTreeMap;

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
    pub(super) newest: Kept,
    /// By the one that is being written, if there is one.
    pub(super) planned: Kept,
    /// The highest block of each file that was looked through: older ones than the newest, which
    /// don't change any more.
    pub(super) highest: BTreeMap<u32, BlockNumber>,
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

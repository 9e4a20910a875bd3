//! Errors of history: blocks that are not kept, and damaged files, by name.

use alloy_primitives::{Address, B256};
use cambium_disk::DiskError;
use cambium_primitives::{BlockId, BlockNumber, Path};
use cambium_runs::RunError;
use cambium_state::{StateError, StoreError};

/// Error of reading or writing the history. The database itself is sound after any of them.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// An error of the database.
    #[error(transparent)]
    State(#[from] StateError),
    /// An operation of the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The bytes in a file of the history are not those that were written.
    #[error(
        "{file} is damaged at byte {offset}: {what}; the database does not need it. Remove the \
         folder `history`, and `cambium history build` makes it again from the block log"
    )]
    Damaged {
        /// The file's path for display.
        file: String,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// Description of the fault.
        what: String,
    },
    /// A file of the history is missing, or is not the one that the list of runs names.
    #[error(
        "{file} is missing, or another file is in its place; the database does not need it. Remove \
         the folder `history`, and `cambium history build` makes it again from the block log"
    )]
    Missing {
        /// The file's path for display.
        file: String,
    },
    /// The directory has no history.
    #[error(
        "{dir} has no history: `cambium history build` makes one of the blocks that the log keeps"
    )]
    NoHistory {
        /// The database's directory for display.
        dir: String,
    },
    /// The database is one of entries, by keys.
    #[error(
        "a key-value database has no history: old states are read from the block log, as far as it is \
         kept"
    )]
    NoAccounts,
    /// There is a history already.
    #[error("{dir} has a history already, from block {first} on")]
    Exists {
        /// The database's directory for display.
        dir: String,
        /// The oldest block whose state can be read.
        first: BlockNumber,
    },
    /// The history begins at a later block.
    #[error("no history of block {number}: it begins at block {first}")]
    NotKept {
        /// The requested block.
        number: BlockNumber,
        /// The oldest block whose state can be read.
        first: BlockNumber,
    },
    /// The chain has left the block at which the history begins.
    #[error(
        "the history begins at block {first}, which is not canonical any more: remove the folder \
         `history` to begin it anew"
    )]
    Abandoned {
        /// The oldest block of the history.
        first: BlockId,
    },
    /// The history belongs to another database.
    #[error(
        "{file} belongs to the database whose first block is {found}, and this one's is {genesis}"
    )]
    OtherDatabase {
        /// The list of runs, for display.
        file: String,
        /// The first block of the database it was made for.
        found: B256,
        /// The first block of this database.
        genesis: B256,
    },
    /// The history was written by a newer version.
    #[error("{file} was written by a newer Cambium (format {found}, this one reads {supported})")]
    NewerFormat {
        /// The file's path for display.
        file: String,
        /// Format number in the file.
        found: u32,
        /// Format number that this version reads.
        supported: u32,
    },
    /// The block log no longer has the blocks that follow the history's newest.
    #[error(
        "the history ends at block {upto}, and the block log does not have the next one any more \
         ({cause}): remove the folder `history` to begin again at the head"
    )]
    Gap {
        /// The newest block of the history.
        upto: BlockId,
        /// Why the next block can't be read.
        cause: String,
    },
    /// The block log does not have a block from which entries were to be made.
    #[error(
        "block {number} can't be added to the history: the block log does not have it ({cause})"
    )]
    LogEnds {
        /// The block.
        number: BlockNumber,
        /// Why it can't be read.
        cause: String,
    },
    /// A reader would have to hold too much of the block log in memory.
    #[error(
        "the history ends at block {upto}, too far below the head {head} to read the blocks between \
         into memory: `cambium history build` brings it there"
    )]
    Behind {
        /// The newest block of the history.
        upto: BlockId,
        /// The head of the database.
        head: BlockId,
    },
    /// The history is behind, and the state from which it reads is out of the database's reach.
    #[error(
        "the state after block {number} can't be read until the history, which is at block {upto}, has come further: it follows \
         while blocks are imported, or by `cambium history build`"
    )]
    NotYet {
        /// The block whose state was asked for.
        number: BlockNumber,
        /// The newest block of the history.
        upto: BlockId,
    },
    /// The list of files could not be written: whether a crash would leave it or the one before is not
    /// known.
    #[error(
        "no more writes to the history after an earlier failure ({cause}): remove its cause and \
         start again; the database itself is sound"
    )]
    Poisoned {
        /// Message of the first failure.
        cause: String,
    },
    /// A value is not the one that the block log has.
    #[error(
        "the history has another value of {path} before block {number} than the block log. Remove the \
         folder `history`, and `cambium history build` makes it again"
    )]
    Differs {
        /// The block that changed the value.
        number: BlockNumber,
        /// The account or slot.
        path: Path,
    },
    /// The nodes of the history don't belong together.
    #[error(
        "the history's nodes at {path} before block {number} are not those of a block's state. Remove \
         the folder `history`, and `cambium history build` makes it again"
    )]
    BrokenNode {
        /// A block above the one whose state was read.
        number: BlockNumber,
        /// The path of the node.
        path: Path,
    },
    /// The history has values alone.
    #[error(
        "the history has values and no nodes, so it proves nothing: remove the folder `history`, and \
         `cambium history build --history archive` makes one with nodes"
    )]
    NoNodes,
    /// The history was opened for reading alone.
    #[error("the history is open for reading alone")]
    ReadOnly,
}

impl HistoryError {
    /// Names the contract at `address` if its storage is not kept: see [`StateError::at_address`].
    #[must_use]
    pub fn at_address(self, address: Address) -> Self {
        match self {
            Self::State(error) => Self::State(error.at_address(address)),
            other => other,
        }
    }

    /// Whether it is an operation of the disk that failed: another attempt may succeed.
    pub(crate) const fn is_of_disk(&self) -> bool {
        matches!(
            self,
            Self::Disk(_) | Self::State(StateError::Store(StoreError::Disk(_)))
        )
    }
}

impl From<RunError> for HistoryError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Disk(error) => Self::Disk(error),
            RunError::Damaged { file, offset, what } => Self::Damaged { file, offset, what },
            RunError::Missing { file } => Self::Missing { file },
            RunError::NewerFormat {
                file,
                found,
                supported,
            } => Self::NewerFormat {
                file,
                found,
                supported,
            },
            RunError::InUse { dir, pid } => Self::State(StateError::Store(StoreError::InUse {
                dir,
                pid,
                users: None,
            })),
            RunError::Poisoned { cause } => Self::Poisoned { cause },
            RunError::ReadOnly => Self::ReadOnly,
        }
    }
}

//! Errors of an index: missing blocks, and damaged files, by name.

use alloy_primitives::B256;
use cambium_disk::DiskError;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_runs::RunError;
use cambium_state::{StateError, StoreError};

/// Error of reading or writing an index. The database itself is sound after any of them.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// An error of the database.
    #[error(transparent)]
    State(#[from] StateError),
    /// An operation of the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The bytes in a file of the index are not those that were written.
    #[error(
        "{file} is damaged at byte {offset}: {what}; the state does not need it. Remove the folder \
         `index`, and `cambium index build` makes it again of the blocks that the log keeps"
    )]
    Damaged {
        /// The file's path for display.
        file: String,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// Description of the fault.
        what: String,
    },
    /// A file of the index is missing, or is not the one that the list of runs names.
    #[error(
        "{file} is missing, or another file is in its place; the state does not need it. Remove the \
         folder `index`, and `cambium index build` makes it again of the blocks that the log keeps"
    )]
    Missing {
        /// The file's path for display.
        file: String,
    },
    /// The directory has no index.
    #[error(
        "{dir} has no index of blocks, transactions and logs: `cambium index build` makes one of the \
         blocks that the log keeps"
    )]
    NoIndex {
        /// The database's directory for display.
        dir: String,
    },
    /// The chain was opened without an index.
    #[error(
        "hashes and logs are looked up in an index, and the chain was opened without one: give it one with \
         `Chain::with_index`"
    )]
    NotOpen,
    /// There is an index already.
    #[error("{dir} has an index already")]
    Exists {
        /// The database's directory for display.
        dir: String,
    },
    /// The database is one of entries, by keys.
    #[error("a key-value database has no blocks of transactions to index")]
    NoBlocks,
    /// The index belongs to another database.
    #[error(
        "{file} belongs to the database whose first block is {found}, and this one's is {genesis}: remove the \
         folder `index`, and `cambium index build` makes that of this database"
    )]
    OtherDatabase {
        /// The list of runs, for display.
        file: String,
        /// The first block of the database it was made for.
        found: B256,
        /// The first block of this database.
        genesis: B256,
    },
    /// The index was written by a newer version.
    #[error("{file} was written by a newer Cambium (format {found}, this one reads {supported})")]
    NewerFormat {
        /// The file's path for display.
        file: String,
        /// Format number in the file.
        found: u32,
        /// Format number that this version reads.
        supported: u32,
    },
    /// A block in the database is not one that a chain has stored.
    #[error("block {block} in the database can't be read: {why}")]
    Unreadable {
        /// The block.
        block: BlockId,
        /// The cause.
        why: String,
    },
    /// Blocks of such numbers can't be indexed.
    #[error("block {number} can't be indexed: the highest number that can be is 4,294,967,294")]
    TooHigh {
        /// The block.
        number: BlockNumber,
    },
    /// Many blocks are not indexed yet, so what was not found may be there.
    #[error(
        "the index in files ends at block {upto}, too far below the head {head}: `cambium index build` brings it \
         there, unless an import with --index is about to"
    )]
    Behind {
        /// The newest block of the index.
        upto: BlockNumber,
        /// The head of the database.
        head: BlockId,
    },
    /// The blocks asked for are not indexed: they had left the block log before they were to be.
    #[error(
        "block {number} is not in the index: the oldest one from which on all blocks are is {oldest}"
    )]
    NotIndexed {
        /// The block.
        number: BlockNumber,
        /// The oldest block from which on all are indexed.
        oldest: BlockNumber,
    },
    /// The hash was not found, but blocks are missing in which it may be.
    #[error(
        "nothing with that hash is in the index, which does not have all blocks: block {missing} is missing, \
         and the oldest one from which on all are there is {oldest}"
    )]
    Incomplete {
        /// The first block that is missing.
        missing: BlockNumber,
        /// The oldest block from which on all are indexed.
        oldest: BlockNumber,
    },
    /// The chain has left a block while logs were searched up to it.
    #[error("the chain has left block {block} while logs were searched up to it: search again")]
    HeadMoved {
        /// The newest block when the search began.
        block: BlockId,
    },
    /// The receipts of a block are not stored.
    #[error(
        "block {block} has no receipts in the index, and can't be executed for them: the state before it can't \
         be read. Search from a later block on. With a history (`cambium history build`) of states as old, remove \
         the folder `index` and build it again"
    )]
    NoReceipts {
        /// The block.
        block: BlockId,
    },
    /// The list of files could not be written: whether a crash would leave it or the one before is not
    /// known.
    #[error(
        "no more writes to the index after an earlier failure ({cause}): remove its cause and start \
         again; the database itself is sound"
    )]
    Poisoned {
        /// Message of the first failure.
        cause: String,
    },
    /// The index was opened for reading alone.
    #[error("the index is open for reading alone")]
    ReadOnly,
}

impl IndexError {
    /// Whether it is an operation of the disk that failed: another attempt may succeed.
    pub(crate) const fn is_of_disk(&self) -> bool {
        matches!(
            self,
            Self::Disk(_) | Self::State(StateError::Store(StoreError::Disk(_)))
        )
    }
}

impl From<RunError> for IndexError {
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

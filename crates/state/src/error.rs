//! What can go wrong in the engine, by consequence: a caller's mistake leaves the engine as it
//! was; damage on the disk names the file; after a failed write the engine refuses to go on.

use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber, DecodeError, Path};
use cambium_store::StoreError;
use cambium_trie::TrieError;

/// Why the engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The disk or a file on it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Changes or nodes that contradict the trie.
    #[error("state trie: {0}")]
    Trie(#[from] TrieError),
    /// A block to build on that is not kept.
    #[error(
        "block {0} is not in the database, or is on a branch that was given up: import its \
         ancestors first"
    )]
    UnknownBlock(B256),
    /// A height over the head's, or whose block is not kept.
    #[error("no block {number}: the head is {head}")]
    NoSuchBlock {
        /// What was asked for.
        number: BlockNumber,
        /// The head.
        head: BlockId,
    },
    /// A block committed before its parent.
    #[error("block {0} can't be committed before its parent")]
    ParentNotCommitted(BlockId),
    /// A root that is not the block's.
    #[error("state root of block {block}: got {got}, expected {expected}")]
    WrongRoot {
        /// The block.
        block: BlockId,
        /// As computed.
        got: B256,
        /// As claimed.
        expected: B256,
    },
    /// Bytes of a record, page or checkpoint that are not what their checksum promised.
    #[error("{what} is damaged: {source}; `cambium db check` tells how far the damage goes")]
    Damaged {
        /// Which thing.
        what: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// A page that is not the one that the index named.
    #[error(
        "page {place:#x} holds {found}, where the index has {expected}: run `cambium db check`"
    )]
    WrongPage {
        /// Its address.
        place: u64,
        /// Prefix in the page.
        found: Box<Path>,
        /// Prefix by the index.
        expected: Box<Path>,
    },
    /// A node that should have a place and has none, or the like: an engine error, not a user's.
    #[error("engine invariant broken at {path}: {what} is missing")]
    Broken {
        /// Where in the trie.
        path: Path,
        /// What was expected.
        what: &'static str,
    },
    /// A database whose making was cut short.
    #[error("this database was never finished: initialise it again")]
    Unfinished,
    /// A database without a checkpoint, although it had some.
    #[error(
        "{dir} has blocks in its log, but no checkpoint: its files `checkpoint-*` were lost. \
         Restore them from a copy, or remove the directory and import the chain again"
    )]
    CheckpointsLost {
        /// The directory.
        dir: String,
    },
    /// Code that an account names and the code store lacks.
    #[error("no code {0} in the database: run `cambium db check`")]
    MissingCode(B256),
    /// An earlier failure left the engine unsure of what is on the disk.
    #[error("the database stopped after an earlier failure ({0}): open it again")]
    Poisoned(String),
}

impl revm::database_interface::DBErrorMarker for StateError {}

impl StateError {
    /// For damage in a part of the log from which nothing is replayed: it can't be cut off.
    pub(crate) fn beyond_repair(error: Self) -> Self {
        match error {
            Self::Store(StoreError::CorruptLog {
                file, offset, what, ..
            }) => Self::Store(StoreError::Corrupt {
                file,
                offset,
                what,
                advice: "restore the directory from a copy, or import the chain into a new one",
            }),
            error => error,
        }
    }
}

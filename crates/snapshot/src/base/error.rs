//! What can go wrong in the engine, by consequence: a caller's mistake leaves the engine as it
//! was; damage on the disk names the file; after a failed write the engine refuses to go on.

use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber, DecodeError, Path};
use cambium_store::StoreError;
use cambium_trie::{TrieError, UpdateError};

/// Why the engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The disk or a file on it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nodes that contradict each other.
    #[error("state trie: {0}")]
    Trie(#[from] TrieError),
    /// Changes that contradict the state that they are made to.
    #[error("changes that can't be made: {0}")]
    BadChanges(TrieError),
    /// Options that are outside their limits.
    #[error("these options can't be used: {0}")]
    BadOptions(String),
    /// A first block, or what is to be kept with it, that can't be.
    #[error("a database can't begin like this: {0}")]
    BadStart(String),
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
    /// Something that needs blocks which have left the log.
    #[error(
        "this needs blocks before block {oldest}, and they are not kept: `--keep-blocks` says how \
         many are, and only an import from the first block brings older ones back"
    )]
    NotKept {
        /// The oldest block that can be the head again.
        oldest: BlockNumber,
    },
    /// A block whose name does not follow the block that it was executed on.
    #[error(
        "block {block} claims the parent {claimed}, but was executed on block {parent}: its number \
         must be one more than the parent's, and its parent that block"
    )]
    NotAChild {
        /// The block.
        block: BlockId,
        /// The hash that it gives as its parent's.
        claimed: B256,
        /// The block that it was executed on.
        parent: BlockId,
    },
    /// A block that is there already, sealed or committed.
    #[error("block {0} is in the database already: it can't be sealed again")]
    BlockExists(BlockId),
    /// A block or a view of another database.
    #[error("block {0} is of another database than the one that it was given to")]
    OtherDatabase(BlockId),
    /// Code whose bytes have another hash.
    #[error("code given as {expected} has the hash {got}")]
    WrongCode {
        /// As given.
        expected: B256,
        /// As computed.
        got: B256,
    },
    /// An account whose code nobody has.
    #[error(
        "the account at {account} has the code {code_hash}, which is neither in the database nor \
         given with the block"
    )]
    UnknownCode {
        /// keccak(address).
        account: B256,
        /// Hash of the code.
        code_hash: B256,
    },
    /// A state so far from the newest that what lies between does not fit into its memory.
    #[error(
        "the state after block {block} is {distance} blocks from the newest in pages, and what \
         changed since takes more than the {bytes_max} bytes that there are for it: give the \
         database more memory, or let go of other old views"
    )]
    TooFar {
        /// The block.
        block: BlockId,
        /// Blocks between it and the state in pages.
        distance: u64,
        /// What such changes may take now, in bytes.
        bytes_max: u64,
    },
    /// Blocks that are sealed and not committed take too much memory.
    #[error(
        "blocks that are sealed and not committed take {bytes} bytes, and the memory for layers \
         is {bytes_max}: commit some of them, or give the database more memory"
    )]
    NoRoom {
        /// What they take.
        bytes: u64,
        /// What all layers may take.
        bytes_max: u64,
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
    /// A change to a database that is open for reading alone.
    #[error("the database is open for reading alone: nothing can be {0} here")]
    ReadOnly(&'static str),
    /// A database to be closed that somebody uses.
    #[error(
        "the database can't be closed yet: {users} handles, views, sessions or blocks of it are \
         still there, and it is closed with the last of them"
    )]
    StillUsed {
        /// Handles, views, sessions and blocks besides the one that was to be the last.
        users: usize,
    },
    /// Code that an account names and the code store lacks.
    #[error("no code {0} in the database: run `cambium db check`")]
    MissingCode(B256),
    /// An earlier failure left the engine unsure of what is on the disk. What was acknowledged
    /// before is safe.
    #[error("the database stopped after an earlier failure ({0}): open it again")]
    Poisoned(String),
}

impl revm::database_interface::DBErrorMarker for StateError {}

impl StateError {
    /// Whether the disk may give next time what it could not give now.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Store(StoreError::Disk(error)) => {
                !error.is_end_of_file() && !error.is_not_found()
            }
            _ => false,
        }
    }

    /// Whether this says that bytes on the disk are not what was written, or gone: trying again
    /// does not help.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Store(error) => error.is_corruption(),
            Self::Damaged { .. } | Self::WrongPage { .. } | Self::Broken { .. } => true,
            Self::Trie(_) | Self::MissingCode(_) => true,
            _ => false,
        }
    }
}

/// The error of an update of a trie.
pub fn update_error(error: UpdateError<StateError>) -> StateError {
    match error {
        UpdateError::Resolve(error) => error,
        UpdateError::Trie(error) => error.into(),
    }
}

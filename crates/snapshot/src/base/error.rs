//! The engine's errors, classified by consequence: a caller's mistake leaves the engine unchanged;
//! damage on disk names the file; after a failed write the engine refuses further work.

use alloy_primitives::{Address, B256, keccak256};
use cambium_primitives::{BlockId, BlockNumber, DecodeError, Path};
use cambium_store::StoreError;
use cambium_trie::{TrieError, UpdateError};

/// Error of an operation of the engine.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A failed disk operation, or a damaged file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An inconsistent state trie, or leaves that were given out of order.
    #[error("state trie: {0}")]
    Trie(#[from] TrieError),
    /// Changes that contradict the state they apply to, such as slots of an absent account.
    #[error("invalid state changes: {0}")]
    BadChanges(TrieError),
    /// A leaf of another kind than the database has: accounts, or entries of a key-value database.
    #[error("the leaf at {path} can't be in this database, which has {leaves}")]
    WrongLeaf {
        /// Path of the account, or key of the entry.
        path: B256,
        /// Kind of the database's leaves.
        leaves: &'static str,
    },
    /// A value that is stored apart from its leaf, and is not there.
    #[error("the value with hash {hash} is not at its place {place:#x}: run `cambium db check`")]
    MissingValue {
        /// Hash of the value.
        hash: B256,
        /// Where the leaf says that it is.
        place: u64,
    },
    /// A value that is too long to be part of its leaf.
    #[error(
        "the value of key {key} has {len} bytes, which is too long for a leaf: `Session::value` and \
         `Loader::value` store it apart"
    )]
    LongValue {
        /// Key of the entry.
        key: B256,
        /// Length of the value in bytes.
        len: usize,
    },
    /// Slots, or a proof of slots, of a contract whose storage a partial database does not keep.
    #[error(
        "the storage of the contract {} is not kept: this database is partial, and keeps the slots of listed contracts \
         alone, and of others the storage root", contract(.account, .address.as_ref())
    )]
    StorageNotKept {
        /// keccak(address).
        account: B256,
        /// The address, if it is known.
        address: Option<Address>,
    },
    /// Changes of a contract whose storage is not kept, with a storage root that is missing or can't be right.
    #[error("the account with address hash {account}: {what}")]
    StorageRoot {
        /// keccak(address).
        account: B256,
        /// What is wrong.
        what: &'static str,
    },
    /// A storage root that was given with changes is not the one that the slots lead to.
    #[error(
        "the storage root of the account with address hash {account}: got {got}, given was {given}"
    )]
    WrongStorageRoot {
        /// keccak(address).
        account: B256,
        /// The computed root.
        got: B256,
        /// The root that was given.
        given: B256,
    },
    /// Work that needs the storage of all contracts, in a partial database. Contains what needs it.
    #[error(
        "{0} needs the storage of all contracts, and this database is partial: it keeps that of listed contracts alone"
    )]
    NotOnPartial(&'static str),
    /// Options outside their limits.
    #[error("invalid options: {0}")]
    BadOptions(String),
    /// Work that needs the commitment `mpt`, on a chain of another one. Contains what needs it.
    #[error(
        "{0} needs the state root of the `mpt` commitment, and this chain has the `layered` \
         commitment"
    )]
    NotUnderLayered(&'static str),
    /// Work that needs the commitment `layered`, on a chain of another one. Contains what needs it.
    #[error("{0} exists under the `layered` commitment, and this chain has another one")]
    NotUnderMpt(&'static str),
    /// A first block, properties, or a directory that a new database can't be created with.
    #[error("can't create the database: {0}")]
    BadStart(String),
    /// The block to build on is unknown, or on an abandoned branch.
    #[error(
        "block {0} is not in the database, or is on an abandoned branch: import its ancestors \
         first"
    )]
    UnknownBlock(B256),
    /// No block of this number is available: it is above the head, or no longer kept.
    #[error("no block {number}: the head is {head}")]
    NoSuchBlock {
        /// The requested number.
        number: BlockNumber,
        /// The current head.
        head: BlockId,
    },
    /// The operation needs blocks that were removed from the block log.
    #[error(
        "this needs blocks before block {oldest}, and they are not kept: `--keep-blocks` sets how \
         many are, and only an import from the first block restores older ones"
    )]
    NotKept {
        /// The oldest block that an unwind can still reach.
        oldest: BlockNumber,
    },
    /// A block whose number or parent hash does not match the block that it was executed on.
    #[error(
        "block {block} claims the parent {claimed}, but was executed on block {parent}: its parent \
         hash must be that block's, and its number one more"
    )]
    NotAChild {
        /// The rejected block.
        block: BlockId,
        /// The parent hash that it claims.
        claimed: B256,
        /// The block that it was executed on.
        parent: BlockId,
    },
    /// A block that was to become safe or finalized is not on the chain of the head.
    #[error("the {what} block {block} is not an ancestor of the head {head}")]
    NotAnAncestor {
        /// `safe` or `finalized`.
        what: &'static str,
        /// The block that is not on the head's chain.
        block: BlockId,
        /// The block that was to become the head.
        head: BlockId,
    },
    /// A block that was to become safe is below the finalized one.
    #[error("the safe block {safe} is below the finalized block {finalized}, which is safe itself")]
    SafeBelowFinalized {
        /// The block that was to become safe.
        safe: BlockId,
        /// The newest block that is finalized, or was to be.
        finalized: BlockId,
    },
    /// A block that was to become canonical, or finalized, would undo the finalized block.
    #[error(
        "block {block} does not descend from the finalized block {finalized}: to undo that one, set \
         the head to one of its ancestors first"
    )]
    NotOnFinalized {
        /// The block that was to be committed, called finalized, or made the head.
        block: BlockId,
        /// The block that would be undone.
        finalized: BlockId,
    },
    /// A subscriber's cursor from which the chain can't be followed.
    #[error(
        "the chain can't be followed from block {cursor}: {why}; begin again with the state at a block \
         from {oldest} to {head}"
    )]
    CannotFollow {
        /// The block that the subscriber has reached.
        cursor: BlockId,
        /// Reason, as a part of the message.
        why: &'static str,
        /// The oldest canonical block whose state can still be read, and followed from.
        oldest: BlockNumber,
        /// The current head.
        head: BlockId,
    },
    /// The block to seal is already sealed or committed.
    #[error("block {0} is already in the database and can't be sealed again")]
    BlockExists(BlockId),
    /// A block or view that belongs to another database than the one it was passed to.
    #[error("block {0} belongs to another database")]
    OtherDatabase(BlockId),
    /// Contract code whose bytes do not have the hash supplied with them.
    #[error("code supplied for hash {expected} has hash {got}")]
    WrongCode {
        /// The supplied hash.
        expected: B256,
        /// keccak(code).
        got: B256,
    },
    /// An account names code that is neither stored nor supplied.
    #[error(
        "the account with address hash {account} has code hash {code_hash}, but that code is \
         neither in the database nor supplied with the block"
    )]
    UnknownCode {
        /// keccak(address).
        account: B256,
        /// Hash of the missing code.
        code_hash: B256,
    },
    /// A historical state so far from the snapshot that the changes in between exceed the memory
    /// for views of old blocks.
    #[error(
        "the state after block {block} is {distance} blocks from the newest snapshot, and the \
         changes in between exceed the limit of {bytes_max} bytes: give the database more memory, \
         or drop other views of old blocks"
    )]
    TooFar {
        /// The requested block.
        block: BlockId,
        /// Number of blocks between it and the snapshot.
        distance: u64,
        /// Memory available for such changes, in bytes.
        bytes_max: u64,
    },
    /// Sealed blocks would exceed twice the memory for layers, and none was committed while the
    /// caller waited.
    #[error(
        "sealed but uncommitted blocks take {bytes} bytes, and the limit for all layers is \
         {bytes_max}: commit some of them, or give the database more memory"
    )]
    NoRoom {
        /// Memory of the uncommitted blocks, in bytes.
        bytes: u64,
        /// Memory limit of all layers, in bytes.
        bytes_max: u64,
    },
    /// A commit of a block whose parent is not committed.
    #[error("block {0} can't be committed before its parent")]
    ParentNotCommitted(BlockId),
    /// The computed state root differs from the expected one.
    #[error("state root of block {block}: got {got}, expected {expected}")]
    WrongRoot {
        /// The block whose root was computed.
        block: BlockId,
        /// The computed root.
        got: B256,
        /// The root that the header or the checkpoint claims.
        expected: B256,
    },
    /// A record, page or section whose checksum is right, but which can't be decoded.
    #[error("{what} is damaged: {source}; run `cambium db check` to find all damage")]
    Damaged {
        /// The damaged object: a record, section, page or leaf.
        what: String,
        /// Why it can't be decoded.
        source: DecodeError,
    },
    /// A page of another subtrie than the one that the index expects at its address.
    #[error(
        "page {place:#x} has the prefix {found}, but the index expects {expected}: run \
         `cambium db check`"
    )]
    WrongPage {
        /// Address of the page.
        place: u64,
        /// Prefix that the page has.
        found: Box<Path>,
        /// Prefix that the index expects.
        expected: Box<Path>,
    },
    /// A broken invariant, such as a blinded node without a page address: a bug in the engine, or
    /// damage that no checksum covers.
    #[error("engine invariant broken at {path}: {what} is missing")]
    Broken {
        /// Path in the state trie.
        path: Path,
        /// The object that is missing there.
        what: &'static str,
    },
    /// A database whose creation was interrupted.
    #[error("the creation of this database was interrupted: initialise it again")]
    Unfinished,
    /// A copy whose backup was interrupted: something may be missing in it or beside it.
    #[error(
        "{dir} is a copy that was not finished: a backup to it was interrupted. Remove the directory, and back up again"
    )]
    UnfinishedBackup {
        /// The directory.
        dir: String,
    },
    /// A database that has lost all its checkpoints.
    #[error(
        "{dir} has blocks in its log, but no checkpoint: its files `checkpoint-*` were lost. \
         Restore them from a copy, or remove the directory and import the chain again"
    )]
    CheckpointsLost {
        /// The database directory.
        dir: String,
    },
    /// A write to a database that was opened read-only. Contains the refused operation as a
    /// participle, such as "committed".
    #[error("the database is open read-only: nothing can be {0}")]
    ReadOnly(&'static str),
    /// An attempt to close a database that is still in use.
    #[error(
        "the database can't be closed yet: {users} handles, views, sessions or blocks of it are \
         still in use, and it closes when the last of them is dropped"
    )]
    StillUsed {
        /// Number of handles, views, sessions and blocks besides the handle that was to be closed.
        users: usize,
    },
    /// An account names code that is missing from the code file. Contains the code hash.
    #[error("code {0} is missing from the database: `cambium db repair` says what brings it back")]
    MissingCode(B256),
    /// An earlier failure left it unknown what is on disk, so that the engine refuses further work.
    /// Blocks acknowledged before that are safe. Contains the failure.
    #[error("the database stopped after an earlier failure ({0}): open it again")]
    Poisoned(String),
}

impl revm::database_interface::DBErrorMarker for StateError {}

impl StateError {
    /// The same error with another remedy, if it names a damaged file.
    #[must_use]
    pub fn with_advice(self, advice: &'static str) -> Self {
        match self {
            Self::Store(StoreError::Corrupt {
                file, offset, what, ..
            }) => Self::Store(StoreError::Corrupt {
                file,
                offset,
                what,
                advice,
            }),
            other => other,
        }
    }

    /// Names the contract at `address`, of which a read or proof was asked for, if its storage is not kept.
    #[must_use]
    pub fn at_address(self, address: Address) -> Self {
        match self {
            Self::StorageNotKept { account, .. } if account == keccak256(address) => {
                let address = Some(address);
                Self::StorageNotKept { account, address }
            }
            other => other,
        }
    }

    /// Whether the error may be transient: trying the same disk operation again may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(StoreError::Disk(error)) => {
                !error.is_end_of_file() && !error.is_not_found()
            }
            _ => false,
        }
    }

    /// Whether a record of the block log that is needed is one that a repair has cut out.
    pub const fn is_lost_record(&self) -> bool {
        matches!(self, Self::Store(StoreError::LostRecord { .. }))
    }

    /// Whether the block log has no such block any more: it is not kept, or a repair has cut its record out.
    pub const fn has_left_log(&self) -> bool {
        matches!(self, Self::NotKept { .. }) || self.is_lost_record()
    }

    /// Whether the error reports missing or corrupt data on disk, which trying again can't fix.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Store(error) => error.is_corruption(),
            Self::Damaged { .. } | Self::WrongPage { .. } | Self::Broken { .. } => true,
            Self::Trie(_) | Self::MissingCode(_) => true,
            _ => false,
        }
    }
}

/// Names a contract by its address if that is known, and by its hash.
fn contract(account: &B256, address: Option<&Address>) -> String {
    match address {
        Some(address) => format!("{address} (address hash {account})"),
        None => format!("with address hash {account}"),
    }
}

/// Converts the error of a trie update to a [`StateError`].
pub fn update_error(error: UpdateError<StateError>) -> StateError {
    match error {
        UpdateError::Resolve(error) => error,
        UpdateError::Trie(error) => error.into(),
    }
}

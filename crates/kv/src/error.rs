//! The store's errors, classified by consequence: a transaction that lost can be run again; a
//! caller's mistake is refused before anything is written; after a failed write or sync the store
//! refuses further commits until it is opened again.

use crate::recent::Conflict;
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::StateError;

/// Error of an operation of the store.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The transaction conflicts with another one, and wrote nothing: begin it again.
    #[error("the transaction can't be committed: {0}; begin it again")]
    Conflict(Box<Conflict>),
    /// The transaction's snapshot is so old that it is not known what was written since.
    #[error(
        "the transaction began at commit {snapshot}, and what was written since is known from commit \
         {oldest} on: begin it again, or keep more (`conflict_window_bytes`)"
    )]
    SnapshotTooOld {
        /// The commit at which the transaction began.
        snapshot: BlockNumber,
        /// The oldest commit at which it could have begun.
        oldest: BlockNumber,
    },
    /// The transaction's snapshot is not committed: it was rolled back, or is a prepared result
    /// that lost its place.
    #[error(
        "the transaction began at commit {0}, which is neither the newest commit nor before it: it \
         was rolled back, or never committed"
    )]
    SnapshotNotCommitted(BlockId),
    /// A group of transactions that are not all built on the same prepared result.
    #[error(
        "the transaction began at commit {snapshot}, and others of its group at {parent}, which is \
         prepared and not committed: a group on a prepared result must begin there"
    )]
    OtherParent {
        /// Where the transaction began.
        snapshot: BlockId,
        /// The prepared result on which the group is built.
        parent: BlockId,
    },
    /// A prepared result whose parent is not the newest commit.
    #[error(
        "commit {commit} is built on {parent}, and the newest commit is {newest}: commit its parent \
         first, or run its transactions again"
    )]
    NotNext {
        /// The prepared result.
        commit: BlockId,
        /// Hash of its parent.
        parent: B256,
        /// The newest commit.
        newest: BlockId,
    },
    /// The value is larger than any store's values.
    #[error("the value at {key:#x} has {len} bytes, and values have at most {max}")]
    ValueTooLarge {
        /// Key of the value.
        key: B256,
        /// Its length in bytes.
        len: usize,
        /// Largest length, in bytes.
        max: usize,
    },
    /// A transaction or a prepared result of another store.
    #[error("commit {0} belongs to another store")]
    OtherStore(BlockId),
    /// A database of accounts, and not of entries.
    #[error("the database has accounts, not entries: it is a chain's, and no key-value store")]
    NotKeyValue,
    /// A rollback of more commits than there are.
    #[error("can't roll back {commits} commits: the newest commit is {newest}")]
    RollbackTooFar {
        /// Number of commits to roll back.
        commits: u64,
        /// Number of the newest commit.
        newest: BlockNumber,
    },
    /// No commit that is kept has this root.
    #[error("no commit back to {oldest} has the root {root:#x}")]
    UnknownRoot {
        /// The root.
        root: B256,
        /// The oldest commit that was looked at.
        oldest: BlockNumber,
    },
    /// No commit of this number is there: it is above the newest.
    #[error("no commit {number}: the newest is {newest}")]
    NoSuchCommit {
        /// The number.
        number: BlockNumber,
        /// The newest commit.
        newest: BlockNumber,
    },
    /// A commit that has left the log.
    #[error(
        "this needs commits before commit {oldest}, and they are not kept: the option `keep_commits` sets how many are"
    )]
    NotKept {
        /// The oldest commit that a rollback can still reach.
        oldest: BlockNumber,
    },
    /// An error of the engine below: a failed disk, or damage.
    #[error(transparent)]
    State(StateError),
}

impl From<StateError> for KvError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::NoSuchBlock { number, head } => Self::NoSuchCommit {
                number,
                newest: head.number,
            },
            StateError::NotKept { oldest } => Self::NotKept { oldest },
            error => Self::State(error),
        }
    }
}

impl KvError {
    /// Whether the transaction lost against another one: run again from its beginning, it may
    /// succeed.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::SnapshotTooOld { .. })
    }
}

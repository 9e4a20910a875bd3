//! Errors by what their caller does about them.

use cambium_history::HistoryError;
use cambium_kv::KvError;
use cambium_state::{StateError, StoreError};

/// Class of an error, by what the caller does about it. The bindings have a status or an exception for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The transaction lost against another one, or is too old to be validated: run it again from its beginning.
    Conflict,
    /// An argument, an option or a change is wrong. Nothing was done.
    InvalidArgument,
    /// The commit or block does not exist, or is not kept any more.
    NotKept,
    /// There is no database, there is one already, another process has it open, or it is of another kind or version.
    Unavailable,
    /// A write through a handle that was opened read-only.
    ReadOnly,
    /// The disk failed.
    Io,
    /// Data on the disk is damaged. The message names the file and the way back.
    Damaged,
}

impl From<&KvError> for ErrorClass {
    fn from(error: &KvError) -> Self {
        match error {
            KvError::State(error) => error.into(),
            error if error.is_retryable() => Self::Conflict,
            KvError::SnapshotNotCommitted(_) | KvError::NotNext { .. } => Self::Conflict,
            KvError::RollbackTooFar { .. }
            | KvError::UnknownRoot { .. }
            | KvError::NoSuchCommit { .. }
            | KvError::NotKept { .. } => Self::NotKept,
            KvError::NotKeyValue => Self::Unavailable,
            _ => Self::InvalidArgument,
        }
    }
}

impl From<&StateError> for ErrorClass {
    fn from(error: &StateError) -> Self {
        match error {
            StateError::ReadOnly(_) => Self::ReadOnly,
            StateError::NoSuchBlock { .. }
            | StateError::NotKept { .. }
            | StateError::StorageNotKept { .. }
            | StateError::UnknownBlock(_)
            | StateError::TooFar { .. } => Self::NotKept,
            StateError::BadOptions(_)
            | StateError::WrongLeaf { .. }
            | StateError::StorageRoot { .. }
            | StateError::WrongStorageRoot { .. }
            | StateError::BadChanges(_) => Self::InvalidArgument,
            StateError::BadStart(_)
            | StateError::Unfinished
            | StateError::UnfinishedBackup { .. }
            | StateError::NotUnderLayered(_)
            | StateError::NotUnderMpt(_)
            | StateError::NotOnPartial(_)
            | StateError::NoRoom { .. } => Self::Unavailable,
            // A missing directory is no damage.
            StateError::Store(
                StoreError::NotADatabase { .. }
                | StoreError::AlreadyADatabase { .. }
                | StoreError::NewerFormat { .. }
                | StoreError::OlderFormat { .. }
                | StoreError::InUse { .. },
            ) => Self::Unavailable,
            error if error.is_damage() => Self::Damaged,
            StateError::CheckpointsLost { .. } | StateError::MissingValue { .. } => Self::Damaged,
            _ => Self::Io,
        }
    }
}

impl From<&HistoryError> for ErrorClass {
    fn from(error: &HistoryError) -> Self {
        match error {
            HistoryError::State(error) => error.into(),
            HistoryError::NotKept { .. } | HistoryError::NoNodes => Self::NotKept,
            HistoryError::Damaged { .. } | HistoryError::Missing { .. } => Self::Damaged,
            HistoryError::Disk(_) => Self::Io,
            _ => Self::Unavailable,
        }
    }
}

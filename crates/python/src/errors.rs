//! Exceptions, classified by what their catcher does. Each has the engine's message.

use cambium::{HistoryError, StateError, db::StoreError};
use cambium_kv::{KvError, VerifyError};
use pyo3::{
    PyErr, create_exception,
    exceptions::{PyException, PyValueError},
};

create_exception!(
    cambium,
    CambiumError,
    PyException,
    "What all errors of Cambium are."
);
create_exception!(
    cambium,
    ConflictError,
    CambiumError,
    "The transaction lost against another one, or is too old to be validated. Nothing of it was \
     written: run it again from its beginning."
);
create_exception!(
    cambium,
    NotKeptError,
    CambiumError,
    "The commit or block does not exist, or is not kept any more."
);
create_exception!(
    cambium,
    UnavailableError,
    CambiumError,
    "There is no database, there is one already, another process has it open, or it is of another \
     kind or version; or the handle is closed."
);
create_exception!(
    cambium,
    ReadOnlyError,
    CambiumError,
    "A write through a handle that was opened read-only."
);
create_exception!(
    cambium,
    DiskError,
    CambiumError,
    "The disk failed. After a failed write the store refuses further commits until it is opened \
     again; what was committed before is safe."
);
create_exception!(
    cambium,
    DamagedError,
    CambiumError,
    "Data on the disk is damaged; the message names the file and says what to do."
);
create_exception!(
    cambium,
    ProofError,
    CambiumError,
    "The proof does not show what it claims."
);

/// An error on its way to Python.
pub(crate) enum Failure {
    Kv(KvError),
    State(StateError),
    History(HistoryError),
    Verify(VerifyError),
    /// A handle that is closed, or a transaction that has ended.
    Closed(&'static str),
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        Self::Kv(error)
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        Self::History(error)
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        Self::Verify(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Kv(error) => of_kv(&error),
            Failure::State(error) => of_state(&error),
            Failure::History(error) => of_history(&error),
            Failure::Verify(error) => ProofError::new_err(error.to_string()),
            Failure::Closed(what) => UnavailableError::new_err(what),
        }
    }
}

fn of_kv(error: &KvError) -> PyErr {
    let message = error.to_string();
    match error {
        KvError::State(error) => of_state(error),
        error if error.is_retryable() => ConflictError::new_err(message),
        KvError::SnapshotNotCommitted(_) | KvError::NotNext { .. } => {
            ConflictError::new_err(message)
        }
        KvError::RollbackTooFar { .. }
        | KvError::UnknownRoot { .. }
        | KvError::NoSuchCommit { .. }
        | KvError::NotKept { .. } => NotKeptError::new_err(message),
        KvError::NotKeyValue => UnavailableError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

fn of_state(error: &StateError) -> PyErr {
    let message = error.to_string();
    match error {
        StateError::ReadOnly(_) => ReadOnlyError::new_err(message),
        StateError::NoSuchBlock { .. }
        | StateError::NotKept { .. }
        | StateError::UnknownBlock(_)
        | StateError::TooFar { .. } => NotKeptError::new_err(message),
        StateError::BadOptions(_) | StateError::WrongLeaf { .. } | StateError::BadChanges(_) => {
            PyValueError::new_err(message)
        }
        StateError::BadStart(_)
        | StateError::Unfinished
        | StateError::UnfinishedBackup { .. }
        | StateError::NotUnderLayered(_)
        | StateError::NotUnderMpt(_)
        | StateError::NoRoom { .. }
        | StateError::Store(
            StoreError::NotADatabase { .. }
            | StoreError::AlreadyADatabase { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::OlderFormat { .. }
            | StoreError::InUse { .. },
        ) => UnavailableError::new_err(message),
        error if error.is_damage() => DamagedError::new_err(message),
        StateError::CheckpointsLost { .. } | StateError::MissingValue { .. } => {
            DamagedError::new_err(message)
        }
        _ => DiskError::new_err(message),
    }
}

fn of_history(error: &HistoryError) -> PyErr {
    let message = error.to_string();
    match error {
        HistoryError::State(error) => of_state(error),
        HistoryError::NotKept { .. } | HistoryError::NoNodes => NotKeptError::new_err(message),
        HistoryError::Damaged { .. } | HistoryError::Missing { .. } => {
            DamagedError::new_err(message)
        }
        HistoryError::Disk(_) => DiskError::new_err(message),
        _ => UnavailableError::new_err(message),
    }
}

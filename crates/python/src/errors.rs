//! Exceptions, classified by what their catcher does. Each has the engine's message.

use cambium::{HistoryError, StateError, db::ErrorClass};
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
    Classed(ErrorClass, String),
    Verify(VerifyError),
    /// A handle that is closed, or a transaction that has ended.
    Closed(&'static str),
}

impl From<KvError> for Failure {
    fn from(error: KvError) -> Self {
        Self::Classed(ErrorClass::from(&error), error.to_string())
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::Classed(ErrorClass::from(&error), error.to_string())
    }
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        Self::Classed(ErrorClass::from(&error), error.to_string())
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
            Failure::Classed(class, message) => match class {
                ErrorClass::Conflict => ConflictError::new_err(message),
                ErrorClass::InvalidArgument => PyValueError::new_err(message),
                ErrorClass::NotKept => NotKeptError::new_err(message),
                ErrorClass::Unavailable => UnavailableError::new_err(message),
                ErrorClass::ReadOnly => ReadOnlyError::new_err(message),
                ErrorClass::Damaged => DamagedError::new_err(message),
                _ => DiskError::new_err(message),
            },
            Failure::Verify(error) => ProofError::new_err(error.to_string()),
            Failure::Closed(what) => UnavailableError::new_err(what),
        }
    }
}

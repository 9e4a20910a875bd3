//! Fail-stop: after a failed write or sync the engine no longer knows what is on the disk, and
//! rejects all further work until it is opened again.

use cambium_snapshot::StateError;
use std::sync::OnceLock;

/// The first failure after which the state of the disk is unknown, if there was one.
#[derive(Default)]
pub(crate) struct Health {
    poisoned: OnceLock<String>,
}

impl Health {
    /// Fails with [`StateError::Poisoned`] once a failure was recorded.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        match self.poisoned.get() {
            Some(why) => Err(StateError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// Records an error, if `result` is one, so that all later checks fail.
    pub(crate) fn poison<T>(
        &self,
        result: Result<T, impl Into<StateError>>,
    ) -> Result<T, StateError> {
        result.map_err(|error| {
            let error = error.into();
            let _ = self.poisoned.set(error.to_string());
            error
        })
    }
}

//! Whether the engine is sure of what is on the disk.

use cambium_snapshot::StateError;
use std::sync::OnceLock;

/// The first failure that left the disk in doubt, if there was one: the engine refuses to go on then.
#[derive(Default)]
pub(crate) struct Health {
    poisoned: OnceLock<String>,
}

impl Health {
    /// Refuses to go on after a failure that left the disk in doubt.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        match self.poisoned.get() {
            Some(why) => Err(StateError::Poisoned(why.clone())),
            None => Ok(()),
        }
    }

    /// Marks the engine as unsure of the disk if this is an error.
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

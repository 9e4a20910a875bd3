//! Fail-stop: after a failed write or sync, no more writes.

use crate::StoreError;
use std::sync::OnceLock;

/// Remembers the first failure of a part of the store.
///
/// After a failed sync the system may have dropped what was written and say nothing of it when
/// asked again (on Linux the pages are marked clean). Going on would acknowledge what is lost.
#[derive(Debug)]
pub(crate) struct Poison {
    part: &'static str,
    cause: OnceLock<String>,
}

impl Poison {
    pub(crate) const fn new(part: &'static str) -> Self {
        Self {
            part,
            cause: OnceLock::new(),
        }
    }

    /// An error after a failure.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.cause.get() {
            Some(cause) => Err(StoreError::Poisoned {
                part: self.part,
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Runs a step that changes what is on disk, unless an earlier one failed.
    pub(crate) fn guard<T>(
        &self,
        step: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check()?;
        step().inspect_err(|e| _ = self.cause.set(e.to_string()))
    }
}

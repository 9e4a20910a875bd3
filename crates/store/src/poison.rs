//! Fail-stop: after a failed write or sync, or a panic in the middle of one, no more writes.

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
        /// Of a step that panics it is not known how far it came.
        struct Step<'a> {
            poison: &'a Poison,
            is_over: bool,
        }

        impl Drop for Step<'_> {
            fn drop(&mut self) {
                if !self.is_over {
                    let _ = self.poison.cause.set("a panic".to_owned());
                }
            }
        }

        self.check()?;
        let mut guarded = Step {
            poison: self,
            is_over: false,
        };
        let done = step();
        guarded.is_over = true;
        done.inspect_err(|e| _ = self.cause.set(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn after_a_panic_nothing_is_written() {
        let poison = Poison::new("log");
        assert!(poison.guard(|| Ok(())).is_ok());
        let step = || poison.guard(|| -> Result<(), StoreError> { panic!("in a step") });
        assert!(catch_unwind(AssertUnwindSafe(step)).is_err());
        let error = poison.guard(|| Ok(())).unwrap_err().to_string();
        assert!(error.contains("no more writes to the log") && error.contains("a panic"));
    }
}

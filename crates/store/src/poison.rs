//! Fail-stop for writers: after a failed write or sync, or a panic during one, nothing more is
//! written.

use crate::StoreError;
use std::sync::OnceLock;

/// Records the first failure of a component and refuses all later writes.
///
/// After a failed sync the operating system may have dropped the unwritten data without reporting
/// it again (Linux marks the pages clean). A later sync that succeeds would acknowledge data that
/// is lost.
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

    /// Returns [`StoreError::Poisoned`] if an earlier step has failed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.cause.get() {
            Some(cause) => Err(StoreError::Poisoned {
                part: self.part,
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Runs a step that changes files, unless an earlier step has failed. An error or a panic in
    /// the step poisons the component.
    pub(crate) fn guard<T>(
        &self,
        step: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        /// Poisons the component if the step panics: how much of it was done is unknown.
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

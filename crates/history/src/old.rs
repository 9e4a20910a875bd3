//! What runs say of the state at an old block.

use crate::{
    HistoryError,
    entry::{Key, ValueVisitor},
    runs::{LiveRun, Run, Runs},
};
use cambium_primitives::{BlockId, DecodeError};
use std::sync::Arc;

/// An old block, and the runs that tell what has changed since.
#[derive(Clone)]
pub(crate) struct Old {
    pub(crate) runs: Arc<Runs>,
    pub(crate) block: BlockId,
}

impl Old {
    /// The runs that have blocks above this one, oldest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = LiveRun> {
        let number = self.block.number;
        self.runs.all().filter(move |run| run.last > number)
    }

    /// The value of a key, if it has changed since.
    pub(crate) fn find<T>(
        &self,
        key: &Key,
        decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, HistoryError> {
        let from = self.block.number + 1;
        for LiveRun { run, .. } in self.runs() {
            // An entry of a block that is not canonical any more tells the value at the fork, which is
            // the value here, too: had it changed between, that entry would come first.
            match &run {
                Run::Memory(run) => {
                    if let Some(value) = run.find(key, from) {
                        let value = decode(value).map(Some);
                        return value.map_err(|error| bad_value(None, &error));
                    }
                }
                Run::File(run) => {
                    if let Some(value) = run.find(key, from)? {
                        let value = decode(&value).map(Some);
                        return value.map_err(|error| bad_value(Some(run.path()), &error));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Visits what a key had before each change since, oldest first, until `visit` breaks.
    pub(crate) fn each(&self, key: &Key, visit: ValueVisitor<'_>) -> Result<(), HistoryError> {
        let from = self.block.number + 1;
        for LiveRun { run, .. } in self.runs() {
            match &run {
                Run::Memory(run) => {
                    for value in run.find_all(key, from) {
                        let outcome = visit(value).map_err(|error| bad_value(None, &error))?;
                        if outcome.is_break() {
                            return Ok(());
                        }
                    }
                }
                Run::File(run) => {
                    if run.each(key, from, visit)?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The error for a value that is none, in a page whose checksum is right.
pub(crate) fn bad_value(file: Option<&str>, error: &DecodeError) -> HistoryError {
    HistoryError::Damaged {
        file: file.unwrap_or("a run in memory").to_owned(),
        offset: 0,
        what: error.what.to_owned(),
    }
}

//! The preimages of several runs as one sequence, each once.

use crate::{
    PreimagesError,
    kind::{Entry, Kind},
    run::{Cursor, RunFile},
};
use std::sync::Arc;

/// The preimages of one kind of several runs, sorted by their hashes.
pub(crate) struct Merged {
    cursors: Vec<Cursor>,
}

impl Merged {
    pub(crate) fn new(runs: &[Arc<RunFile>], kind: Kind) -> Result<Self, PreimagesError> {
        let cursors = runs.iter().map(|run| Cursor::new(run.clone(), kind));
        let cursors = cursors.collect::<Result<_, _>>()?;
        Ok(Self { cursors })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry>, PreimagesError> {
        let least = self.cursors.iter().filter_map(Cursor::entry).min().copied();
        let Some(least) = least else {
            return Ok(None);
        };
        for cursor in &mut self.cursors {
            if cursor.entry() == Some(&least) {
                cursor.advance()?;
            }
        }
        Ok(Some(least))
    }
}

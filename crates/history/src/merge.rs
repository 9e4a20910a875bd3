//! Merging runs into one.

use crate::{
    HistoryError,
    entry::{Entry, number_of},
    memory_run::MemoryRun,
    run::reader::FileCursor,
    runs::{LiveRun, Run},
};
use cambium_primitives::BlockNumber;
use std::sync::Arc;

enum Cursor {
    Memory(Arc<MemoryRun>, usize),
    File(FileCursor),
}

impl Cursor {
    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Self::Memory(run, at) => run.entry(*at),
            Self::File(cursor) => cursor.entry(),
        }
    }

    fn advance(&mut self) -> Result<(), HistoryError> {
        match self {
            Self::Memory(_, at) => {
                *at += 1;
                Ok(())
            }
            Self::File(cursor) => cursor.advance(),
        }
    }
}

/// The entries of several runs in one order, without dead ones.
pub(crate) struct MergedRuns {
    cursors: Vec<(Cursor, BlockNumber)>,
    /// Index of the cursor with the least entry.
    least: Option<usize>,
}

impl MergedRuns {
    /// The entries of `runs` from `position` on.
    pub(crate) fn new<'a>(
        runs: impl IntoIterator<Item = &'a LiveRun>,
        position: &[u8],
    ) -> Result<Self, HistoryError> {
        let mut cursors = Vec::new();
        for LiveRun { run, last } in runs {
            let cursor = match run {
                Run::Memory(run) => Cursor::Memory(run.clone(), run.seek(position)),
                Run::File(run) => Cursor::File(run.cursor(position)?),
            };
            cursors.push((cursor, *last));
        }
        let mut merged = Self {
            cursors,
            least: None,
        };
        for index in 0..merged.cursors.len() {
            merged.skip_dead(index)?;
        }
        merged.find_least();
        Ok(merged)
    }

    fn skip_dead(&mut self, index: usize) -> Result<(), HistoryError> {
        let (cursor, last) = &mut self.cursors[index];
        while cursor
            .entry()
            .is_some_and(|entry| number_of(entry.position) > *last)
        {
            cursor.advance()?;
        }
        Ok(())
    }

    fn find_least(&mut self) {
        let entries = self.cursors.iter().enumerate();
        let entries = entries.filter_map(|(index, (cursor, _))| Some((cursor.entry()?, index)));
        self.least = entries.min().map(|(_, index)| index);
    }

    /// The least entry; `None` at the end.
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        self.cursors[self.least?].0.entry()
    }

    pub(crate) fn advance(&mut self) -> Result<(), HistoryError> {
        if let Some(least) = self.least {
            self.cursors[least].0.advance()?;
            self.skip_dead(least)?;
            self.find_least();
        }
        Ok(())
    }
}

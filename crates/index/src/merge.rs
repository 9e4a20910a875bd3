//! The entries of several runs as one sequence.

use crate::{
    IndexError,
    entry::{Entry, Kind},
    keeper::LiveRun,
    run::reader::Cursor,
};

/// The entries of one kind of several runs, sorted, without those of dead blocks.
pub(crate) struct Merged {
    /// Each with the last block that counts.
    cursors: Vec<(Cursor, u32)>,
}

impl Merged {
    pub(crate) fn new(runs: &[LiveRun], kind: Kind) -> Result<Self, IndexError> {
        let cursors = runs.iter().map(|run| {
            // Numbers of indexed blocks have 32 bits.
            Ok((run.run.scan(kind)?, run.last as u32))
        });
        let cursors = cursors.collect::<Result<_, IndexError>>()?;
        Ok(Self { cursors })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry>, IndexError> {
        let mut least: Option<(Entry, usize)> = None;
        for (index, (cursor, last)) in self.cursors.iter_mut().enumerate() {
            while cursor.entry().is_some_and(|entry| entry.block > *last) {
                cursor.advance()?;
            }
            if let Some(entry) = cursor.entry()
                && least.is_none_or(|(other, _)| entry < other)
            {
                least = Some((entry, index));
            }
        }
        let Some((entry, index)) = least else {
            return Ok(None);
        };
        self.cursors[index].0.advance()?;
        Ok(Some(entry))
    }
}

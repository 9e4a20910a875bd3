//! The report on opening a database, and the last step of opening: settling. Once everything is
//! open and checked, settling sets damaged checkpoints aside, removes remains of crashes, and makes
//! the files ready for writing.

use crate::engine::parts::Engine;
use alloy_primitives::{B256, Bytes};
use cambium_snapshot::{StateError, remove_spilled};
use cambium_store::{StoreError, create_readers_dir, quarantine};

/// Findings and actions of opening a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Number of blocks of the log that were replayed, since the snapshot did not have them.
    pub replayed_blocks: usize,
    /// Number of records of the log that could not be applied: for example, a record that can't be
    /// decoded, or one that makes a lost block the head. Blocks above the head may be lost.
    pub skipped_records: usize,
    /// Messages about everything that was dropped, rebuilt or skipped, and everything that can't be
    /// read.
    pub notes: Vec<String>,
}

/// Changes to the files that wait until everything is open.
#[derive(Default)]
pub(crate) struct Unsettled {
    /// Damaged checkpoints, which are to be set aside.
    pub(crate) aside: Vec<u64>,
    /// Codes of replayed blocks, which are to be stored.
    pub(crate) codes: Vec<(B256, Bytes)>,
}

impl Engine {
    /// Makes the files ready for writing. Everything is open and was checked.
    pub(crate) fn settle(&self, unsettled: &mut Unsettled) -> Result<(), StateError> {
        if self.journal.is_read_only() {
            if let Some(values) = &self.store.values {
                values.segments.refresh()?;
            }
            // A reader's codes stay in memory.
            return self.settle_codes(unsettled);
        }
        if !unsettled.codes.is_empty() {
            self.store.codes.check()?;
        }
        remove_spilled(&*self.store.disk).map_err(StoreError::from)?;
        quarantine(&*self.store.disk, &std::mem::take(&mut unsettled.aside))?;
        self.store.pages.segments.settle()?;
        self.settle_codes(unsettled)?;
        if let Some(values) = &self.store.values {
            values.segments.settle()?;
        }
        self.journal.log.settle()?;
        create_readers_dir(&*self.store.disk);
        Ok(())
    }

    /// Makes the file of codes ready for writing, and stores the codes of replayed blocks.
    fn settle_codes(&self, unsettled: &mut Unsettled) -> Result<(), StateError> {
        self.store.codes.settle()?;
        for (hash, code) in unsettled.codes.drain(..) {
            self.store.codes.put(hash, &code)?;
        }
        Ok(())
    }
}

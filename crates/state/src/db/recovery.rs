//! What opening finds, and does when all is open.

use crate::engine::parts::Engine;
use alloy_primitives::{B256, Bytes};
use cambium_snapshot::{StateError, remove_spilled};
use cambium_store::{StoreError, make_room_for_readers, set_aside};

/// What opening found that its owner should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Blocks taken from the log, which were not in the snapshot yet.
    pub replayed_blocks: usize,
    /// Records of the log that were passed over, since what they rely on is not there: blocks above
    /// the head may be lost.
    pub passed_over: usize,
    /// What was dropped, rebuilt or passed over, and what can't be read, in words.
    pub notes: Vec<String>,
}

/// What is left to be done once all is open.
#[derive(Default)]
pub(crate) struct Unsettled {
    /// Checkpoints that are damaged.
    pub(crate) aside: Vec<u64>,
    /// Codes of replayed blocks.
    pub(crate) codes: Vec<(B256, Bytes)>,
}

impl Engine {
    /// Makes what was looked at ready to be written to: all is open.
    pub(crate) fn settle(&self, unsettled: &mut Unsettled) -> Result<(), StateError> {
        if self.journal.is_read_only() {
            // What is written of them stays in memory.
            return self.settle_codes(unsettled);
        }
        if !unsettled.codes.is_empty() {
            self.store.codes.check()?;
        }
        remove_spilled(&*self.store.disk).map_err(StoreError::from)?;
        set_aside(&*self.store.disk, &std::mem::take(&mut unsettled.aside))?;
        self.store.pages.segments.settle()?;
        self.settle_codes(unsettled)?;
        self.journal.log.settle()?;
        make_room_for_readers(&*self.store.disk);
        Ok(())
    }

    fn settle_codes(&self, unsettled: &mut Unsettled) -> Result<(), StateError> {
        self.store.codes.settle()?;
        for (hash, code) in unsettled.codes.drain(..) {
            self.store.codes.put(hash, &code)?;
        }
        Ok(())
    }
}

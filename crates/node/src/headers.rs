//! Headers of the blocks that were asked for last: every call of a contract needs the header of its block, which is read from the
//! disk with the whole block.

use alloy_consensus::Header;
use cambium_primitives::BlockId;
use std::{
    collections::VecDeque,
    sync::{PoisonError, RwLock},
};

/// Most headers that are kept.
const KEPT_MAX: usize = 16;

/// Decoded headers by block. A block never changes, so neither does its entry.
#[derive(Default)]
pub(crate) struct Headers(RwLock<VecDeque<(BlockId, Header)>>);

impl Headers {
    pub(crate) fn get(&self, id: BlockId) -> Option<Header> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|(kept, _)| *kept == id);
        found.map(|(_, header)| header.clone())
    }

    /// Keeps a header, and drops the oldest one if there are too many.
    pub(crate) fn keep(&self, id: BlockId, header: &Header) {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|(kept, _)| *kept == id) {
            return;
        }
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((id, header.clone()));
    }
}

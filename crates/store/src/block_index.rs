//! Canonical block number -> place in the log.

use crate::{LogPosition, StoreError};
use alloy_primitives::B256;
use cambium_disk::Disk;
use std::sync::Arc;

/// What the index knows of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Hash of its header.
    pub hash: B256,
    /// Its record in the log.
    pub position: LogPosition,
}

/// In what state the index was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Whole, as far as was asked for.
    Ready,
    /// Missing, short or damaged, and begun anew: empty. The caller scans the log and sets every
    /// entry again.
    Rebuild {
        /// What was found.
        reason: String,
    },
}

/// The index: a file of one record for each number, and a small buffer of what was not yet written.
#[derive(Debug)]
pub struct BlockIndex {
    _disk: Arc<dyn Disk>,
}

impl BlockIndex {
    /// Opens the index, which must hold the numbers below `numbers`, or creates it if `numbers` is
    /// 0. Numbers from there on are dropped: replaying the log sets them again.
    pub fn open(disk: Arc<dyn Disk>, numbers: u64) -> Result<(Self, IndexState), StoreError> {
        _ = (disk, numbers);
        unimplemented!()
    }

    /// The entry of `number`. After [`StoreError::Corrupt`], truncate to 0 and set all entries again
    /// from a scan of the log.
    pub fn get(&self, number: u64) -> Result<Option<BlockEntry>, StoreError> {
        _ = number;
        unimplemented!()
    }

    /// Sets the entry of `number`, written at leisure.
    pub fn set(&self, number: u64, entry: BlockEntry) -> Result<(), StoreError> {
        _ = (number, entry);
        unimplemented!()
    }

    /// Forgets `number` and all above it.
    pub fn truncate(&self, number: u64) -> Result<(), StoreError> {
        _ = number;
        unimplemented!()
    }

    /// One more than the highest number that has an entry.
    pub fn numbers(&self) -> u64 {
        unimplemented!()
    }

    /// Writes what is buffered and makes all of it durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        unimplemented!()
    }
}

//! Checkpoints: whatever a start needs besides the log, in one file.

use crate::StoreError;
use cambium_disk::Disk;
use std::sync::Arc;

/// A checkpoint being written: sections one after the other, each in any number of pieces.
/// Dropped before it is finished, it never was.
#[derive(Debug)]
pub struct CheckpointWriter {
    _disk: Arc<dyn Disk>,
}

impl CheckpointWriter {
    /// Begins the checkpoint after the newest one on disk.
    pub fn create(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        _ = disk;
        unimplemented!()
    }

    /// Begins a section, which ends the one before. Panics if the name is used already or over 255 bytes.
    pub fn section(&mut self, name: &str) -> Result<(), StoreError> {
        _ = name;
        unimplemented!()
    }

    /// Appends to the section. Panics before the first.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        _ = bytes;
        unimplemented!()
    }

    /// Makes the checkpoint durable and then visible, removes all but the last two, and returns
    /// its sequence number.
    pub fn finish(self) -> Result<u64, StoreError> {
        unimplemented!()
    }
}

/// A whole checkpoint, all of whose checksums were right.
#[derive(Debug)]
pub struct Checkpoint {
    sequence: u64,
}

impl Checkpoint {
    /// Its number: each is one more than the one before.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The names of its sections, in the order in which they were written.
    pub fn sections(&self) -> impl Iterator<Item = &str> + '_ {
        std::iter::empty()
    }

    /// The length of a section. `None` if there is none of that name.
    pub fn section_len(&self, name: &str) -> Option<u64> {
        _ = name;
        unimplemented!()
    }

    /// All bytes of a section. An error if there is none of that name.
    pub fn read_section(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        _ = name;
        unimplemented!()
    }

    /// Fills `buf` with the bytes at `offset` of a section: for those too large for memory.
    pub fn read_section_at(
        &self,
        name: &str,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), StoreError> {
        _ = (name, offset, buf);
        unimplemented!()
    }
}

/// What was found of checkpoints.
#[derive(Debug)]
pub struct LoadedCheckpoint {
    /// The newest whole one.
    pub checkpoint: Checkpoint,
    /// What is wrong with newer ones, for the owner to know.
    pub damaged: Vec<StoreError>,
}

/// The newest whole checkpoint; `None` if there never was one. An error if there are some and all
/// are damaged. Reads all of it to verify it.
pub fn load_latest_checkpoint(
    disk: &Arc<dyn Disk>,
) -> Result<Option<LoadedCheckpoint>, StoreError> {
    _ = disk;
    unimplemented!()
}

//! How this process has opened a database, for writing or for reading alone, and the locks that it
//! holds for it.

use cambium_disk::Disk;
use cambium_snapshot::StateError;
use cambium_store::{Checkpoint, DataDirLock, ReaderLock, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;

/// A database that is open for reading alone, beside a process that may write to it.
pub(crate) struct ReadAccess {
    /// The disk that the other process writes to.
    disk: Arc<dyn Disk>,
    sequence: u64,
    /// Whether only a part of the log's new records is in memory, so that the database must be
    /// opened again.
    pub(crate) is_partial: Mutex<bool>,
    /// Announces the reader to the writer. `None` where the directory can't be written to.
    _lock: Option<ReaderLock>,
}

impl ReadAccess {
    /// The disk that the other process writes to.
    pub(crate) const fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Sequence number of the checkpoint that the reader has opened.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Fails with [`StoreError::ReaderBehind`] if files that the checkpoint names may have been
    /// removed before they were opened, which is possible once there are two newer checkpoints.
    /// Whether the checkpoint's own file exists proves nothing, since newer checkpoints may build
    /// on it.
    pub(crate) fn check_is_usable(&self) -> Result<(), StateError> {
        if Checkpoint::usable(&self.disk)?.contains(&self.sequence) {
            return Ok(());
        }
        let what = format!("checkpoint {}", self.sequence);
        Err(StoreError::ReaderBehind { what }.into())
    }

    /// Announces to the writer, where the directory can be written to, that checkpoint `sequence`
    /// is read.
    pub(crate) fn at(disk: Arc<dyn Disk>, sequence: u64) -> Result<Self, StateError> {
        Ok(Self {
            _lock: ReaderLock::take(&disk, sequence)?,
            disk,
            sequence,
            is_partial: Mutex::new(false),
        })
    }
}

/// How this process has opened the database.
pub(crate) enum Access {
    /// For writing, with the lock of the directory.
    Writer(#[expect(dead_code, reason = "held for its Drop")] DataDirLock),
    Reader(ReadAccess),
}

impl Access {
    /// The state of a reader, or `None` for the writer.
    pub(crate) const fn read_access(&self) -> Option<&ReadAccess> {
        match self {
            Self::Reader(reading) => Some(reading),
            Self::Writer(_) => None,
        }
    }
}

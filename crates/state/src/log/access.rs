//! What is held as long as a database is open.

use cambium_disk::Disk;
use cambium_snapshot::StateError;
use cambium_store::{Checkpoint, DataDirLock, ReaderLock, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a reader holds.
pub(crate) struct ReadAccess {
    /// What is written to by others.
    disk: Arc<dyn Disk>,
    sequence: u64,
    /// Whether what the log had since is in memory in part: it is opened again then.
    pub(crate) is_partial: Mutex<bool>,
    /// `None` where the directory can't be written to.
    _lock: Option<ReaderLock>,
}

impl ReadAccess {
    /// What others write to.
    pub(crate) const fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Number of its checkpoint.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// An error if what its checkpoint names may have been removed before it was opened: that comes
    /// once there are two newer ones. The checkpoint's own file says nothing of it, since newer ones
    /// may be on top of it.
    pub(crate) fn check_is_usable(&self) -> Result<(), StateError> {
        if Checkpoint::usable(&self.disk)?.contains(&self.sequence) {
            return Ok(());
        }
        let what = format!("checkpoint {}", self.sequence);
        Err(StoreError::ReaderBehind { what }.into())
    }

    /// Tells whoever writes, where that can be, that checkpoint `sequence` is read.
    pub(crate) fn at(disk: Arc<dyn Disk>, sequence: u64) -> Result<Self, StateError> {
        Ok(Self {
            _lock: ReaderLock::take(&disk, sequence)?,
            disk,
            sequence,
            is_partial: Mutex::new(false),
        })
    }
}

/// What is held as long as a database is open.
pub(crate) enum Access {
    /// The directory: nobody else writes.
    Writer(#[expect(dead_code, reason = "held for its Drop")] DataDirLock),
    Reader(ReadAccess),
}

impl Access {
    /// What a reader holds.
    pub(crate) const fn read_access(&self) -> Option<&ReadAccess> {
        match self {
            Self::Reader(reading) => Some(reading),
            Self::Writer(_) => None,
        }
    }
}

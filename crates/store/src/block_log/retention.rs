//! Retention: old log files are removed whole, the oldest first.
//!
//! The caller decides how much is kept, and stores the start of the log in its checkpoints. A crash
//! may leave some of the older files behind; the next removal deletes them too.

use super::{
    format::{DIR, file_numbers, name_of},
    log::BlockLog,
};
use crate::{LogPosition, StoreError, log_position::HEADER_BYTES};
use cambium_disk::{Disk, DiskFile};
use std::sync::{Arc, atomic::Ordering};

/// A log file that was removed from the directory.
#[derive(Debug)]
pub struct RemovedLogFile {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// The open file. Processes that have it open can still read it.
    pub file: Arc<dyn DiskFile>,
}

impl BlockLog {
    /// Sets the start of a log that was just opened: files before that of `position` may be
    /// missing.
    pub fn set_start(&self, position: LogPosition) {
        self.first.fetch_max(position.file, Ordering::AcqRel);
    }

    /// Returns the position of the first record in the oldest file that is kept.
    pub fn start(&self) -> LogPosition {
        LogPosition {
            file: self.first.load(Ordering::Acquire),
            offset: HEADER_BYTES,
        }
    }

    /// Returns whether the file of `position` exists. Another process may have removed it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be read.
    pub fn is_there(disk: &dyn Disk, position: LogPosition) -> Result<bool, StoreError> {
        Ok(disk.exists(&name_of(position.file))?)
    }

    /// Removes all files before that of `position`, and returns them. Reads of their records fail
    /// with [`StoreError::NotKept`] from now on.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be removed.
    pub fn remove_before(&self, position: LogPosition) -> Result<Vec<RemovedLogFile>, StoreError> {
        let first = position.file;
        if self.removed_to.load(Ordering::Acquire) >= first {
            return Ok(Vec::new());
        }
        self.set_start(position);
        self.files.write().retain(|number, _| *number >= first);
        let mut removed = Vec::new();
        for number in file_numbers(&*self.disk)?.range(..first) {
            let name = name_of(*number);
            let file = self.disk.open(&name);
            self.disk.remove(&name)?;
            // A file that can't be opened is removed all the same. It can't be truncated later, so
            // its readers keep its space as long as they like.
            if let Ok(file) = file {
                let bytes = file.len()?;
                removed.push(RemovedLogFile { bytes, file });
            }
        }
        // If a crash restored some of the files but not others, they would look like a log with
        // holes.
        self.disk.sync_dir(DIR)?;
        self.removed_to.store(first, Ordering::Release);
        Ok(removed)
    }
}

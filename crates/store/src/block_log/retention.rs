//! Where a log begins: what is not kept leaves it as whole files, the oldest first.
//!
//! What is kept is for the log's user to say, in its checkpoints. Files before that are nobody's: a
//! crash may leave some of them, and they are removed with the next ones.

use super::{
    format::{DIR, name_of, numbers},
    log::BlockLog,
};
use crate::{LogPosition, StoreError, log_position::HEADER_BYTES};
use cambium_disk::{Disk, DiskFile};
use std::sync::{Arc, atomic::Ordering};

/// A file that has left the log.
#[derive(Debug)]
pub struct RemovedLogFile {
    /// Its length.
    pub bytes: u64,
    /// The file, which whoever has it open can read still.
    pub file: Arc<dyn DiskFile>,
}

impl BlockLog {
    /// Says, of a log that was just opened, that nothing before `position` need be there.
    pub fn begin_at(&self, position: LogPosition) {
        self.first.fetch_max(position.file, Ordering::AcqRel);
    }

    /// Where the first record is of those that are kept.
    pub fn start(&self) -> LogPosition {
        LogPosition {
            file: self.first.load(Ordering::Acquire),
            offset: HEADER_BYTES,
        }
    }

    /// Whether the file of `position` is in the directory: another process may remove it.
    pub fn is_there(disk: &dyn Disk, position: LogPosition) -> Result<bool, StoreError> {
        Ok(disk.exists(&name_of(position.file))?)
    }

    /// Removes the files before that of `position`. What is asked of them from now on is refused
    /// with [`StoreError::NotKept`].
    pub fn remove_before(&self, position: LogPosition) -> Result<Vec<RemovedLogFile>, StoreError> {
        let first = position.file;
        if self.removed_to.load(Ordering::Acquire) >= first {
            return Ok(Vec::new());
        }
        self.begin_at(position);
        self.files.write().retain(|number, _| *number >= first);
        let mut removed = Vec::new();
        for number in numbers(&*self.disk)?.range(..first) {
            let name = name_of(*number);
            let file = self.disk.open(&name);
            self.disk.remove(&name)?;
            // One that can't be opened can't be cut off for its readers: they have it as long as
            // they will.
            if let Ok(file) = file {
                let bytes = file.len()?;
                removed.push(RemovedLogFile { bytes, file });
            }
        }
        // Were some of them to come back, others not, nobody could tell them from a log with holes.
        self.disk.sync_dir(DIR)?;
        self.removed_to.store(first, Ordering::Release);
        Ok(removed)
    }
}

//! The next file of a log, made before it is needed: all of it written, with zeros, and durable.
//!
//! What is then written over the zeros needs no new place on the disk, so that a sync need not wait
//! for the file system's journal, nor for what others put into it.

use super::{BlockLog, DIR, LogPosition, name_of};
use crate::{StoreError, WritePace, pace::PIECE_BYTES};
use cambium_disk::{Access, BLOCK_BYTES, Disk, DiskError, DiskFile};
use std::sync::{Arc, atomic::Ordering};

/// What it is called until it is whole.
const TEMPORARY: &str = "log/next.tmp";
/// A log of fewer bytes gets no file ahead.
const LOG_BYTES_MIN: u32 = 16 << 20;
/// Room for the record that ends a file.
const SPARE_BYTES: u64 = 1 << 20;

impl BlockLog {
    /// Makes the next file ready, if it is not yet and will be needed soon. It takes as long as
    /// writing [`LogOptions::file_bytes_max`](super::LogOptions::file_bytes_max): for a thread that
    /// has time. Where the disk is full nothing is done.
    pub fn prepare_next(&self, pace: &WritePace) -> Result<(), StoreError> {
        self.poison.check()?;
        let mut next = self.next.lock();
        if next.is_some() || !self.is_next_due() {
            return Ok(());
        }
        // Nobody begins another file as long as the lock is held.
        let name = name_of(self.end().file + 1);
        *next = self.poison.guard(|| self.prepare(&name, pace))?;
        self.is_ahead.store(next.is_some(), Ordering::Release);
        Ok(())
    }

    fn is_next_due(&self) -> bool {
        let LogPosition { offset, .. } = self.end();
        let max = self.options.file_bytes_max;
        match self.is_whole.load(Ordering::Acquire) {
            true => offset >= max / 2,
            // It grows in steps, each of which somebody waits for.
            false => offset >= LOG_BYTES_MIN.min(max / 2),
        }
    }

    /// `None` if the disk is full.
    fn prepare(
        &self,
        name: &str,
        pace: &WritePace,
    ) -> Result<Option<Arc<dyn DiskFile>>, StoreError> {
        remove_unfinished(&*self.disk)?;
        if let Err(error) = self.write_zeros(pace) {
            remove_unfinished(&*self.disk)?;
            return match error.is_full() {
                true => Ok(None),
                false => Err(error.into()),
            };
        }
        self.disk.rename(TEMPORARY, name)?;
        self.disk.sync_dir(DIR)?;
        Ok(Some(self.disk.open(name)?))
    }

    fn write_zeros(&self, pace: &WritePace) -> Result<(), DiskError> {
        let file = self.disk.create_with(TEMPORARY, Access::Direct)?;
        let bytes = u64::from(self.options.file_bytes_max) + SPARE_BYTES;
        let bytes = bytes.next_multiple_of(BLOCK_BYTES as u64);
        let zeros = vec![0; PIECE_BYTES.min(bytes as usize)];
        let mut at = 0;
        while at < bytes {
            let len = zeros.len().min((bytes - at) as usize);
            pace.write(|| file.write_at(&zeros[..len], at))?;
            self.count_written(len);
            at += len as u64;
        }
        file.sync()
    }
}

/// Removes a file ahead that never became whole.
pub(super) fn remove_unfinished(disk: &dyn Disk) -> Result<(), DiskError> {
    match disk.exists(TEMPORARY)? {
        true => disk.remove(TEMPORARY),
        false => Ok(()),
    }
}

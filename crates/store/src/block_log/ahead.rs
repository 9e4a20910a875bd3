//! Preallocation of the next log file, filled with zeros and synced before it is needed, and its beginning.
//!
//! Writing over durable zeros allocates no space on the disk. So a sync does not wait for the file
//! system's journal, nor for other data in it.
//!
//! Ending a file and beginning the next one takes several syncs. A background thread does it as soon as a commit
//! has filled the file ([`BlockLog::begin_prepared`]), so that only a commit that follows at once waits for them.

use super::{
    format::{DIR, TEMPORARY, name_of},
    log::BlockLog,
};
use crate::{LogPosition, StoreError, files::remove_if_exists};
use cambium_disk::{Access, BLOCK_BYTES, DiskError, WritePace};
use std::sync::atomic::Ordering;

/// Logs with less content than this get no preallocated file.
const LOG_BYTES_MIN: u32 = 16 << 20;
/// Space for the record that crosses a file's length limit, in bytes.
const SPARE_BYTES: u64 = 1 << 20;

impl BlockLog {
    /// Prepares the next file if it will be needed soon and is not prepared yet. This takes as long
    /// as writing [`LogOptions::file_bytes_max`](crate::LogOptions::file_bytes_max), so it belongs
    /// on a background thread. If the disk is full, nothing is prepared and no error is returned.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a write or sync fails for another reason, which poisons the log, and
    /// [`StoreError::Poisoned`] after that.
    pub fn preallocate_next(&self, pace: &WritePace) -> Result<(), StoreError> {
        self.poison.check()?;
        let _one = self.preparing.lock();
        if self.next.lock().is_some() || !self.is_next_due() {
            return Ok(());
        }
        self.poison.guard(|| self.prepare(pace))
    }

    /// Returns whether there is work for a background thread now: [`BlockLog::preallocate_next`], then
    /// [`BlockLog::begin_prepared`]. Never true for files of less than 32 MiB, which merges prepare often enough.
    pub fn wants_next(&self) -> bool {
        if self.options.file_bytes_max < 2 * LOG_BYTES_MIN {
            return false;
        }
        match self.is_next_ready.load(Ordering::Acquire) {
            true => self.is_full() || self.continues_in_next(),
            false => !self.was_full.load(Ordering::Acquire) && self.is_next_due(),
        }
    }

    /// Begins the next file, if it is prepared and the newest one is full or was not preallocated. Appends wait
    /// meanwhile. Does nothing while appended records are not durable yet.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a write or sync fails, which poisons the log, and [`StoreError::Poisoned`] after
    /// that.
    pub fn begin_prepared(&self) -> Result<(), StoreError> {
        self.poison.check()?;
        let writer = &mut *self.writer.lock();
        let is_ready = self.is_next_ready.load(Ordering::Acquire);
        // Whoever has appended syncs the file that it has appended to.
        if writer.has_unsynced || !is_ready || !(self.is_full() || self.continues_in_next()) {
            return Ok(());
        }
        self.poison.guard(|| self.begin_next_file(writer))
    }

    fn is_full(&self) -> bool {
        self.end().offset >= self.options.file_bytes_max
    }

    fn is_next_due(&self) -> bool {
        let LogPosition { offset, .. } = self.end();
        let max = self.options.file_bytes_max;
        match self.is_preallocated.load(Ordering::Acquire) {
            true => offset >= max / 2,
            // The file grows in steps, for each of which an append waits.
            false => offset >= LOG_BYTES_MIN.min(max / 2),
        }
    }

    fn prepare(&self, pace: &WritePace) -> Result<(), StoreError> {
        remove_if_exists(&*self.disk, TEMPORARY)?;
        if let Err(error) = self.write_zeros(pace) {
            remove_if_exists(&*self.disk, TEMPORARY)?;
            if error.is_full() {
                self.was_full.store(true, Ordering::Release);
                return Ok(());
            }
            return Err(error.into());
        }
        // A thread that begins a file waits for this short step only.
        let mut next = self.next.lock();
        let name = name_of(self.end().file + 1);
        self.disk.rename(TEMPORARY, &name)?;
        self.disk.sync_dir(DIR)?;
        *next = Some(self.disk.open(&name)?);
        self.is_next_ready.store(true, Ordering::Release);
        Ok(())
    }

    fn write_zeros(&self, pace: &WritePace) -> Result<(), DiskError> {
        let file = self.disk.create_with(TEMPORARY, Access::Direct)?;
        let max = u64::from(self.options.file_bytes_max);
        let bytes = max + SPARE_BYTES.min(max);
        let bytes = bytes.next_multiple_of(BLOCK_BYTES as u64);
        let zeros = vec![0; WritePace::PIECE_BYTES.min(bytes as usize)];
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

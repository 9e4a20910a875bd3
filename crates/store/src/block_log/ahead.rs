//! The next file of a log, made before it is needed: all of it written, with zeros, and durable.
//!
//! What is then written over the zeros needs no new place on the disk, so that a sync need not wait
//! for the file system's journal, nor for what others put into it.

use super::{
    format::{DIR, TEMPORARY, name_of},
    log::BlockLog,
};
use crate::{LogPosition, StoreError, WritePace, files::remove_if_exists, pace::PIECE_BYTES};
use cambium_disk::{Access, BLOCK_BYTES, DiskError};
use std::sync::atomic::Ordering;

/// A log of fewer bytes gets no file ahead.
const LOG_BYTES_MIN: u32 = 16 << 20;
/// Room for the record that goes beyond a file's limit.
const SPARE_BYTES: u64 = 1 << 20;

impl BlockLog {
    /// Makes the next file ready, if it is not yet and will be needed soon. It takes as long as
    /// writing [`LogOptions::file_bytes_max`](crate::LogOptions::file_bytes_max): for a thread that
    /// has time. Where the disk is full nothing is done.
    pub fn prepare_next(&self, pace: &WritePace) -> Result<(), StoreError> {
        self.poison.check()?;
        let _one = self.preparing.lock();
        if self.next.lock().is_some() || !self.is_next_due() {
            return Ok(());
        }
        self.poison.guard(|| self.prepare(pace))
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

    fn prepare(&self, pace: &WritePace) -> Result<(), StoreError> {
        remove_if_exists(&*self.disk, TEMPORARY)?;
        if let Err(error) = self.write_zeros(pace) {
            remove_if_exists(&*self.disk, TEMPORARY)?;
            return match error.is_full() {
                true => Ok(()),
                false => Err(error.into()),
            };
        }
        // Whoever begins a file waits for no more than this.
        let mut next = self.next.lock();
        let name = name_of(self.end().file + 1);
        self.disk.rename(TEMPORARY, &name)?;
        self.disk.sync_dir(DIR)?;
        *next = Some(self.disk.open(&name)?);
        self.is_ahead.store(true, Ordering::Release);
        Ok(())
    }

    fn write_zeros(&self, pace: &WritePace) -> Result<(), DiskError> {
        let file = self.disk.create_with(TEMPORARY, Access::Direct)?;
        let max = u64::from(self.options.file_bytes_max);
        let bytes = max + SPARE_BYTES.min(max);
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

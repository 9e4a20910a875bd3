//! Value segments shared with other processes: readers, and backups.

use super::{
    format::{name_of, numbers},
    segment::Segment,
    set::{Values, access_of},
};
use crate::StoreError;
use cambium_disk::DiskFile;
use std::sync::{Arc, atomic::Ordering};

/// An open file of a value segment, with its name.
pub(crate) struct ValueFile {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Length in bytes.
    pub(crate) bytes: u64,
}

impl Values {
    /// Makes reads beyond the end of a truncated file return [`StoreError::ReaderBehind`] instead
    /// of an error of damage. Another process, which writes, may truncate files that are obsolete
    /// to it.
    pub fn allow_truncation(&self) {
        self.may_be_truncated.store(true, Ordering::Relaxed);
    }

    /// Finds what another process has appended since, for a process that only reads. Values to
    /// which a log record refers are found if this is called after reading the record. Does nothing
    /// once the values are settled.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory or a file can't be read.
    pub fn refresh(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        if writer.is_settled {
            return Ok(());
        }
        let segments = self.segments();
        let found = numbers(&*self.disk)?;
        let newest = found.last().copied().unwrap_or(0);
        if let Some(before) = segments.values().next_back()
            && let (Some(file), None) = (before.file(), before.lost)
        {
            before.bytes.fetch_max(file.len()?, Ordering::AcqRel);
        }
        for number in found.range(writer.next_number..).copied() {
            let access = access_of(number, newest);
            if let Some(segment) = Segment::open(&*self.disk, number, self.salt, access)? {
                self.change_segments(|segments| _ = segments.insert(number, Arc::new(segment)));
            }
        }
        writer.next_number = writer.next_number.max(newest.saturating_add(1));
        Ok(())
    }

    /// Checks that no segment was truncated since it was opened.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReaderBehind`] if one was, and [`StoreError::Disk`] if a length can't be read.
    pub fn check_truncation(&self) -> Result<(), StoreError> {
        for segment in self.segments().values() {
            if let (Some(file), None) = (segment.file(), segment.lost)
                && file.len()? < segment.bytes.load(Ordering::Acquire)
            {
                return Err(self.reader_behind(segment.number));
            }
        }
        Ok(())
    }

    /// Returns the files of all segments, except missing ones.
    pub(crate) fn files(&self) -> Vec<ValueFile> {
        let segments = self.segments();
        let files = segments.values().filter_map(|segment| {
            let bytes = segment.bytes.load(Ordering::Acquire);
            Some(ValueFile {
                number: segment.number,
                name: name_of(segment.number),
                file: segment.file()?,
                bytes: segment.lost.map_or(bytes, |(from, _)| from),
            })
        });
        files.collect()
    }
}

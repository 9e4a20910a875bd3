//! Segments shared with other processes: readers whose files the writer truncates, and backups.

use super::{
    segment::{Segment, SegmentStats, name_of},
    set::Segments,
};
use crate::StoreError;
use cambium_disk::{DiskError, DiskFile};
use std::sync::{Arc, atomic::Ordering};

/// An open file of a segment, with its name.
pub(crate) struct SegmentFile {
    pub(crate) stats: SegmentStats,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Length of the intact data in bytes. Less than in `stats` if the file was too short when
    /// opened.
    pub(crate) bytes: u64,
}

impl Segments {
    /// Makes reads beyond the end of a truncated file return [`StoreError::ReaderBehind`] instead
    /// of an error of damage. Another process, which writes, may truncate files that are obsolete
    /// to it.
    pub fn allow_truncation(&self) {
        self.may_be_truncated.store(true, Ordering::Relaxed);
    }

    /// Returns the files of all segments, except missing ones.
    pub(crate) fn files(&self) -> Vec<SegmentFile> {
        let segments = self.segments();
        let files = segments.values().filter_map(|segment| {
            let stats = segment.stats();
            Some(SegmentFile {
                stats,
                name: name_of(segment.sequence),
                file: segment.file.clone()?,
                bytes: segment.lost.map_or(stats.bytes, |(from, _)| from),
            })
        });
        files.collect()
    }

    /// Checks that no segment was truncated since it was opened.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReaderBehind`] if one was, and [`StoreError::Disk`] if a length can't be read.
    pub fn check_truncation(&self) -> Result<(), StoreError> {
        for segment in self.segments().values() {
            if let (Some(file), None) = (&segment.file, segment.lost)
                && file.len()? < segment.flushed_bytes.load(Ordering::Acquire)
            {
                return Err(self.reader_behind(segment));
            }
        }
        Ok(())
    }

    fn reader_behind(&self, segment: &Segment) -> StoreError {
        let file = self.disk.display_path(&name_of(segment.sequence));
        StoreError::ReaderBehind {
            what: format!("a page of {file}"),
        }
    }

    /// Converts the error of a failed read.
    pub(super) fn read_error(&self, segment: &Segment, error: DiskError) -> StoreError {
        match self.may_be_truncated.load(Ordering::Relaxed) && error.is_end_of_file() {
            true => self.reader_behind(segment),
            false => error.into(),
        }
    }
}

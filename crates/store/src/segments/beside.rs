//! Segments beside another process: files that it cuts off while they are read here, or that are handed
//! on to a copy.

use super::{
    segment::{Segment, SegmentStats, name_of},
    set::Segments,
};
use crate::StoreError;
use cambium_disk::{DiskError, DiskFile};
use std::sync::{Arc, atomic::Ordering};

/// The file of a segment that is there, open, with its name.
pub(crate) struct SegmentFile {
    pub(crate) stats: SegmentStats,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Bytes of it that were there when it was opened: fewer than it should have if it is damaged.
    pub(crate) bytes: u64,
}

impl Segments {
    /// From now on a segment whose file has become shorter is no damage: another process, which
    /// writes, has cut it off, since nothing that is newer needs it.
    pub fn expect_cuts(&self) {
        self.may_be_cut.store(true, Ordering::Relaxed);
    }

    /// The files of all segments, but those that are missing.
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

    /// [`StoreError::ReaderBehind`] if a segment was cut off since it was opened.
    pub fn check_cuts(&self) -> Result<(), StoreError> {
        for segment in self.segments().values() {
            if let (Some(file), None) = (&segment.file, segment.lost)
                && file.len()? < segment.flushed_bytes.load(Ordering::Acquire)
            {
                return Err(self.behind(segment));
            }
        }
        Ok(())
    }

    fn behind(&self, segment: &Segment) -> StoreError {
        let file = self.disk.display_path(&name_of(segment.sequence));
        StoreError::ReaderBehind {
            what: format!("a page of {file}"),
        }
    }

    /// What a failed read of a page is.
    pub(super) fn failed(&self, segment: &Segment, error: DiskError) -> StoreError {
        match self.may_be_cut.load(Ordering::Relaxed) && error.is_end_of_file() {
            true => self.behind(segment),
            false => error.into(),
        }
    }
}

//! Making what was found ready to be appended to.

use super::{
    format::{DIR, HEADER_BYTES, name_of},
    segment::Segment,
    set::Values,
};
use crate::{StoreError, files::remove_if_exists};
use std::sync::{Arc, atomic::Ordering};

impl Values {
    /// Prepares for appending: removes the files of removed segments, whose removal a crash has
    /// undone, and makes durable what was found. Must be called once before the first value is
    /// appended, and once the database is open.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be read, removed or synced, which poisons the values,
    /// and [`StoreError::Poisoned`] after that.
    pub fn settle(&self) -> Result<(), StoreError> {
        let writer = &mut *self.writer.lock();
        if writer.is_settled {
            return Ok(());
        }
        self.poison.guard(|| {
            self.disk.create_dir(DIR)?;
            self.disk.sync_dir("")?;
            for number in writer.leftovers.drain(..) {
                remove_if_exists(&*self.disk, &name_of(number))?;
            }
            let segments = self.segments();
            for segment in segments.values() {
                self.settle_segment(segment)?;
            }
            // A segment with a later one, whose file is lost, was opened for direct access.
            if let Some(newest) = segments.values().next_back()
                && newest.number.checked_add(1) == Some(writer.next_number)
                && self.can_continue(newest)?
            {
                writer.active = Some(Arc::clone(newest));
            }
            self.disk.sync_dir(DIR)?;
            writer.is_settled = true;
            Ok(())
        })
    }

    /// Syncs the bytes after the checkpointed length of a segment: a killed process may have left them in the page
    /// cache only. All acknowledged values precede the end of the records. Bytes behind that end stay out of the next
    /// checkpoint, so that the next opening examines them again.
    fn settle_segment(&self, segment: &Arc<Segment>) -> Result<(), StoreError> {
        let durable = segment.synced_bytes.load(Ordering::Relaxed);
        let bytes = segment.bytes.load(Ordering::Relaxed);
        if segment.has_header && durable < bytes {
            segment.open_file().sync()?;
            let end = self.chain_end(segment, durable.max(HEADER_BYTES))?;
            segment
                .synced_bytes
                .store(end.min(bytes), Ordering::Release);
        }
        Ok(())
    }

    /// Returns whether values can be appended to the newest segment, as it was found.
    fn can_continue(&self, newest: &Segment) -> Result<bool, StoreError> {
        let bytes = newest.bytes.load(Ordering::Relaxed);
        let is_whole = newest.synced_bytes.load(Ordering::Relaxed) == bytes;
        if !newest.has_header || newest.lost.is_some() || !is_whole {
            return Ok(false);
        }
        // A backup may share the file by a hard link, and append to it as well.
        Ok(bytes < self.options.segment_bytes_max && newest.open_file().names()? == 1)
    }
}

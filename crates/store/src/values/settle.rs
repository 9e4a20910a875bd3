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
            let newest = segments.values().next_back();
            if let Some(newest) = newest
                && self.can_continue(newest)?
            {
                writer.active = Some(Arc::clone(newest));
            }
            for segment in segments.values() {
                // What a killed process wrote may be in the page cache only.
                segment.sync_found()?;
            }
            self.disk.sync_dir(DIR)?;
            writer.is_settled = true;
            Ok(())
        })
    }

    /// Returns whether values can be appended to the newest file, as it was found.
    fn can_continue(&self, newest: &Arc<Segment>) -> Result<bool, StoreError> {
        let bytes = newest.bytes.load(Ordering::Relaxed);
        let Ok(file) = newest.file_up_to(bytes) else {
            return Ok(false);
        };
        // A backup may share the file by a hard link, and append to it as well.
        if !newest.has_header || bytes >= self.options.segment_bytes_max || file.names()? != 1 {
            return Ok(false);
        }
        let durable = newest.synced_bytes.load(Ordering::Relaxed);
        self.is_chain(newest, durable.max(HEADER_BYTES))
    }
}

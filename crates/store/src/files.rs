//! Steps with files that several parts of the store share.

use cambium_disk::{Disk, DiskError, DiskFile};
use std::{ops::Range, sync::Arc};

/// Bytes that are copied at a time: whole blocks of the device.
const COPY_BYTES: usize = 1 << 20;

/// Copies the bytes `range` of `source` to `target`, from its offset `at` on. `progress` is told the
/// bytes of each piece once it is written.
pub(crate) fn copy_range(
    source: &dyn DiskFile,
    range: Range<u64>,
    target: &dyn DiskFile,
    at: u64,
    mut progress: impl FnMut(u64),
) -> Result<(), DiskError> {
    let bytes = range.end.saturating_sub(range.start);
    let mut piece = vec![0; bytes.min(COPY_BYTES as u64) as usize];
    let mut done = 0;
    while done < bytes {
        let take = (bytes - done).min(piece.len() as u64) as usize;
        source.read_at(&mut piece[..take], range.start + done)?;
        target.write_at(&piece[..take], at + done)?;
        done += take as u64;
        progress(take as u64);
    }
    Ok(())
}

/// Opens a file. `None` if there is none of that name.
pub(crate) fn open_if_exists(
    disk: &dyn Disk,
    name: &str,
) -> Result<Option<Arc<dyn DiskFile>>, DiskError> {
    match disk.exists(name)? {
        true => disk.open(name).map(Some),
        false => Ok(None),
    }
}

/// Removes a file, if there is one of that name.
pub(crate) fn remove_if_exists(disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
    match disk.exists(name)? {
        true => disk.remove(name),
        false => Ok(()),
    }
}

//! File operations that several modules share.

use cambium_disk::{Disk, DiskError, DiskFile};
use std::{ops::Range, sync::Arc};

/// Bytes that are copied at a time. A multiple of the device's block size.
const COPY_BYTES: usize = 1 << 20;

/// Copies the bytes `range` of `source` to `target`, starting at its offset `at`. Calls `progress`
/// with the length of each piece after writing it.
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

/// Opens the file `name`, or returns `None` if it does not exist.
pub(crate) fn open_if_exists(
    disk: &dyn Disk,
    name: &str,
) -> Result<Option<Arc<dyn DiskFile>>, DiskError> {
    match disk.exists(name)? {
        true => disk.open(name).map(Some),
        false => Ok(None),
    }
}

/// Removes the file `name` if it exists.
pub(crate) fn remove_if_exists(disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
    match disk.exists(name)? {
        true => disk.remove(name),
        false => Ok(()),
    }
}

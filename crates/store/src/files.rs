//! File operations that several modules share.

use cambium_disk::{Disk, DiskError, DiskFile};
use std::sync::Arc;

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

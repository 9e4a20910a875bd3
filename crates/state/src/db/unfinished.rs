//! The mark of an unfinished copy. A killed backup leaves it, and the copy is then refused as a database: files that go
//! beside the database may be missing, which no other check would find.

use cambium_disk::Disk;
use cambium_snapshot::StateError;
use cambium_store::StoreError;

/// Name of the file.
pub(crate) const MARK: &str = "backup.unfinished";

/// Fails if the directory has a copy that was not finished.
pub(crate) fn refuse(disk: &dyn Disk) -> Result<(), StateError> {
    match disk.exists(MARK).map_err(StoreError::from)? {
        true => Err(StateError::UnfinishedBackup {
            dir: disk.display_path(""),
        }),
        false => Ok(()),
    }
}

/// Marks a directory, durably.
pub(crate) fn mark(disk: &dyn Disk) -> Result<(), StateError> {
    let marked = disk.create(MARK).and_then(|_| disk.sync_dir(""));
    Ok(marked.map_err(StoreError::from)?)
}

/// Takes the mark away: the copy is whole.
pub(crate) fn unmark(disk: &dyn Disk) -> Result<(), StateError> {
    let unmarked = disk.remove(MARK).and_then(|()| disk.sync_dir(""));
    Ok(unmarked.map_err(StoreError::from)?)
}

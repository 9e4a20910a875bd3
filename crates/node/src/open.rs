//! Directories of databases.

use cambium_disk::{Disk, StdDisk, StdDiskOptions};
use cambium_state::{Db, StateError};
use cambium_store::StoreError;
use std::{path::Path, sync::Arc};

/// Opens the directory of an existing database as a disk, for reading alone if `read_only`. Creates
/// nothing.
///
/// # Errors
///
/// [`StoreError::NotADatabase`] if the directory is missing or has no database, and an error if the
/// disk fails.
pub fn existing_disk(directory: &Path, read_only: bool) -> Result<Arc<dyn Disk>, StateError> {
    let options = StdDiskOptions {
        read_only,
        ..StdDiskOptions::from_env()
    };
    let found = Db::exists(&StdDisk::new(directory))?;
    let disk = StdDisk::with_options(directory, &options).map_err(StoreError::from)?;
    if !found {
        let dir = disk.display_path("");
        return Err(StoreError::NotADatabase { dir }.into());
    }
    Ok(Arc::new(disk))
}

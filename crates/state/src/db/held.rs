//! The databases that this process has open for writing: an error of a second opening says what keeps the first one
//! open.

use crate::engine::parts::Engine;
use cambium_disk::Disk;
use cambium_store::{DataDirLock, StoreError, lock_data_dir};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// Databases by the names of their directories, closed ones included until the next one is opened.
static OPEN: Mutex<Vec<(String, Weak<Engine>)>> = Mutex::new(Vec::new());

/// Notes that a database is open for writing.
pub(crate) fn note(engine: &Arc<Engine>) {
    let dir = engine.store.disk.display_path("");
    let mut open = OPEN.lock();
    open.retain(|(_, engine)| engine.strong_count() > 0);
    open.push((dir, Arc::downgrade(engine)));
}

/// Locks a data directory.
///
/// # Errors
///
/// [`StoreError::InUse`], which names the holder if that is this process, and [`StoreError::Disk`] if the lock file
/// can't be opened.
pub(crate) fn lock(disk: &dyn Disk) -> Result<DataDirLock, StoreError> {
    lock_data_dir(disk).map_err(|error| match error {
        StoreError::InUse { dir, pid, users } => {
            let users = users.or_else(|| users_of(&dir, pid));
            StoreError::InUse { dir, pid, users }
        }
        error => error,
    })
}

/// Number of references to the database in a directory. `None` if another process holds it, or if it is not known which
/// of several databases it is: directories may have the same name on different disks.
fn users_of(dir: &str, pid: Option<u32>) -> Option<usize> {
    if pid != Some(std::process::id()) {
        return None;
    }
    let open = OPEN.lock();
    let mut of_dir = open.iter().filter(|(name, _)| name == dir);
    let mut users = of_dir.by_ref().map(|(_, engine)| engine.strong_count());
    let first = users.find(|users| *users > 0)?;
    users.all(|users| users == 0).then_some(first)
}

//! The list of a folder's files: which of them count. It is small, and replaced as a whole.

use crate::StoreError;
use cambium_disk::{Disk, DiskError, DiskLock, LockError};

/// The list of a folder's files. What is in it the owner of the folder decides.
#[derive(Clone, Copy, Debug)]
pub struct ListFile {
    /// The folder.
    pub dir: &'static str,
    /// Name of the list, with the folder.
    pub name: &'static str,
    /// Name under which the next list is written, with the folder.
    pub temporary_name: &'static str,
    /// Name of the file whose lock the writer of the folder has, with the folder.
    pub lock_name: &'static str,
}

impl ListFile {
    /// Writes the next list under its temporary name, durably, and makes the names of the folder's files
    /// durable, which the list must not precede. The list that counts is still the one before.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails. Nothing has changed then.
    pub fn prepare(&self, disk: &dyn Disk, bytes: &[u8]) -> Result<(), DiskError> {
        if disk.exists(self.temporary_name)? {
            disk.remove(self.temporary_name)?;
        }
        let file = disk.create(self.temporary_name)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        disk.sync_dir(self.dir)
    }

    /// Makes the list that was prepared the one that counts, durably.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails. After a crash either list may count then.
    pub fn publish(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk.rename(self.temporary_name, self.name)?;
        disk.sync_dir(self.dir)
    }

    /// Locks the folder for this process.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] if another process holds the lock, and [`StoreError::Disk`] if the lock file
    /// can't be opened.
    pub fn lock(&self, disk: &dyn Disk) -> Result<DiskLock, StoreError> {
        disk.lock(self.lock_name).map_err(|error| match error {
            LockError::Held { pid, .. } => StoreError::InUse {
                dir: disk.display_path(self.dir),
                pid,
            },
            LockError::Disk(error) => error.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_disk::FaultyDisk;

    const LIST: ListFile = ListFile {
        dir: "some",
        name: "some/list",
        temporary_name: "some/list.tmp",
        lock_name: "some/lock",
    };

    #[test]
    fn a_list_counts_when_it_is_published_and_is_whole_after_any_loss_of_power() {
        for operations in 0..12 {
            let disk = FaultyDisk::new(operations);
            disk.create_dir(LIST.dir).unwrap();
            disk.sync_dir("").unwrap();
            LIST.prepare(&disk, b"one").unwrap();
            assert!(!disk.exists(LIST.name).unwrap());
            LIST.publish(&disk).unwrap();
            disk.lose_power_after(operations);
            let replaced = LIST
                .prepare(&disk, b"two")
                .and_then(|()| LIST.publish(&disk));
            let bytes = disk.crash().contents(LIST.name).unwrap();
            assert!(bytes == b"one" || bytes == b"two");
            assert!(replaced.is_err() || bytes == b"two");
        }
    }
}

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

/// Whether a folder has a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The list is there, damaged or not.
    Yes,
    /// It has neither a list nor files that one would name.
    No,
    /// It has files without a list: that was lost, and what the files are can't be told without.
    Lost,
}

impl ListFile {
    /// Looks for the list. `is_listed` is true for names of files that it would name.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk can't tell.
    pub fn look(
        &self,
        disk: &dyn Disk,
        is_listed: impl Fn(&str) -> bool,
    ) -> Result<Listed, DiskError> {
        if disk.exists(self.name)? {
            return Ok(Listed::Yes);
        }
        let names = match disk.list(self.dir) {
            Err(error) if error.is_not_found() => return Ok(Listed::No),
            names => names?,
        };
        if !names.iter().any(|name| is_listed(name)) {
            return Ok(Listed::No);
        }
        // Another process may have made both meanwhile, the list first.
        Ok(match disk.exists(self.name)? {
            true => Listed::Yes,
            false => Listed::Lost,
        })
    }

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

    /// Removes the files of the folder of whose names `is_leftover` is true: the list that counts does not need
    /// them. That list is made durable first. A process that ended just after it was renamed may have left
    /// it otherwise, and after a loss of power the list before it would name files that are gone.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails.
    pub fn remove_leftovers(
        &self,
        disk: &dyn Disk,
        is_leftover: impl Fn(&str) -> bool,
    ) -> Result<(), DiskError> {
        disk.sync_dir(self.dir)?;
        for name in disk.list(self.dir)? {
            if is_leftover(&name) {
                disk.remove(&format!("{}/{name}", self.dir))?;
            }
        }
        Ok(())
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
                users: None,
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

    #[test]
    fn files_without_a_list_are_told_from_an_empty_folder() {
        let disk = FaultyDisk::new(1);
        let look = || LIST.look(&disk, |name| name.ends_with(".run")).unwrap();
        assert_eq!(look(), Listed::No);
        disk.create_dir(LIST.dir).unwrap();
        disk.create("some/lock").unwrap();
        assert_eq!(look(), Listed::No);
        disk.create("some/1.run").unwrap();
        assert_eq!(look(), Listed::Lost);
        LIST.prepare(&disk, b"1.run").unwrap();
        assert_eq!(look(), Listed::Lost);
        LIST.publish(&disk).unwrap();
        assert_eq!(look(), Listed::Yes);
    }

    #[test]
    fn what_only_the_list_before_names_goes_when_that_can_not_count_again() {
        for seed in 0..50 {
            let disk = FaultyDisk::new(seed);
            disk.create_dir(LIST.dir).unwrap();
            disk.sync_dir("").unwrap();
            disk.create("some/1.run").unwrap();
            LIST.prepare(&disk, b"1.run").unwrap();
            LIST.publish(&disk).unwrap();
            disk.create("some/2.run").unwrap();
            LIST.prepare(&disk, b"2.run").unwrap();
            // The process is killed here, and the next one goes on.
            disk.rename(LIST.temporary_name, LIST.name).unwrap();
            LIST.remove_leftovers(&disk, |name| name == "1.run")
                .unwrap();
            let disk = disk.crash();
            let named = disk.contents(LIST.name).unwrap();
            let named = format!("some/{}", String::from_utf8(named).unwrap());
            assert!(disk.exists(&named).unwrap(), "seed {seed}: {named}");
        }
    }
}

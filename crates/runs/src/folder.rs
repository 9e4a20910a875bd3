//! The folder of runs of one process: whether it may write there, and whether its list is known.

use crate::{ListFile, ListedRun, RunError};
use cambium_disk::{Disk, DiskLock};
use cambium_primitives::{BlockId, BlockNumber};
use std::sync::{Arc, OnceLock};

/// A folder of runs, open for reading or for writing.
///
/// After the list could not be replaced it is not known which one a crash would leave. From then on nothing is
/// written, and no file is removed.
pub struct Folder {
    disk: Arc<dyn Disk>,
    list: &'static ListFile,
    failure: OnceLock<String>,
    /// `None` if it is open for reading alone.
    lock: Option<DiskLock>,
}

impl Folder {
    /// Creates the handle of a folder, with its lock if it is open for writing.
    pub const fn new(disk: Arc<dyn Disk>, list: &'static ListFile, lock: Option<DiskLock>) -> Self {
        Self {
            disk,
            list,
            failure: OnceLock::new(),
            lock,
        }
    }

    /// Returns whether the folder is open for writing.
    pub const fn is_writer(&self) -> bool {
        self.lock.is_some()
    }

    /// Checks that the list on disk is known.
    ///
    /// # Errors
    ///
    /// [`RunError::Poisoned`] if it is not.
    pub fn check_sound(&self) -> Result<(), RunError> {
        match self.failure.get() {
            None => Ok(()),
            Some(cause) => Err(RunError::Poisoned {
                cause: cause.clone(),
            }),
        }
    }

    /// Checks that files may be written.
    ///
    /// # Errors
    ///
    /// [`RunError::ReadOnly`] and [`RunError::Poisoned`].
    pub fn check_writable(&self) -> Result<(), RunError> {
        match self.lock {
            Some(_) => self.check_sound(),
            None => Err(RunError::ReadOnly),
        }
    }

    /// Replaces the list. It is durable on return, and so are the names of files.
    ///
    /// # Errors
    ///
    /// Those of [`Folder::check_writable`] and of the disk. If the list could not be written, the one before
    /// counts; if it could not get its name, nothing is written any more.
    pub fn replace_list(&self, bytes: &[u8]) -> Result<(), RunError> {
        self.check_writable()?;
        self.list.prepare(&*self.disk, bytes)?;
        self.list
            .publish(&*self.disk)
            .inspect_err(|error| self.poison(error))?;
        Ok(())
    }

    /// Allows no more writes, because of this error.
    pub fn poison(&self, error: &impl ToString) {
        _ = self.failure.set(error.to_string());
    }

    /// Draws the number of the next file and the identity of the run in it. `next_file` is that of the list.
    pub fn new_file(&self, next_file: &mut u64) -> (u64, u64) {
        let file = *next_file;
        *next_file += 1;
        (file, self.disk.new_salt())
    }

    /// Returns a run of these blocks that is about to be written, in a file of its own.
    pub fn new_run(&self, next_file: &mut u64, first: BlockNumber, last: BlockId) -> ListedRun {
        let (file, identity) = self.new_file(next_file);
        ListedRun {
            file,
            first,
            last,
            identity,
        }
    }

    /// Removes files that are not listed any more. A reader removes none.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn remove(&self, names: impl IntoIterator<Item = String>) -> Result<(), RunError> {
        if self.is_writer() {
            for name in names {
                self.disk.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Removes a file that was written and is not listed. Without a known list it stays, and opening the folder
    /// removes it.
    pub fn discard(&self, name: &str) {
        if self.failure.get().is_none() {
            // Files that can't be removed now are removed when the folder is opened.
            _ = self.disk.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_disk::FaultyDisk;

    static LIST: ListFile = ListFile {
        dir: "some",
        name: "some/list",
        temporary_name: "some/list.tmp",
        lock_name: "some/lock",
        magic: b"SomeList",
        format: 1,
        oldest_format: 1,
        bytes_max: 1 << 20,
    };

    fn folder() -> (FaultyDisk, Folder) {
        let disk = FaultyDisk::new(1);
        disk.create_dir(LIST.dir).unwrap();
        disk.create("some/1.run").unwrap();
        let lock = LIST.lock(&disk).unwrap();
        let folder = Folder::new(Arc::new(disk.clone()), &LIST, Some(lock));
        folder.replace_list(b"one").unwrap();
        (disk, folder)
    }

    #[test]
    fn a_failure_leaves_the_list_known_or_ends_all_writes() {
        let (mut known, mut ended) = (0, 0);
        for calls in 0.. {
            let (disk, folder) = folder();
            disk.fail_call_after(calls);
            let replaced = folder.replace_list(b"two");
            disk.clear_faults();
            match (replaced, folder.check_writable()) {
                (Ok(()), _) => break,
                (Err(_), Ok(())) => {
                    known += 1;
                    assert_eq!(disk.contents(LIST.name).unwrap(), b"one");
                    folder.discard("some/1.run");
                    assert!(!disk.exists("some/1.run").unwrap());
                    folder.replace_list(b"two").unwrap();
                }
                (Err(_), Err(_)) => {
                    ended += 1;
                    let again = folder.replace_list(b"two");
                    assert!(matches!(again, Err(RunError::Poisoned { .. })));
                    folder.discard("some/1.run");
                    assert!(disk.exists("some/1.run").unwrap());
                }
            }
        }
        assert!(known > 0 && ended > 0, "{known} {ended}");
    }

    #[test]
    fn a_reader_writes_and_removes_nothing() {
        let (disk, writer) = folder();
        assert!(matches!(LIST.lock(&disk), Err(RunError::InUse { .. })));
        let reader = Folder::new(Arc::new(disk.clone()), &LIST, None);
        assert!(matches!(
            reader.replace_list(b"two"),
            Err(RunError::ReadOnly)
        ));
        reader.remove(["some/1.run".to_owned()]).unwrap();
        assert!(disk.exists("some/1.run").unwrap());
        writer.remove(["some/1.run".to_owned()]).unwrap();
        assert!(!disk.exists("some/1.run").unwrap());
        drop(writer);
        LIST.lock(&disk).unwrap();
    }
}

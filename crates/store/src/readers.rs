//! Processes that read a database while another one writes to it.
//!
//! An open file stays readable after its removal, so readers need no permission from the writer. A
//! reader only announces the checkpoint it uses, by locking a file in `readers/`. The kernel
//! releases the lock however the reader ends. So the writer knows which readers keep the space of
//! removed files, and for how long ([`UnlinkedFiles`]). A reader without write access to the directory
//! can't announce itself.

use crate::StoreError;
use cambium_disk::{Disk, DiskFile, DiskLock, LockError};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

const DIR: &str = "readers";

/// Maximum number of file names that a reader tries before it goes without an announcement.
const TRIES: u64 = 100;

/// Counter that distinguishes the readers of one process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Announcement that a process reads a checkpoint, withdrawn on drop.
#[derive(Debug)]
pub struct ReaderLock {
    disk: Arc<dyn Disk>,
    name: String,
    _lock: DiskLock,
}

impl ReaderLock {
    /// Announces that this process reads the checkpoint `sequence`. Returns `None` if the directory
    /// is not writable, if no writer has created `readers/` yet, or if something else is in its place.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be read.
    pub fn take(disk: &Arc<dyn Disk>, sequence: u64) -> Result<Option<Self>, StoreError> {
        if !disk.has_dir(DIR) {
            return Ok(None);
        }
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{DIR}/{sequence:08}-{}-{number}", std::process::id());
            match disk.lock(&name) {
                // The writer may have removed the file as a leftover before it was locked.
                Ok(lock) if disk.exists(&name)? => {
                    return Ok(Some(Self {
                        disk: disk.clone(),
                        name,
                        _lock: lock,
                    }));
                }
                Ok(_) | Err(LockError::Held { .. }) => {}
                Err(LockError::Disk(_)) => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl Drop for ReaderLock {
    fn drop(&mut self) {
        // The writer removes the file otherwise.
        let _ = self.disk.remove(&self.name);
    }
}

/// Parses the checkpoint's sequence number from the name of a reader's file.
fn sequence_of(name: &str) -> Option<u64> {
    name.split_once('-')?.0.parse().ok()
}

/// Creates the directory for readers' files. Errors are ignored: readers then can't announce
/// themselves, but the database remains usable.
pub fn create_readers_dir(disk: &dyn Disk) {
    if let Ok(false) = disk.exists(DIR) {
        let _ = disk.create_dir(DIR);
    }
}

/// Returns the sequence number of the checkpoint that each live reader uses, and removes the files
/// of readers that have ended. Ignores files that it may not open, such as those of other users,
/// and a missing directory or a link in its place, whose files would be somebody else's. Readers that are
/// ignored keep their files open, and are never cut off.
///
/// # Errors
///
/// [`StoreError::Disk`] if the directory can't be listed.
pub fn live_readers(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
    if !disk.has_dir(DIR) {
        return Ok(Vec::new());
    }
    let names = match disk.list(DIR) {
        Err(error) if error.is_not_found() || error.is_not_a_directory() => Vec::new(),
        names => names?,
    };
    let mut live = Vec::new();
    for name in names {
        let Some(sequence) = sequence_of(&name) else {
            continue;
        };
        let path = format!("{DIR}/{name}");
        match disk.lock(&path) {
            // If the removal fails, the next call repeats it.
            Ok(_gone) => _ = disk.remove(&path),
            Err(LockError::Held { .. }) => live.push(sequence),
            Err(LockError::Disk(_)) => {}
        }
    }
    Ok(live)
}

/// Removed files that readers may still have open. Their space is freed when the last reader closes
/// them. Files that a reader holds for too long are truncated.
#[derive(Debug, Default)]
pub struct UnlinkedFiles {
    files: Vec<LentFile>,
}

#[derive(Debug)]
struct LentFile {
    /// Newest checkpoint at the time of the removal. It and later ones don't need the file.
    since: u64,
    bytes: u64,
    file: Arc<dyn DiskFile>,
}

impl UnlinkedFiles {
    /// Adds a file of `bytes` that was removed while `since` was the newest checkpoint.
    pub fn add(&mut self, since: u64, bytes: u64, file: Arc<dyn DiskFile>) {
        self.files.push(LentFile { since, bytes, file });
    }

    /// Returns whether there are no such files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the number of bytes that readers may hold.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|lent| lent.bytes).sum()
    }

    /// Releases the files that no reader needs, and truncates those needed only by readers that are
    /// more than `lag_max` checkpoints behind `newest`. `readers` comes from [`live_readers`].
    pub fn settle(&mut self, readers: &[u64], newest: u64, lag_max: u64) {
        self.files.retain(|lent| {
            let mut needed_by = readers.iter().filter(|reader| **reader < lent.since);
            let Some(newest_reader) = needed_by.clone().max() else {
                return false;
            };
            debug_assert!(needed_by.next().is_some());
            if newest.saturating_sub(*newest_reader) <= lag_max {
                return true;
            }
            // A backup may have the file under another name. A file that can't be truncated is kept
            // until its reader ends.
            !matches!(lent.file.names(), Ok(0)) || lent.file.set_len(0).is_err()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_disk::{FaultyDisk, StdDisk};

    fn disks() -> Vec<(Arc<dyn Disk>, Option<tempfile::TempDir>)> {
        let dir = tempfile::tempdir().unwrap();
        let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
        vec![
            (faulty, None),
            (Arc::new(StdDisk::new(dir.path())), Some(dir)),
        ]
    }

    #[test]
    fn readers_are_known_until_they_are_gone() {
        for (disk, _dir) in disks() {
            assert!(ReaderLock::take(&disk, 3).unwrap().is_none());
            create_readers_dir(&*disk);
            let first = ReaderLock::take(&disk, 3).unwrap().unwrap();
            let second = ReaderLock::take(&disk, 12).unwrap().unwrap();
            // A killed reader leaves its file behind, but no lock.
            disk.create("readers/00000002-1-0").unwrap();
            disk.create("readers/note").unwrap();
            assert_eq!(live_readers(&*disk).unwrap(), [3, 12]);
            drop(first);
            assert_eq!(live_readers(&*disk).unwrap(), [12]);
            assert_eq!(disk.list(DIR).unwrap().len(), 2);
            drop(second);
            assert!(live_readers(&*disk).unwrap().is_empty());
            assert_eq!(disk.list(DIR).unwrap(), ["note"]);
        }
    }

    #[test]
    fn what_is_lent_comes_back_or_is_cut_off() {
        for (disk, _dir) in disks() {
            let mut lent = UnlinkedFiles::default();
            let file = |name: &str| {
                let file = disk.create(name).unwrap();
                file.write_at(&[1; 10], 0).unwrap();
                disk.remove(name).unwrap();
                file
            };
            let (old, new) = (file("old"), file("new"));
            lent.add(5, 10, old.clone());
            lent.add(8, 10, new.clone());
            assert_eq!(lent.bytes(), 20);
            lent.settle(&[4, 9], 8, 4);
            assert_eq!(lent.bytes(), 20);
            // The oldest reader is too far behind, except for a file that it shares with another.
            lent.settle(&[4, 7], 9, 4);
            assert_eq!(lent.bytes(), 10);
            assert_eq!((old.len().unwrap(), new.len().unwrap()), (0, 10));
            lent.settle(&[4, 9], 9, 9);
            assert!(!lent.is_empty());
            lent.settle(&[9], 10, 9);
            assert!(lent.is_empty());
            assert_eq!(new.len().unwrap(), 10);
        }
    }
}

//! Processes that read a database beside the one that writes it.
//!
//! Files that a reader has open stay readable when their names are gone, so a reader needs nobody's
//! leave. It only tells which checkpoint it is at, by a file in `readers/` that it holds a lock on:
//! the kernel releases that when the reader ends in whatever way. So the writer knows who keeps the
//! space of removed files, and for how long ([`LentFiles`]). A reader that may not write to the
//! directory can't tell.

use crate::StoreError;
use cambium_disk::{Disk, DiskFile, DiskLock, LockError};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

const DIR: &str = "readers";

/// Names are tried so often until one is free.
const TRIES: u64 = 100;

/// Distinguishes the readers of one process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Tells that a checkpoint is read, until it is dropped.
#[derive(Debug)]
pub struct ReaderLock {
    disk: Arc<dyn Disk>,
    name: String,
    _lock: DiskLock,
}

impl ReaderLock {
    /// Tells that checkpoint `sequence` is read. `None` where the directory may not be written to, or
    /// nobody who writes has opened the database since there are readers.
    pub fn take(disk: &Arc<dyn Disk>, sequence: u64) -> Result<Option<Self>, StoreError> {
        if !disk.exists(DIR)? {
            return Ok(None);
        }
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{DIR}/{sequence:08}-{}-{number}", std::process::id());
            match disk.lock(&name) {
                // Whoever writes may have taken it for one that was left behind.
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
        // Whoever writes removes what is left.
        let _ = self.disk.remove(&self.name);
    }
}

/// The checkpoint that a reader's file names.
fn sequence_of(name: &str) -> Option<u64> {
    name.split_once('-')?.0.parse().ok()
}

/// Makes the directory in which readers tell that they are there. Where it can't be made they tell
/// nobody, and that is no reason to write nothing.
pub fn make_room_for_readers(disk: &dyn Disk) {
    if let Ok(false) = disk.exists(DIR) {
        let _ = disk.create_dir(DIR);
    }
}

/// The checkpoints that readers are at, one for each reader; files of readers that are gone are
/// removed. A file that can't be locked, since it is another user's or a link, say, counts as none, and
/// so do all where there is no directory: their reader has what it reads open, and is cut off from
/// nothing.
pub fn live_readers(disk: &dyn Disk) -> Result<Vec<u64>, StoreError> {
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
            // Where it can't be removed now, it is tried again next time.
            Ok(_gone) => _ = disk.remove(&path),
            Err(LockError::Held { .. }) => live.push(sequence),
            Err(LockError::Disk(_)) => {}
        }
    }
    Ok(live)
}

/// Files that were removed and that readers may have open still: their space comes free when the
/// last reader closes them. One that keeps them for too long has them cut off.
#[derive(Debug, Default)]
pub struct LentFiles {
    files: Vec<LentFile>,
}

#[derive(Debug)]
struct LentFile {
    /// The newest checkpoint when it was removed: none from there on needs it.
    since: u64,
    bytes: u64,
    file: Arc<dyn DiskFile>,
}

impl LentFiles {
    /// A file of so many `bytes` was removed, with checkpoint `since` as the newest.
    pub fn add(&mut self, since: u64, bytes: u64, file: Arc<dyn DiskFile>) {
        self.files.push(LentFile { since, bytes, file });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes that readers may keep.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|lent| lent.bytes).sum()
    }

    /// Lets go of what none of the `readers` needs, of which [`live_readers`] tells; and cuts off
    /// what is needed only by those that are more than `lag_max` checkpoints behind the `newest`.
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
            // A copy of the database may have it under another name. Where it can't be cut off, it
            // stays until its reader is gone.
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
            make_room_for_readers(&*disk);
            let first = ReaderLock::take(&disk, 3).unwrap().unwrap();
            let second = ReaderLock::take(&disk, 12).unwrap().unwrap();
            // One that was killed has left its file, and no lock.
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
            let mut lent = LentFiles::default();
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
            // The oldest reader is too far behind, but for one that it shares with another.
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

//! Options of a store, and where it is.

use cambium_disk::{Disk, StdDisk};
use cambium_state::{FileSizes, LeafKind, Options};
use cambium_trie::{Blake3, Commitment};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Options with which a store is created or opened.
#[derive(Clone, Copy, Debug)]
pub struct KvOptions {
    /// Commitment of the roots. An existing store keeps the one that it was created with; a hash function of the
    /// caller's own has to be given again.
    pub commitment: Commitment,
    /// Number of commits of an interval, for creating a store under [`Commitment::Layered`], which needs it, and under
    /// no other commitment. An existing store keeps its own, and ignores this. Verifiers of commits need it, too.
    pub merge_interval_commits: Option<u64>,
    /// Memory budget of the whole store, in bytes.
    pub memory_bytes: u64,
    /// Number of newest commits that can be rolled back and read, or 64 if it is less: below the highest number that
    /// a commit has had, since what has left the log does not come back with a rollback. `None` for all.
    pub keep_commits: Option<u64>,
    /// Memory for the keys of the newest commits, in bytes: a transaction that began before these
    /// can't be validated. 32 bytes a key; part of [`KvOptions::memory_bytes`], of which it is a
    /// sixteenth if `None`.
    pub conflict_window_bytes: Option<u64>,
    /// Sizes of files.
    pub files: FileSizes,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            commitment: Commitment::Binary(&Blake3),
            merge_interval_commits: None,
            memory_bytes: 1 << 30,
            keep_commits: None,
            conflict_window_bytes: None,
            files: FileSizes::default(),
        }
    }
}

impl KvOptions {
    /// The engine's options.
    pub(crate) fn engine(&self) -> Options {
        Options {
            memory_bytes: self.memory_bytes.saturating_sub(self.window_bytes()),
            keep_blocks: self.keep_commits,
            files: self.files,
            commitment: self.commitment,
            merge_interval_blocks: self.merge_interval_commits,
            leaves: LeafKind::Entries,
            ..Options::default()
        }
    }

    /// The engine's options, for an existing store, which has its own commitment and interval.
    pub(crate) fn for_existing(&self) -> Options {
        let mut options = self.engine();
        options.merge_interval_blocks = None;
        if options.commitment == Commitment::Layered {
            options.commitment = Commitment::default();
        }
        options
    }

    /// Memory for the keys of the newest commits, in bytes.
    pub(crate) const fn window_bytes(&self) -> u64 {
        match self.conflict_window_bytes {
            Some(bytes) => bytes,
            None => self.memory_bytes / 16,
        }
    }
}

/// Where a store is: a directory of the file system, or any [`Disk`].
#[derive(Clone)]
pub struct Location(Arc<dyn Disk>);

impl Location {
    pub(crate) fn into_disk(self) -> Arc<dyn Disk> {
        self.0
    }
}

impl From<&Path> for Location {
    fn from(directory: &Path) -> Self {
        Self(Arc::new(StdDisk::new(directory)))
    }
}

impl From<PathBuf> for Location {
    fn from(directory: PathBuf) -> Self {
        directory.as_path().into()
    }
}

impl From<&str> for Location {
    fn from(directory: &str) -> Self {
        Path::new(directory).into()
    }
}

impl From<Arc<dyn Disk>> for Location {
    fn from(disk: Arc<dyn Disk>) -> Self {
        Self(disk)
    }
}

impl<D: Disk + 'static> From<Arc<D>> for Location {
    fn from(disk: Arc<D>) -> Self {
        Self(disk)
    }
}

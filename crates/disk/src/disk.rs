//! The two traits, and what passes through them.

use crate::{DiskError, LockError};
use std::{any::Any, fmt, sync::Arc};

/// A place for files. Names are relative to its root; `""` is the root itself.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a file for reading and writing. An error if the name exists. The new name survives
    /// a power loss only after [`Disk::sync_dir`] of its directory.
    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Whether the file or directory exists.
    fn exists(&self, path: &str) -> Result<bool, DiskError>;

    /// Renames a file within its directory, in place of any file that has the name `to`.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file. Those who have it open keep reading it.
    fn remove(&self, path: &str) -> Result<(), DiskError>;

    /// The names in a directory, sorted, without the directory's own.
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError>;

    /// Creates a directory and those above it. No error if it exists.
    fn create_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Makes the names in a directory survive a power loss.
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Takes the lock that the file `path` stands for, creating the file at need, and leaves our
    /// process id in it. Released when the guard is dropped, or the process ends in any way.
    fn lock(&self, path: &str) -> Result<DiskLock, LockError>;

    /// Bytes that can still be written.
    fn free_bytes(&self) -> Result<u64, DiskError>;

    /// `path` as its owner may look it up: for messages.
    fn display_path(&self, path: &str) -> String;

    /// Reads many ranges of any files, leaving the outcome of each in its request.
    ///
    /// This is the place for a disk that can keep many reads in flight. By default they are made one
    /// after the other.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.outcome = request.file.read_at(request.buf, request.offset);
        }
    }
}

/// An open file. All methods take `&self`: positions are explicit, and any number of threads may
/// read while one writes elsewhere in the file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Fills `buf` with what is at `offset`. An error if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`. Beyond the end, the gap reads as zeros.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError>;

    /// Length in bytes.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Makes all that was written, and the length, survive a power loss. After an error the
    /// unsynced writes may be lost for good, whatever later syncs return.
    fn sync(&self) -> Result<(), DiskError>;
}

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where to read from.
    pub file: &'a dyn DiskFile,
    /// First byte.
    pub offset: u64,
    /// To be filled.
    pub buf: &'a mut [u8],
    /// What became of it. `Ok` before the read, too.
    pub outcome: Result<(), DiskError>,
}

impl<'a> ReadRequest<'a> {
    /// A read of `buf.len()` bytes at `offset`.
    pub const fn new(file: &'a dyn DiskFile, offset: u64, buf: &'a mut [u8]) -> Self {
        Self {
            file,
            offset,
            buf,
            outcome: Ok(()),
        }
    }
}

/// A lock held until it is dropped.
pub struct DiskLock(#[expect(dead_code, reason = "held for its Drop")] Box<dyn Any + Send + Sync>);

impl DiskLock {
    /// A lock that dropping `guard` releases.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskLock")
    }
}

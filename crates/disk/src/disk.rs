//! The traits of disks and files, and the types of their methods.

use crate::{DiskError, DiskStats, LockError};
use std::{
    any::Any,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    path::PathBuf,
    sync::Arc,
};

/// Block size of direct access in bytes: writes begin and end at multiples of it.
pub const BLOCK_BYTES: usize = 4096;

/// Rounds a number of bytes up to whole blocks of [`BLOCK_BYTES`].
#[must_use]
pub const fn whole_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64) * BLOCK_BYTES as u64
}

/// Access mode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes go through the page cache of the system.
    Cached,
    /// Reads and writes bypass the page cache if the file system supports it, and use it otherwise.
    /// A read of any range takes one device read of the blocks that it touches. Writes must consist
    /// of whole blocks of [`BLOCK_BYTES`].
    Direct,
}

/// A directory tree of files. Names are relative to its root, `""` is the root itself.
///
/// Methods that return a `Result` fail if the system refuses the operation.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a file for reading and writing. The new name is durable only after
    /// [`Disk::sync_dir`] of its directory.
    ///
    /// # Errors
    ///
    /// Returns an error if the name exists.
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    ///
    /// [`DiskError::is_not_found`] if there is no such file.
    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Creates a file with cached access, like [`Disk::create_with`].
    ///
    /// # Errors
    ///
    /// As [`Disk::create_with`].
    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.create_with(path, Access::Cached)
    }

    /// Opens a file with cached access, like [`Disk::open_with`].
    ///
    /// # Errors
    ///
    /// As [`Disk::open_with`].
    fn open(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open_with(path, Access::Cached)
    }

    /// Returns whether the file or directory exists.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot tell, for instance for want of permissions.
    fn exists(&self, path: &str) -> Result<bool, DiskError>;

    /// Returns whether `dir` is a directory of the disk itself, not a symbolic link to one. Returns false on an error.
    fn has_dir(&self, dir: &str) -> bool {
        self.exists(dir).unwrap_or(false)
    }

    /// Renames a file within its directory. Replaces any file named `to`, atomically.
    ///
    /// # Errors
    ///
    /// [`DiskError::is_not_found`] if there is no file `from`.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Creates a hard link `to` on this disk to the file `path` of another disk. Returns false if
    /// that is impossible. The new name is as durable as that of a new file.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails; a link that is not possible is `Ok(false)`.
    fn link(&self, from: &dyn Disk, path: &str, to: &str) -> Result<bool, DiskError> {
        let _ = (from, path, to);
        Ok(false)
    }

    /// Returns the path of a file in the file system, if the disk is in one.
    fn real_path(&self, path: &str) -> Option<PathBuf> {
        let _ = path;
        None
    }

    /// Removes a file. Open handles stay readable.
    ///
    /// # Errors
    ///
    /// [`DiskError::is_not_found`] if there is no such file.
    fn remove(&self, path: &str) -> Result<(), DiskError>;

    /// Returns the sorted names in a directory, relative to it.
    ///
    /// # Errors
    ///
    /// [`DiskError::is_not_found`] if there is no such directory.
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError>;

    /// Creates a directory and its parents. Succeeds if it exists.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails, or if a file has the name.
    fn create_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails: the names may then be lost.
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Locks the file `path`, creates it if it is missing, and writes the process id to it. The
    /// lock is released when the guard is dropped or the process ends.
    ///
    /// # Errors
    ///
    /// Returns [`LockError::Held`] if another process has the lock, and an error of the disk if the
    /// file is a symbolic link.
    fn lock(&self, path: &str) -> Result<DiskLock, LockError>;

    /// Returns a random number, which identifies a new database or file. It comes from the disk so that a
    /// test can write the same bytes twice.
    fn new_salt(&self) -> u64 {
        random_salt()
    }

    /// Returns the free space in bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot tell.
    fn free_bytes(&self) -> Result<u64, DiskError>;

    /// Returns `path` in the form for messages.
    fn display_path(&self, path: &str) -> String;

    /// Reads many ranges of any files, in parallel where the disk supports it. Stores the outcome
    /// of each read in its request. Any number of threads may call it concurrently.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]);

    /// Creates a queue of reads, for one thread that submits reads as it learns of them and takes
    /// the finished ones later. The disk has up to `depth` of them in flight at a time, and the
    /// rest wait in the queue. A disk without a queue of its own executes each read when it is
    /// submitted.
    fn read_queue(&self, depth: usize) -> Box<dyn ReadQueue> {
        let _ = depth;
        Box::new(PlainQueue::default())
    }

    /// Returns the memory held for reads, in bytes.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Returns the counters of operations so far.
    fn stats(&self) -> DiskStats;

    /// Describes how the disk reads and writes.
    fn describe(&self) -> DiskDescription;
}

/// Draws a salt. The standard library seeds `RandomState` from the operating system's randomness.
pub(crate) fn random_salt() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// An open file. Positions are explicit, so all methods take `&self`, and any number of threads may
/// read while one writes elsewhere in the file.
pub trait DiskFile: Any + Send + Sync + fmt::Debug {
    /// Fills `buf` with the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file ends before the last byte.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`. A gap between the end of the file and `offset` reads as
    /// zeros.
    ///
    /// # Errors
    ///
    /// Returns an error if access is direct and the range is not whole blocks of [`BLOCK_BYTES`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError>;

    /// Returns the number of names of the file: 0 if it was removed, more than 1 if it is linked.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot tell.
    fn names(&self) -> Result<u64, DiskError>;

    /// Returns the length in bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot tell.
    fn len(&self) -> Result<u64, DiskError>;

    /// Returns whether the file is empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot tell the length.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Truncates the file to `len` bytes, or extends it with zeros.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails or is full. The length may then be the old or the new one.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Frees the space of a range, which reads as zeros afterwards. The length does not change.
    /// Like a write, the hole is durable only after a sync.
    ///
    /// # Errors
    ///
    /// Returns an error with [`DiskError::is_unsupported`] if the file system has no holes.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError>;

    /// Makes all writes and the length durable.
    ///
    /// # Errors
    ///
    /// After an error the unsynced writes may be lost permanently, even if later syncs succeed.
    fn sync(&self) -> Result<(), DiskError>;
}

/// Returns an error if access is direct and `len` bytes at `offset` are not whole blocks.
pub(crate) fn check_write(access: Access, len: usize, offset: u64) -> io::Result<()> {
    let is_whole = len.is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES as u64);
    if access == Access::Direct && !is_whole {
        let what = format!("{len} bytes are not whole blocks of {BLOCK_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// The file to read.
    pub file: &'a (dyn DiskFile + 'static),
    /// Offset of the first byte.
    pub offset: u64,
    /// Buffer for the bytes.
    pub buf: &'a mut [u8],
    /// Outcome of the read. `Ok` before the read.
    pub outcome: Result<(), DiskError>,
}

impl<'a> ReadRequest<'a> {
    /// Creates a request for `buf.len()` bytes at `offset`.
    pub const fn new(file: &'a (dyn DiskFile + 'static), offset: u64, buf: &'a mut [u8]) -> Self {
        Self {
            file,
            offset,
            buf,
            outcome: Ok(()),
        }
    }
}

/// A read that owns its buffer.
#[derive(Debug)]
pub struct QueuedRead {
    /// The file to read. It is kept open until the read is finished.
    pub file: Arc<dyn DiskFile>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Buffer for the bytes. Its length is the length of the read.
    pub bytes: Vec<u8>,
    /// Number with which [`FinishedRead`] identifies the read. The queue does not interpret it.
    pub tag: u64,
}

impl QueuedRead {
    /// Executes the read, and waits for it.
    pub(crate) fn execute(mut self) -> FinishedRead {
        let outcome = self.file.read_at(&mut self.bytes, self.offset);
        self.finish(outcome)
    }

    pub(crate) fn finish(self, outcome: Result<(), DiskError>) -> FinishedRead {
        FinishedRead {
            tag: self.tag,
            bytes: self.bytes,
            outcome,
        }
    }
}

/// A read that a [`ReadQueue`] has finished.
#[derive(Debug)]
pub struct FinishedRead {
    /// Number that the caller gave the read.
    pub tag: u64,
    /// Buffer of the read, with its length unchanged. Its content is unspecified after an error.
    pub bytes: Vec<u8>,
    /// Outcome of the read.
    pub outcome: Result<(), DiskError>,
}

/// A queue of reads, made by [`Disk::read_queue`]. Each submitted read is handed out by one later
/// [`ReadQueue::poll`], in any order.
///
/// Dropping the queue abandons the reads that were not handed out. It may wait for those that the
/// device has begun.
pub trait ReadQueue: Send {
    /// Adds a read. It may begin only with the next call of [`ReadQueue::poll`], which passes all
    /// reads submitted before it to the system at once. Errors are in the outcome of the read.
    fn submit(&mut self, read: QueuedRead);

    /// Returns the number of reads that were submitted and not yet handed out.
    fn in_flight(&self) -> usize;

    /// Begins submitted reads, and appends finished ones to `finished`. With `wait`, returns only
    /// with at least one, unless none is in flight.
    fn poll(&mut self, wait: bool, finished: &mut Vec<FinishedRead>);
}

/// A queue that executes each read when it is submitted.
#[derive(Default)]
pub(crate) struct PlainQueue {
    finished: Vec<FinishedRead>,
}

impl ReadQueue for PlainQueue {
    fn submit(&mut self, read: QueuedRead) {
        self.finished.push(read.execute());
    }

    fn in_flight(&self) -> usize {
        self.finished.len()
    }

    fn poll(&mut self, _: bool, finished: &mut Vec<FinishedRead>) {
        finished.append(&mut self.finished);
    }
}

/// Description of how a disk reads and writes, for reports. Parts that were not used yet may be
/// unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskDescription {
    /// Method of batch reads: `io_uring`, `threads` or `memory`.
    pub batch_reads: &'static str,
    /// Reason why io_uring is not used.
    pub no_uring_because: Option<String>,
    /// Whether any file bypasses the page cache.
    pub is_direct: bool,
    /// Reason why a file opened for direct access does not bypass the page cache.
    pub not_direct_because: Option<String>,
}

impl fmt::Display for DiskDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = |f: &mut fmt::Formatter<'_>, what, why: &Option<String>| {
            why.as_ref()
                .map_or(Ok(()), |why| write!(f, " ({what}: {why})"))
        };
        write!(f, "batches by {}", self.batch_reads)?;
        because(f, "no io_uring", &self.no_uring_because)?;
        let access = if self.is_direct { "direct" } else { "cached" };
        write!(f, ", access {access}")?;
        because(f, "not direct", &self.not_direct_because)
    }
}

/// A lock that is held until it is dropped.
pub struct DiskLock(#[expect(dead_code, reason = "held for its Drop")] Box<dyn Any + Send + Sync>);

impl DiskLock {
    /// Creates a lock that is released by dropping `guard`.
    pub fn new(guard: impl Any + Send + Sync) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskLock")
    }
}

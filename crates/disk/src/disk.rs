//! The two traits, and what passes through them.

use crate::{DiskError, DiskStats, LockError};
use std::{any::Any, fmt, io, path::PathBuf, sync::Arc};

/// Writes to files with direct access begin and end at multiples of this.
pub const BLOCK_BYTES: usize = 4096;

/// How the bytes of a file travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the system's page cache.
    Cached,
    /// Past the page cache, where the file system can. Any range can be read, which costs one read
    /// of the device's blocks that it touches; what is written is whole blocks of [`BLOCK_BYTES`].
    /// Where the file system can't, the same holds, through the cache.
    Direct,
}

/// A place for files. Names are relative to its root; `""` is the root itself.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a file for reading and writing. An error if the name exists. The new name survives
    /// a power loss only after [`Disk::sync_dir`] of its directory.
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Opens an existing file for reading and writing.
    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// [`Disk::create_with`] cached access.
    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.create_with(path, Access::Cached)
    }

    /// [`Disk::open_with`] cached access.
    fn open(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open_with(path, Access::Cached)
    }

    /// Whether the file or directory exists.
    fn exists(&self, path: &str) -> Result<bool, DiskError>;

    /// Renames a file within its directory, in place of any file that has the name `to`.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Gives the file `path` of another disk the name `to` on this one as well, and says whether that
    /// can be: both names are then of one file. The new name is as durable as that of a new file.
    fn link(&self, from: &dyn Disk, path: &str, to: &str) -> Result<bool, DiskError> {
        let _ = (from, path, to);
        Ok(false)
    }

    /// Where the file system has a file, if it is in one.
    fn real_path(&self, path: &str) -> Option<PathBuf> {
        let _ = path;
        None
    }

    /// Removes a file. Those who have it open keep reading it.
    fn remove(&self, path: &str) -> Result<(), DiskError>;

    /// The names in a directory, sorted, without the directory's own.
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError>;

    /// Creates a directory and those above it. No error if it exists.
    fn create_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Makes the names in a directory survive a power loss.
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Takes the lock that the file `path` stands for, creating the file at need, and leaves our
    /// process id in it. An error if there is a symbolic link instead. Released when the guard is dropped, or the process ends in any way.
    fn lock(&self, path: &str) -> Result<DiskLock, LockError>;

    /// Bytes that can still be written.
    fn free_bytes(&self) -> Result<u64, DiskError>;

    /// `path` as its owner may look it up: for messages.
    fn display_path(&self, path: &str) -> String;

    /// Reads many ranges of any files, as many at once as the disk can, leaving the outcome of each
    /// in its request. Any number of threads may do so at once.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]);

    /// Memory that it holds for reads, in bytes.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// What this disk did so far.
    fn stats(&self) -> DiskStats;

    /// How this disk does its work.
    fn describe(&self) -> DiskDescription;
}

/// An open file. All methods take `&self`: positions are explicit, and any number of threads may
/// read while one writes elsewhere in the file.
pub trait DiskFile: Any + Send + Sync + fmt::Debug {
    /// Fills `buf` with what is at `offset`. An error if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`. Beyond the end, the gap reads as zeros. An error if the
    /// file's access is direct, and these are not whole blocks of [`BLOCK_BYTES`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError>;

    /// How many names the file has: none once it is removed, and more than one if it is linked.
    fn names(&self) -> Result<u64, DiskError>;

    /// Length in bytes.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Gives the space of a range back to the file system: it reads as zeros from now on. The
    /// file's length stays. Like a write, this survives a power loss for certain only after a sync.
    /// [`DiskError::is_unsupported`] where the file system has no holes.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError>;

    /// Makes all that was written, and the length, survive a power loss. After an error the
    /// unsynced writes may be lost for good, whatever later syncs return.
    fn sync(&self) -> Result<(), DiskError>;
}

/// An error if a file with this access can't take a write of `len` bytes at `offset`.
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
    /// Where to read from.
    pub file: &'a (dyn DiskFile + 'static),
    /// First byte.
    pub offset: u64,
    /// To be filled.
    pub buf: &'a mut [u8],
    /// What became of it. `Ok` before the read, too.
    pub outcome: Result<(), DiskError>,
}

impl<'a> ReadRequest<'a> {
    /// A read of `buf.len()` bytes at `offset`.
    pub const fn new(file: &'a (dyn DiskFile + 'static), offset: u64, buf: &'a mut [u8]) -> Self {
        Self {
            file,
            offset,
            buf,
            outcome: Ok(()),
        }
    }
}

/// How a disk does its work: for reports. What was not needed yet may not be known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskDescription {
    /// How batches are read: `io_uring`, `threads` or `memory`.
    pub batch_reads: &'static str,
    /// Why not by io_uring.
    pub no_uring_because: Option<String>,
    /// Whether there are files that bypass the page cache.
    pub is_direct: bool,
    /// Why some file does not although it was asked to.
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

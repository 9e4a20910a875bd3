//! A disk on which unreadable blocks read as zeros, for repairs.

use crate::{
    Access, BLOCK_BYTES, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats,
    LockError, ReadRequest,
};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Number of retries of a failed read of a block.
const TRIES: u32 = 3;
/// Pause between retries.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of unreadable ranges that are recorded.
const RANGES_MAX: usize = 1000;

/// A wrapper of a disk on which blocks that the device cannot read, even after retries, read as
/// zeros. A checksum then detects the damage, and the rest stays readable. Such blocks can be
/// overwritten, also in parts. All other errors are passed on.
#[derive(Clone)]
pub struct SalvageDisk {
    disk: Arc<dyn Disk>,
    ranges: Arc<Mutex<Vec<UnreadableRange>>>,
}

/// A range of a file that the device cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRange {
    /// Name of the file.
    pub file: String,
    /// Offset of the range in bytes, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
}

impl SalvageDisk {
    /// Wraps `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            ranges: Arc::default(),
        }
    }

    /// Returns the unreadable ranges found so far, in no particular order. Their number is limited.
    pub fn unreadable(&self) -> Vec<UnreadableRange> {
        self.ranges().clone()
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<UnreadableRange>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, path: &str, file: Arc<dyn DiskFile>, access: Access) -> Arc<dyn DiskFile> {
        Arc::new(SalvageFile {
            disk: self.clone(),
            path: path.to_owned(),
            file,
            access,
        })
    }

    /// Records the block at `offset`.
    fn note(&self, file: &str, offset: u64) {
        let block = BLOCK_BYTES as u64;
        let mut ranges = self.ranges();
        let mut next_to = None;
        for range in ranges.iter_mut().filter(|range| range.file == file) {
            let end = range.offset + range.len;
            if (range.offset..end).contains(&offset) {
                return;
            }
            if offset == end {
                next_to = Some(range);
            }
        }
        if let Some(range) = next_to {
            range.len += block;
            return;
        }
        if ranges.len() < RANGES_MAX {
            ranges.push(UnreadableRange {
                file: file.to_owned(),
                offset,
                len: block,
            });
        }
    }
}

impl fmt::Debug for SalvageDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SalvageDisk({:?})", self.disk)
    }
}

impl Disk for SalvageDisk {
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(self.file(path, self.disk.create_with(path, access)?, access))
    }

    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(self.file(path, self.disk.open_with(path, access)?, access))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.disk.exists(path)
    }

    fn has_dir(&self, dir: &str) -> bool {
        self.disk.has_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<DiskLock, LockError> {
        self.disk.lock(path)
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.disk.free_bytes()
    }

    fn display_path(&self, path: &str) -> String {
        self.disk.display_path(path)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.outcome = request.file.read_at(request.buf, request.offset);
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.disk.memory_bytes()
    }

    fn stats(&self) -> DiskStats {
        self.disk.stats()
    }

    fn describe(&self) -> DiskDescription {
        self.disk.describe()
    }
}

struct SalvageFile {
    disk: SalvageDisk,
    path: String,
    file: Arc<dyn DiskFile>,
    access: Access,
}

impl fmt::Debug for SalvageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SalvageFile({:?})", self.file)
    }
}

impl SalvageFile {
    /// Reads with retries. Returns false if the device cannot read the block.
    fn can_read(&self, buf: &mut [u8], offset: u64, tries: u32) -> Result<bool, DiskError> {
        for left in (0..tries).rev() {
            match self.file.read_at(buf, offset) {
                Ok(()) => return Ok(true),
                Err(error) if !error.is_unreadable() => return Err(error),
                Err(_) if left > 0 => thread::sleep(PAUSE),
                Err(_) => {}
            }
        }
        Ok(false)
    }
}

impl DiskFile for SalvageFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        if self.can_read(buf, offset, 1)? {
            return Ok(());
        }
        let block = BLOCK_BYTES as u64;
        let (mut at, end) = (offset, offset + buf.len() as u64);
        while at < end {
            let next = ((at / block + 1) * block).min(end);
            let part = &mut buf[(at - offset) as usize..(next - offset) as usize];
            if !self.can_read(part, at, TRIES)? {
                part.fill(0);
                self.disk.note(&self.path, at / block * block);
            }
            at = next;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        match self.file.write_at(bytes, offset) {
            Err(error) if error.is_unreadable() && self.access == Access::Cached => {
                // Writing a part of a block means reading it and writing the whole block.
                let block = BLOCK_BYTES as u64;
                let start = offset / block * block;
                let end = (offset + bytes.len() as u64).next_multiple_of(block);
                let end = end.min(self.file.len()?.max(offset + bytes.len() as u64));
                let mut whole = vec![0; (end - start) as usize];
                let there = self.file.len()?.saturating_sub(start).min(end - start);
                self.read_at(&mut whole[..there as usize], start)?;
                whole[(offset - start) as usize..][..bytes.len()].copy_from_slice(bytes);
                self.file.write_at(&whole, start)
            }
            written => written,
        }
    }

    fn names(&self) -> Result<u64, DiskError> {
        self.file.names()
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.file.punch_hole(offset, len)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync()
    }
}

//! Copies of files on another disk.

use crate::{Access, Disk, DiskError, DiskFile};
use std::ops::{Add, Range};

/// Bytes that are copied at a time. A multiple of the device's block size.
const COPY_BYTES: usize = 1 << 20;

/// Copies the bytes `range` of `source` to `target`, starting at its offset `at`. Calls `progress`
/// with the length of each piece after writing it.
///
/// # Errors
///
/// Returns an error if a file can't be read or written, or if the source ends before the range does.
pub fn copy_range(
    source: &dyn DiskFile,
    range: Range<u64>,
    target: &dyn DiskFile,
    at: u64,
    mut progress: impl FnMut(u64),
) -> Result<(), DiskError> {
    let bytes = range.end.saturating_sub(range.start);
    let mut piece = vec![0; bytes.min(COPY_BYTES as u64) as usize];
    let mut done = 0;
    while done < bytes {
        let take = (bytes - done).min(piece.len() as u64) as usize;
        source.read_at(&mut piece[..take], range.start + done)?;
        target.write_at(&piece[..take], at + done)?;
        done += take as u64;
        progress(take as u64);
    }
    Ok(())
}

/// Size of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSizes {
    /// Number of files that are hard links to immutable files of the source.
    pub linked_files: u64,
    /// Bytes in these files, which take no additional space.
    pub linked_bytes: u64,
    /// Number of files that were copied.
    pub copied_files: u64,
    /// Bytes that were written to these.
    pub copied_bytes: u64,
}

impl Add for BackupSizes {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            linked_files: self.linked_files + more.linked_files,
            linked_bytes: self.linked_bytes + more.linked_bytes,
            copied_files: self.copied_files + more.copied_files,
            copied_bytes: self.copied_bytes + more.copied_bytes,
        }
    }
}

/// Translates the display name of a file of the copy to that of the original, for errors in a copy that is going to be
/// removed. Other names are returned unchanged.
pub fn name_in_original(name: String, from: &dyn Disk, to: &dyn Disk) -> String {
    match name.strip_prefix(&to.display_path("")) {
        Some(file) => format!("{}{file}", from.display_path("")),
        None => name,
    }
}

/// Copies files from one disk to another, and counts them.
pub struct FileCopier<'a> {
    from: &'a dyn Disk,
    to: &'a dyn Disk,
    sizes: BackupSizes,
    progress: &'a mut dyn FnMut(&BackupSizes),
}

impl<'a> FileCopier<'a> {
    /// A copier from one disk to another. `progress` is called with the sizes so far.
    pub fn new(
        from: &'a dyn Disk,
        to: &'a dyn Disk,
        progress: &'a mut dyn FnMut(&BackupSizes),
    ) -> Self {
        Self {
            from,
            to,
            sizes: BackupSizes::default(),
            progress,
        }
    }

    /// The files that were linked and copied so far.
    pub const fn sizes(&self) -> BackupSizes {
        self.sizes
    }

    /// Hard-links an immutable file. Returns false if the disks don't support that.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such file, or the disk fails.
    pub fn link(&mut self, name: &str, as_name: &str) -> Result<bool, DiskError> {
        let is_linked = self.to.link(self.from, name, as_name)?;
        if is_linked {
            self.sizes.linked_files += 1;
            self.sizes.linked_bytes += self.to.open(as_name)?.len()?;
            (self.progress)(&self.sizes);
        }
        Ok(is_linked)
    }

    /// Copies the first `len` bytes of a file, and syncs the copy.
    ///
    /// # Errors
    ///
    /// Returns an error if there is a file of that name already, or a disk fails.
    pub fn copy(&mut self, file: &dyn DiskFile, as_name: &str, len: u64) -> Result<(), DiskError> {
        let to = self.to.create_with(as_name, Access::Cached)?;
        copy_range(file, 0..len, &*to, 0, |bytes| {
            self.sizes.copied_bytes += bytes;
            (self.progress)(&self.sizes);
        })?;
        to.sync()?;
        self.sizes.copied_files += 1;
        Ok(())
    }
}

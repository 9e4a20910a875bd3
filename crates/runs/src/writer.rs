//! Writing the file of a run: pages, sections, trailer.

use crate::PAGE_BYTES;
use cambium_disk::{Access, Disk, DiskError, DiskFile, WritePace, whole_blocks};
use std::sync::Arc;

/// Writes the file of a run in large pieces.
pub struct FileWriter {
    file: Arc<dyn DiskFile>,
    /// Whole blocks that are not written yet.
    buffer: Vec<u8>,
    buffer_bytes: usize,
    pages: u64,
    written: u64,
    pace: Arc<WritePace>,
}

impl FileWriter {
    /// Creates the file `name`. It is written in pieces of about `buffer_bytes` bytes.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn create(
        disk: &dyn Disk,
        name: &str,
        buffer_bytes: usize,
        pace: Arc<WritePace>,
    ) -> Result<Self, DiskError> {
        Ok(Self {
            file: disk.create_with(name, Access::Direct)?,
            buffer: Vec::with_capacity(buffer_bytes + PAGE_BYTES),
            buffer_bytes,
            pages: 0,
            written: 0,
            pace,
        })
    }

    /// Returns the number of pages so far.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Adds a page: `put` gets its number, and appends its bytes.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn page(&mut self, put: impl FnOnce(u64, &mut Vec<u8>)) -> Result<(), DiskError> {
        put(self.pages, &mut self.buffer);
        self.pages += 1;
        self.flush_if_full()
    }

    /// Adds a section, filled up to whole blocks.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn section(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        for piece in bytes.chunks(whole_blocks(self.buffer_bytes as u64) as usize) {
            self.buffer.extend_from_slice(piece);
            // Only the last piece is not of whole blocks.
            let whole = whole_blocks(self.buffer.len() as u64) as usize;
            self.buffer.resize(whole, 0);
            self.flush_if_full()?;
        }
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), DiskError> {
        match self.buffer.len() >= self.buffer_bytes {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let (file, buffer, at) = (&self.file, &self.buffer, self.written);
        self.pace.write(|| file.write_at(buffer, at))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Adds the trailer, and makes the file durable; its name is, once the directory is synced. Returns the
    /// file's length in bytes.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn finish(mut self, trailer: &[u8; PAGE_BYTES]) -> Result<u64, DiskError> {
        self.section(trailer)?;
        self.flush()?;
        self.file.sync()?;
        Ok(self.written)
    }
}

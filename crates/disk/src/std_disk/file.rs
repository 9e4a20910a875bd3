//! A file of the file system, with plain reads and writes.

use super::{
    shared::Shared,
    window::{AlignedBuf, Window, copy_part},
};
use crate::{Access, DiskError, DiskFile, disk::check_write};
use rustix::{
    fs::{AtFlags, FallocateFlags, OFlags, StatxFlags},
    io::Errno,
};
use std::{
    cell::RefCell,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Size of the pieces in which direct reads and writes are made, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Maximum size of the aligned buffer that a thread keeps for its next read.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// The aligned buffer of this thread's direct reads and writes.
    static ALIGNED: RefCell<AlignedBuf> = RefCell::default();
}

/// An open file. Clones are the same file.
#[derive(Clone, Debug)]
pub(super) struct StdFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    path: PathBuf,
    access: Access,
    /// Alignment to which ranges are widened: the device's block size if access is direct,
    /// otherwise 1.
    align: AtomicU64,
    shared: Arc<Shared>,
}

impl StdFile {
    /// Wraps a file that was just opened. Makes access to it direct if that is wanted and
    /// supported.
    pub(super) fn new(file: File, path: PathBuf, access: Access, shared: Arc<Shared>) -> Self {
        let mut align = 1;
        if access == Access::Direct && shared.wants_direct {
            let made = make_direct(&file);
            shared.note_direct(made.as_ref().err());
            align = made.unwrap_or(1);
        }
        Self(Arc::new(Inner {
            file,
            path,
            access,
            align: align.into(),
            shared,
        }))
    }

    pub(super) fn as_file(&self) -> &File {
        &self.0.file
    }

    /// Returns the range to read for `len` bytes at `offset`. `None` if no file is that long.
    pub(super) fn window(&self, offset: u64, len: usize) -> Option<Window> {
        Window::around(offset, len, self.align())
    }

    /// Fills `buf` by plain reads, without counting them.
    pub(super) fn read_uncounted(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let window = self.window(offset, buf.len());
        let window = window.ok_or(io::ErrorKind::UnexpectedEof)?;
        if self.align() > 1 {
            match self.read_direct(buf, offset, window) {
                Err(e) if is_refusal(&e) => self.give_up_direct(&e)?,
                result => return result,
            }
        }
        self.0.file.read_exact_at(buf, offset)
    }

    fn read_direct(&self, buf: &mut [u8], offset: u64, window: Window) -> io::Result<()> {
        for piece in window.pieces(PIECE_BYTES) {
            let is_there = with_aligned(piece.len() as usize, |aligned| {
                let len = self.read_blocks(aligned, piece.start)?;
                let Window { start, end } = piece;
                Ok::<_, io::Error>(copy_part(buf, offset, start, end, &aligned[..len]))
            })?;
            if !is_there {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Reads until `buf`, which has whole blocks, is full or the file ends. Returns the number of
    /// bytes read.
    fn read_blocks(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let align = self.align() as usize;
        let mut len = 0;
        while len < buf.len() {
            match self.0.file.read_at(&mut buf[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if !len.is_multiple_of(align) {
                break; // A part of a block: the file's last.
            }
        }
        Ok(len)
    }

    fn write_direct(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.as_ptr().addr().is_multiple_of(AlignedBuf::ALIGN) {
            return self.0.file.write_all_at(bytes, offset);
        }
        for (n, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            with_aligned(piece.len(), |aligned| {
                aligned.copy_from_slice(piece);
                let at = offset + (n * PIECE_BYTES) as u64;
                self.0.file.write_all_at(aligned, at)
            })?;
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        check_write(self.0.access, bytes.len(), offset)?;
        if self.align() > 1 {
            match self.write_direct(bytes, offset) {
                Err(e) if is_refusal(&e) => self.give_up_direct(&e)?,
                result => return result,
            }
        }
        self.0.file.write_all_at(bytes, offset)
    }

    fn align(&self) -> u64 {
        self.0.align.load(Relaxed)
    }

    /// Switches the file to cached access. Some file systems accept the flag for direct access, but
    /// then reject reads or writes.
    fn give_up_direct(&self, why: &io::Error) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.0.file)?;
        rustix::fs::fcntl_setfl(&self.0.file, flags - OFlags::DIRECT)?;
        self.0.align.store(1, Relaxed);
        self.0.shared.note_direct(Some(why));
        Ok(())
    }

    fn error(&self, op: &'static str) -> impl FnOnce(io::Error) -> DiskError {
        move |e| DiskError::new(op, self.0.path.display().to_string(), e)
    }

    pub(super) fn error_at(
        &self,
        op: &'static str,
        at: u64,
    ) -> impl FnOnce(io::Error) -> DiskError {
        move |e| DiskError::at(op, self.0.path.display().to_string(), at, e)
    }
}

/// Runs `work` on `len` bytes of the thread's aligned buffer.
fn with_aligned<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    ALIGNED.with_borrow_mut(|aligned| {
        let result = work(aligned.take(len));
        aligned.shrink(KEPT_BYTES);
        result
    })
}

/// Makes access to `file` direct. Returns the alignment that reads must have.
fn make_direct(file: &File) -> io::Result<u64> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let mut align = AlignedBuf::ALIGN as u32;
    // Linux before 6.1 does not report the alignment.
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
        align = stat.stx_dio_offset_align;
        let most = align.max(stat.stx_dio_mem_align);
        if align == 0 || most as usize > AlignedBuf::ALIGN {
            return Err(Errno::OPNOTSUPP.into());
        }
    }
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?;
    Ok(u64::from(align.max(512)))
}

/// Whether this error means that the file system does not support direct access.
fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

impl DiskFile for StdFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        let bytes = self.window(offset, buf.len()).map_or(0, Window::len);
        self.0.shared.counters.add_reads(1, bytes);
        self.read_uncounted(buf, offset)
            .map_err(self.error_at("read", offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        self.0.shared.counters.add_write(bytes.len());
        self.write(bytes, offset)
            .map_err(self.error_at("write", offset))
    }

    fn names(&self) -> Result<u64, DiskError> {
        let metadata = self.0.file.metadata();
        Ok(metadata.map_err(self.error("ask the names of"))?.nlink())
    }

    fn len(&self) -> Result<u64, DiskError> {
        let metadata = self.0.file.metadata();
        Ok(metadata.map_err(self.error("ask the length of"))?.len())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.0
            .file
            .set_len(len)
            .map_err(self.error_at("set the length of", len))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.0.file, flags, offset, len)
            .map_err(|e| self.error_at("punch a hole into", offset)(e.into()))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.0.shared.counters.add_sync();
        self.0.file.sync_data().map_err(self.error("sync"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, ReadRequest, StdDisk};

    #[test]
    fn a_file_that_then_refuses_direct_access_is_read_and_written_through_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let disk = StdDisk::new(dir.path());
        let content: Vec<u8> = (0..20_000u32).map(|n| (n ^ n >> 8) as u8).collect();
        let refusing = |name: &str| {
            disk.create(name).unwrap().write_at(&content, 0).unwrap();
            let path = dir.path().join(name);
            let file = File::options().read(true).write(true).open(&path).unwrap();
            let shared = Arc::clone(&disk.shared);
            let file = StdFile::new(file, path, Access::Direct, shared);
            let is_direct = file.align() > 1;
            file.0.align.store(2, Relaxed); // Less than any file system agrees to.
            (file, is_direct)
        };
        let (file, is_direct) = refusing("read");
        let mut found = [0; 100];
        file.read_at(&mut found, 5).unwrap();
        assert_eq!(found, content[5..105]);
        if !is_direct {
            return; // This file system takes everything.
        }
        assert_eq!(file.align(), 1);
        let why = disk.describe().not_direct_because.unwrap();
        assert!(why.contains("Invalid argument"), "{why}");

        let (file, _) = refusing("batch");
        let mut bufs = [[0; 100]; 3];
        let mut requests: Vec<_> = (0..)
            .zip(&mut bufs)
            .map(|(n, buf)| ReadRequest::new(&file, 7 + n * 50, buf))
            .collect();
        disk.read_batch(&mut requests);
        for request in requests {
            request.outcome.unwrap();
            assert_eq!(request.buf, &content[request.offset as usize..][..100]);
        }
    }
}

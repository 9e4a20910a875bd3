//! A file that is read: opened, looked at, and counted.

use super::FileError;
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes that are read, or written, at once.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// How far a file has been read; clones count together, so that a progress bar can watch from
/// another thread.
#[derive(Clone, Debug)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: u64,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            read: Arc::default(),
            total,
        }
    }

    /// Bytes of the file read so far, compressed if it is.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The file's size; 0 if it is a pipe.
    pub const fn bytes_total(&self) -> u64 {
        self.total
    }
}

/// A file that counts what is read of it.
#[derive(Debug)]
pub(crate) struct Counted {
    file: File,
    progress: Progress,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(buffer)?;
        self.progress.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// An opened file whose first bytes have been looked at.
pub(super) struct Opened {
    pub(super) name: Arc<str>,
    /// The first two bytes, or as many as there are.
    pub(super) magic: Vec<u8>,
    pub(super) file: File,
    /// Its size; of a pipe 0, which can't be read twice: there `magic` is gone from `file`.
    pub(super) bytes: u64,
    pub(super) is_pipe: bool,
}

impl Opened {
    /// What must be read before `file`.
    pub(super) fn unread(&self) -> Vec<u8> {
        if self.is_pipe {
            self.magic.clone()
        } else {
            Vec::new()
        }
    }
}

pub(super) fn open_file(path: &Path) -> Result<Opened, FileError> {
    let name: Arc<str> = path.display().to_string().into();
    let open = || -> io::Result<Opened> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut magic = Vec::new();
        (&mut file).take(2).read_to_end(&mut magic)?;
        let is_pipe = !metadata.is_file();
        if !is_pipe {
            file.rewind()?;
        }
        let bytes = if is_pipe { 0 } else { metadata.len() };
        Ok(Opened {
            name: name.clone(),
            magic,
            file,
            bytes,
            is_pipe,
        })
    };
    open().map_err(|source| FileError::Open {
        file: name.clone(),
        source,
    })
}

pub(crate) fn buffered(file: File, progress: &Progress) -> BufReader<Counted> {
    BufReader::with_capacity(
        BUFFER_BYTES,
        Counted {
            file,
            progress: progress.clone(),
        },
    )
}

/// Reads exactly `len` bytes if they are there, else what is there; grows with what it reads, so
/// that a claim alone costs no memory.
pub(super) fn read_claimed(
    source: &mut impl Read,
    len: usize,
    out: &mut Vec<u8>,
) -> io::Result<usize> {
    const STEP: usize = 1 << 20;
    out.reserve(len.min(STEP));
    source.take(len as u64).read_to_end(out)
}

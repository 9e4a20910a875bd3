//! Opening a file, recognizing its format, and counting the bytes read.

use super::FileError;
use flate2::bufread::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Size of the buffer for reading and writing, in bytes.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The first bytes of gzipped data.
pub(super) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Progress of reading a file. Clones share the count, so a progress bar can run on another thread.
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

    /// Bytes of the file read so far. For a compressed file these are compressed bytes.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Size of the file in bytes; 0 for a pipe.
    pub const fn bytes_total(&self) -> u64 {
        self.total
    }
}

/// A file that counts the bytes read.
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

/// An open file, pipe or standard input, with the name that errors call it by.
#[derive(Debug)]
pub struct InputFile {
    pub(crate) name: Arc<str>,
    pub(crate) file: File,
}

impl InputFile {
    /// Opens `path`, whose name it has.
    ///
    /// # Errors
    ///
    /// [`FileError::Open`] if the file can't be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let path = path.as_ref();
        let name: Arc<str> = path.display().to_string().into();
        match File::open(path) {
            Ok(file) => Ok(Self { name, file }),
            Err(source) => Err(FileError::Open { file: name, source }),
        }
    }

    /// The name and the file.
    pub fn into_parts(self) -> (Arc<str>, File) {
        (self.name, self.file)
    }

    /// A file that is open already.
    pub fn named(name: &str, file: File) -> Self {
        Self {
            name: name.into(),
            file,
        }
    }
}

/// An open file whose first bytes are known.
pub(super) struct Opened {
    pub(super) name: Arc<str>,
    /// The first two bytes, or fewer if the file is shorter.
    pub(super) magic: Vec<u8>,
    pub(super) file: File,
    /// Size in bytes. 0 for a pipe, which can't be rewound: `magic` has been consumed from `file`.
    pub(super) bytes: u64,
    pub(super) is_pipe: bool,
}

impl Opened {
    /// Bytes to read before `file`.
    pub(super) fn unread(&self) -> Vec<u8> {
        if self.is_pipe {
            self.magic.clone()
        } else {
            Vec::new()
        }
    }
}

pub(super) fn open_file(path: &Path) -> Result<Opened, FileError> {
    opened(InputFile::open(path)?)
}

/// Recognizes a file. It is read from where it stands, which for a file of the file system is its
/// beginning.
pub(super) fn opened(input: InputFile) -> Result<Opened, FileError> {
    let InputFile { name, mut file } = input;
    let open = || -> io::Result<Opened> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let is_pipe = !metadata.is_file();
        let from = if is_pipe { 0 } else { file.stream_position()? };
        let mut magic = Vec::new();
        (&mut file).take(2).read_to_end(&mut magic)?;
        if !is_pipe {
            file.seek(SeekFrom::Start(from))?;
        }
        let bytes = match is_pipe {
            true => 0,
            false => metadata.len().saturating_sub(from),
        };
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

/// Reads a file that may be gzipped.
pub(crate) fn unpacked(file: File, progress: &Progress) -> io::Result<Box<dyn BufRead>> {
    let mut plain = buffered(file, progress);
    Ok(match plain.fill_buf()?.starts_with(&GZIP_MAGIC) {
        true => {
            let unpacked = MultiGzDecoder::new(plain);
            Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
        }
        false => Box::new(plain),
    })
}

/// Reads `len` bytes, or fewer if the source ends. The buffer grows with the bytes read, so a false
/// length costs no memory.
pub(super) fn read_claimed(
    source: &mut impl Read,
    len: usize,
    out: &mut Vec<u8>,
) -> io::Result<usize> {
    const STEP: usize = 1 << 20;
    out.reserve(len.min(STEP));
    source.take(len as u64).read_to_end(out)
}

//! Chain files as `geth export` writes them: concatenated RLP of blocks, optionally gzipped.
//!
//! The format has neither index nor count. A file that does not end at the end of a block is
//! truncated.

use super::{
    BLOCK_BYTES_MAX, FileError, FilePosition, Progress, RawBlock,
    input::{BUFFER_BYTES, Counted, GZIP_MAGIC, Opened, buffered, open_file, read_claimed},
    raw::peek_number,
};
use alloy_primitives::Bytes;
use alloy_rlp::Encodable;
use cambium_evm::Block;
use flate2::{Compression, bufread::MultiGzDecoder, write::GzEncoder};
use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::Path,
    sync::Arc,
};

/// Reads a chain file block by block, holding one block in memory.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct ChainReader {
    item: &'static str,
    /// Reads the block number of an item.
    peek: fn(&[u8]) -> Option<u64>,
    file: Arc<str>,
    source: Source,
    progress: Progress,
    offset: u64,
    index: u64,
    after: Option<u64>,
    bytes_max: usize,
    done: bool,
}

/// The bytes of the file, preceded by those consumed from a pipe to recognize the format.
type Plain = io::Chain<io::Cursor<Vec<u8>>, BufReader<Counted>>;

#[derive(Debug)]
enum Source {
    Plain(Plain),
    Gzip(Box<BufReader<MultiGzDecoder<Plain>>>),
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(source) => source.read(buffer),
            Self::Gzip(source) => source.read(buffer),
        }
    }
}

impl ChainReader {
    /// Opens `path`, recognizing gzip by its magic number.
    ///
    /// # Errors
    ///
    /// If the file can't be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Ok(Self::from_opened(open_file(path.as_ref())?))
    }

    pub(super) fn from_opened(opened: Opened) -> Self {
        Self::of_items("block", peek_number, opened)
    }

    /// Reads a file of other RLP lists than blocks.
    pub(super) fn of_items(
        item: &'static str,
        peek: fn(&[u8]) -> Option<u64>,
        opened: Opened,
    ) -> Self {
        let progress = Progress::new(opened.bytes);
        let gzip = opened.magic == GZIP_MAGIC;
        let plain = io::Cursor::new(opened.unread()).chain(buffered(opened.file, &progress));
        let source = if gzip {
            let unpacked = MultiGzDecoder::new(plain);
            Source::Gzip(Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked)))
        } else {
            Source::Plain(plain)
        };
        Self {
            item,
            peek,
            file: opened.name,
            source,
            progress,
            offset: 0,
            index: 0,
            after: None,
            bytes_max: BLOCK_BYTES_MAX,
            done: false,
        }
    }

    /// Sets the maximum size of a block to `bytes_max` bytes instead of [`BLOCK_BYTES_MAX`].
    #[must_use]
    pub const fn with_limit(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    /// Whether the file is gzipped.
    pub const fn is_gzip(&self) -> bool {
        matches!(self.source, Source::Gzip(_))
    }

    /// Bytes of the file read so far, and its length: a count that other threads can follow.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn file_name(&self) -> Arc<str> {
        self.file.clone()
    }

    /// Ends the iterator.
    pub(super) const fn end(&mut self) {
        self.done = true;
    }

    fn place(&self) -> FilePosition {
        FilePosition {
            item: self.item,
            file: self.file.clone(),
            offset: self.offset,
            index: self.index,
            after: self.after,
            unpacked: self.is_gzip(),
        }
    }

    fn read_block(&mut self) -> Result<Option<RawBlock>, FileError> {
        let place = self.place();
        let boxed = || Box::new(place.clone());
        let read = |source| FileError::Read {
            place: boxed(),
            source,
        };

        let mut rlp = Vec::new();
        if read_claimed(&mut self.source, 1, &mut rlp).map_err(read)? == 0 {
            return Ok(None);
        }
        let prefix = rlp[0];
        let payload = match prefix {
            0xc0..=0xf7 => u64::from(prefix - 0xc0),
            0xf8.. => {
                let len = usize::from(prefix - 0xf7);
                let there = read_claimed(&mut self.source, len, &mut rlp).map_err(read)?;
                if there < len {
                    return Err(FileError::CutShort {
                        place: boxed(),
                        claimed: 1 + len as u64,
                        there: 1 + there as u64,
                    });
                }
                let payload = rlp[1..]
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                if rlp[1] == 0 || payload < 56 {
                    let item = self.item;
                    let what = format!("invalid {item}: its length is not in its shortest form");
                    return Err(FileError::Malformed {
                        place: boxed(),
                        what,
                    });
                }
                payload
            }
            _ => {
                let item = self.item;
                let what = format!("invalid {item}: 0x{prefix:02x} does not start an RLP list");
                return Err(FileError::Malformed {
                    place: boxed(),
                    what,
                });
            }
        };
        let claimed = payload.saturating_add(rlp.len() as u64);
        if claimed > self.bytes_max as u64 {
            let limit = self.bytes_max as u64;
            return Err(FileError::TooLong {
                place: boxed(),
                claimed,
                limit,
            });
        }
        read_claimed(&mut self.source, payload as usize, &mut rlp).map_err(read)?;
        if (rlp.len() as u64) < claimed {
            let there = rlp.len() as u64;
            return Err(FileError::CutShort {
                place: boxed(),
                claimed,
                there,
            });
        }

        self.offset += claimed;
        self.index += 1;
        self.after = (self.peek)(&rlp);
        let rlp = Bytes::from(rlp);
        Ok(Some(RawBlock {
            rlp,
            receipts: None,
            total_difficulty: None,
            access_list: None,
            update: None,
            place,
        }))
    }
}

impl Iterator for ChainReader {
    type Item = Result<RawBlock, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read_block().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Writes a chain file, gzipped if its name ends in `.gz`.
///
/// The file is complete only after [`finish`](Self::finish).
#[derive(Debug)]
pub struct ChainWriter {
    file: Arc<str>,
    sink: Sink,
    scratch: Vec<u8>,
    blocks: u64,
}

#[derive(Debug)]
enum Sink {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
}

impl ChainWriter {
    /// Creates `path`, or truncates it.
    ///
    /// # Errors
    ///
    /// If the file can't be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let path = path.as_ref();
        let file: Arc<str> = path.display().to_string().into();
        let created = File::create(path).map_err(|source| FileError::Open {
            file: file.clone(),
            source,
        })?;
        let plain = BufWriter::with_capacity(BUFFER_BYTES, created);
        let sink = if path.extension().is_some_and(|extension| extension == "gz") {
            Sink::Gzip(GzEncoder::new(plain, Compression::default()))
        } else {
            Sink::Plain(plain)
        };
        Ok(Self {
            file,
            sink,
            scratch: Vec::new(),
            blocks: 0,
        })
    }

    /// Writes to an open file, such as standard output, without compression.
    pub fn to_file(name: &str, file: File) -> Self {
        Self {
            file: name.into(),
            sink: Sink::Plain(BufWriter::with_capacity(BUFFER_BYTES, file)),
            scratch: Vec::new(),
            blocks: 0,
        }
    }

    /// Appends a block.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the file cannot be written, a full disk included.
    pub fn write(&mut self, block: &Block) -> Result<(), FileError> {
        let mut rlp = std::mem::take(&mut self.scratch);
        rlp.clear();
        block.encode(&mut rlp);
        let written = self.write_rlp(&rlp);
        self.scratch = rlp;
        written
    }

    /// Appends an encoded block.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the file cannot be written, a full disk included.
    pub fn write_rlp(&mut self, rlp: &[u8]) -> Result<(), FileError> {
        let written = match &mut self.sink {
            Sink::Plain(sink) => sink.write_all(rlp),
            Sink::Gzip(sink) => sink.write_all(rlp),
        };
        written.map_err(|source| FileError::Write {
            file: self.file.clone(),
            source,
        })?;
        self.blocks += 1;
        Ok(())
    }

    /// Completes and syncs the file. Returns the number of blocks in it.
    ///
    /// # Errors
    ///
    /// If writing or syncing fails.
    pub fn finish(self) -> Result<u64, FileError> {
        let finish = |sink: Sink| -> io::Result<()> {
            let plain = match sink {
                Sink::Plain(sink) => sink,
                Sink::Gzip(sink) => sink.finish()?,
            };
            let file = plain.into_inner().map_err(io::IntoInnerError::into_error)?;
            match file.sync_all() {
                // Pipes and terminals can't be synced.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            }
        };
        finish(self.sink).map_err(|source| FileError::Write {
            file: self.file,
            source,
        })?;
        Ok(self.blocks)
    }
}

//! Reading blocks from a file of any format.

use super::{
    ChainReader, Era1Reader, FileError, Progress, RawBlock,
    input::{InputFile, opened},
};
use std::path::Path;

const ERA1_MAGIC: [u8; 2] = [0x65, 0x32];

/// Format of a file of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Concatenated block RLP.
    Rlp,
    /// Gzip of concatenated block RLP.
    RlpGzip,
    /// An era1 archive.
    Era1,
}

/// Reads blocks from a file of any supported format.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct BlockSource {
    kind: FileKind,
    first_bytes: Vec<u8>,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Rlp(ChainReader),
    Era1(Box<Era1Reader>),
}

impl BlockSource {
    /// Opens `path`, recognizing its format by the first bytes.
    ///
    /// # Errors
    ///
    /// If the file can't be opened, or is an era1 file with a bad index.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::of_file(InputFile::open(path)?)
    }

    /// Reads blocks from an open file, such as standard input. An era1 file can't be read from a pipe.
    ///
    /// # Errors
    ///
    /// If the file can't be read, or is an era1 file with a bad index.
    pub fn of_file(file: InputFile) -> Result<Self, FileError> {
        let opened = opened(file)?;
        let first_bytes = opened.magic.clone();
        if opened.magic == ERA1_MAGIC {
            let reader = Reader::Era1(Box::new(Era1Reader::from_opened(opened)?));
            return Ok(Self {
                kind: FileKind::Era1,
                first_bytes,
                reader,
            });
        }
        let reader = ChainReader::from_opened(opened);
        let kind = if reader.is_gzip() {
            FileKind::RlpGzip
        } else {
            FileKind::Rlp
        };
        Ok(Self {
            kind,
            first_bytes,
            reader: Reader::Rlp(reader),
        })
    }

    /// The first two bytes of the file, or fewer if it is shorter: none of an empty file, which has no
    /// block and no error.
    pub fn first_bytes(&self) -> &[u8] {
        &self.first_bytes
    }

    /// Format of the file.
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// Bytes of the file read so far, and its length: a count that other threads can follow.
    pub fn progress(&self) -> &Progress {
        match &self.reader {
            Reader::Rlp(reader) => reader.progress(),
            Reader::Era1(reader) => reader.progress(),
        }
    }
}

impl Iterator for BlockSource {
    type Item = Result<RawBlock, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.reader {
            Reader::Rlp(reader) => reader.next(),
            Reader::Era1(reader) => reader.next(),
        }
    }
}

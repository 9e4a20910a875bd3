//! Blocks out of a file of any kind.

use super::{ChainReader, Era1Reader, FileError, Progress, RawBlock, input::open_file};
use std::path::Path;

const ERA1_MAGIC: [u8; 2] = [0x65, 0x32];

/// What kind of file a [`BlockSource`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Concatenated block RLP.
    Rlp,
    /// Gzip of concatenated block RLP.
    RlpGzip,
    /// An era1 archive.
    Era1,
}

/// Blocks out of a file of any kind that is known here.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct BlockSource {
    kind: FileKind,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Rlp(ChainReader),
    Era1(Box<Era1Reader>),
}

impl BlockSource {
    /// Opens `path`, telling its kind by its first bytes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let opened = open_file(path.as_ref())?;
        if opened.magic == ERA1_MAGIC {
            let reader = Reader::Era1(Box::new(Era1Reader::from_opened(opened)?));
            return Ok(Self {
                kind: FileKind::Era1,
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
            reader: Reader::Rlp(reader),
        })
    }

    /// What the file turned out to be.
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// How far it has been read.
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

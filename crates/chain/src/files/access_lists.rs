//! Files of access lists. A block does not contain its access list, so lists have files of their
//! own, each beside a file of blocks.
//!
//! A file is a sequence of RLP lists, one for each block that has an access list, in the order of
//! the blocks, optionally gzipped as a whole.
//!
//! | item | RLP |
//! |---|---|
//! | number | the block's number |
//! | hash | the block's hash |
//! | access list | the RLP of the access list |

use super::{
    ChainReader, ChainWriter, FileError, RawBlock,
    beside::{self, header_hash, split},
    input::{InputFile, opened},
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::BlockId;
use std::{fs::File, path::Path};

/// Which items of a record are lists, after the block's number and hash.
const ARE_LISTS: [bool; 1] = [true];

/// Writes a file of access lists, gzipped if its name ends in `.gz`.
///
/// The file is complete only after [`finish`](Self::finish).
#[derive(Debug)]
pub struct AccessListWriter(ChainWriter);

impl AccessListWriter {
    /// Creates `path`, or truncates it.
    ///
    /// # Errors
    ///
    /// If the file can't be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, FileError> {
        ChainWriter::create(path).map(Self)
    }

    /// Writes to an open file, such as standard output, without compression.
    pub fn to_file(name: &str, file: File) -> Self {
        Self(ChainWriter::to_file(name, file))
    }

    /// Appends a block's access list, given as RLP.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the file cannot be written, a full disk included.
    pub fn write(&mut self, block: BlockId, access_list: &[u8]) -> Result<(), FileError> {
        self.0.write_rlp(&beside::record(block, access_list))
    }

    /// Completes and syncs the file. Returns the number of lists in it.
    ///
    /// # Errors
    ///
    /// If writing or syncing fails.
    pub fn finish(self) -> Result<u64, FileError> {
        self.0.finish()
    }
}

/// Reads a file of access lists one by one, holding one list in memory.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct AccessListReader {
    items: ChainReader,
    first_bytes: Vec<u8>,
}

impl AccessListReader {
    /// Opens `path`, recognizing gzip by its magic number.
    ///
    /// # Errors
    ///
    /// If the file can't be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::of_file(InputFile::open(path)?)
    }

    /// Reads access lists from an open file, such as standard input.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn of_file(file: InputFile) -> Result<Self, FileError> {
        let opened = opened(file)?;
        let first_bytes = opened.magic.clone();
        let number = |record: &[u8]| Some(split(record, &ARE_LISTS)?.0.number);
        Ok(Self {
            items: ChainReader::of_items("access list", number, opened),
            first_bytes,
        })
    }

    /// The first two bytes of the file, or fewer if it is shorter: none of an empty file, which has no
    /// list and no error.
    pub fn first_bytes(&self) -> &[u8] {
        &self.first_bytes
    }
}

impl Iterator for AccessListReader {
    type Item = Result<(BlockId, Bytes), FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let what = "the number, hash and access list of a block";
        beside::next(&mut self.items, &ARE_LISTS, what)
    }
}

/// Blocks, joined with their access lists from a file.
///
/// A list that belongs to none of the blocks is an error, unless its number is above those of all
/// blocks: such lists are ignored.
#[derive(Debug)]
pub struct WithAccessLists<I> {
    blocks: I,
    lists: AccessListReader,
    /// The next list, or the error of reading it.
    next: Option<Result<(BlockId, Bytes), FileError>>,
    /// The highest block number so far.
    number_max: u64,
    /// Whether any list was that of a block.
    has_matched: bool,
    ended: bool,
}

impl<I> WithAccessLists<I> {
    /// Joins `blocks` with their access lists.
    ///
    /// # Errors
    ///
    /// If the first list can't be read.
    pub fn new(blocks: I, mut lists: AccessListReader) -> Result<Self, FileError> {
        let next = lists.next().transpose()?;
        Ok(Self {
            blocks,
            lists,
            next: next.map(Ok),
            number_max: 0,
            has_matched: false,
            ended: false,
        })
    }

    fn take_list(&mut self, block: &RawBlock) -> Result<Option<Bytes>, FileError> {
        self.number_max = self.number_max.max(block.number().unwrap_or(0));
        let hash = header_hash(&block.rlp);
        let is_of_block = |next: &mut Result<(BlockId, Bytes), FileError>| match next {
            Ok((id, _)) => Some(id.hash) == hash,
            Err(_) => true,
        };
        let Some(list) = self.next.take_if(is_of_block).transpose()? else {
            return match (&self.next, hash) {
                (Some(Ok((list, _))), Some(hash)) => self.check_order(*list, hash),
                _ => Ok(None),
            };
        };
        self.has_matched = true;
        self.next = self.lists.next();
        Ok(Some(list.1))
    }

    /// Checks that the next list, which is not that of the block with `hash`, may belong to a later
    /// block. The lists of another chain are found at their first one.
    fn check_order(&self, list: BlockId, hash: B256) -> Result<Option<Bytes>, FileError> {
        let is_late = match self.has_matched {
            true => list.number < self.number_max,
            false => list.number <= self.number_max,
        };
        match is_late {
            false => Ok(None),
            true => Err(FileError::OtherBlocks {
                file: self.lists.items.file_name(),
                list,
                block: BlockId::new(self.number_max, hash),
            }),
        }
    }

    /// The error of a list that is left after the last block, if it is one.
    fn left_over(&mut self) -> Option<FileError> {
        match self.next.take()? {
            Err(error) => Some(error),
            Ok((id, _)) => (id.number <= self.number_max).then(|| FileError::BadFile {
                file: self.lists.items.file_name(),
                what: format!(
                    "it has an access list for block {id}, which is not among the blocks"
                ),
            }),
        }
    }
}

impl<I: Iterator<Item = Result<RawBlock, FileError>>> Iterator for WithAccessLists<I> {
    type Item = Result<RawBlock, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match self.blocks.next() {
            None => self.left_over().map(Err),
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(block)) => Some(self.take_list(&block).map(|access_list| RawBlock {
                access_list,
                ..block
            })),
        };
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

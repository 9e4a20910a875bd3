//! Files of access lists, beside a file of blocks: blocks themselves do not hold theirs.
//!
//! A file is a row of RLP lists, one for each block in the order of the blocks, perhaps gzipped as
//! a whole. Blocks without a list are left out.
//!
//! | item | RLP |
//! |---|---|
//! | number | the block's number |
//! | hash | the block's hash |
//! | access list | the list itself, as its hash in the header is of |

use super::{ChainReader, ChainWriter, FileError, RawBlock, input::open_file};
use alloy_primitives::{B256, Bytes, keccak256};
use alloy_rlp::{Decodable, Encodable, Header};
use cambium_primitives::BlockId;
use std::path::Path;

/// Writes a file of access lists, gzipped if its name ends in `.gz`.
///
/// The file is whole only after [`finish`](Self::finish).
#[derive(Debug)]
pub struct AccessListWriter(ChainWriter);

impl AccessListWriter {
    /// Creates `path`, or empties it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, FileError> {
        ChainWriter::create(path).map(Self)
    }

    /// Appends the RLP of a block's list.
    pub fn write(&mut self, block: BlockId, access_list: &[u8]) -> Result<(), FileError> {
        let payload_length = block.number.length() + block.hash.length() + access_list.len();
        let mut record = Vec::with_capacity(payload_length + 9);
        let header = Header {
            list: true,
            payload_length,
        };
        header.encode(&mut record);
        block.number.encode(&mut record);
        block.hash.encode(&mut record);
        record.extend_from_slice(access_list);
        self.0.write_rlp(&record)
    }

    /// Ends the file and syncs it; the number of lists in it.
    pub fn finish(self) -> Result<u64, FileError> {
        self.0.finish()
    }
}

/// Reads a file of access lists one by one, in memory for one list.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct AccessListReader(ChainReader);

impl AccessListReader {
    /// Opens `path`; gzip is told by its magic number.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let opened = open_file(path.as_ref())?;
        let number = |record: &[u8]| Some(decode(record)?.0.number);
        Ok(Self(ChainReader::of_items("access list", number, opened)))
    }
}

impl Iterator for AccessListReader {
    type Item = Result<(BlockId, Bytes), FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.0.next()?;
        let list = record.and_then(|record| {
            let what = || "no number, hash and access list of a block".to_owned();
            let (id, list) = decode(&record.rlp).ok_or_else(|| record.malformed(what()))?;
            Ok((id, record.rlp.slice_ref(list)))
        });
        if list.is_err() {
            self.0.end();
        }
        Some(list)
    }
}

fn decode(mut record: &[u8]) -> Option<(BlockId, &[u8])> {
    let mut fields = Header::decode_bytes(&mut record, true).ok()?;
    let number = u64::decode(&mut fields).ok()?;
    let hash = B256::decode(&mut fields).ok()?;
    let list = fields;
    Header::decode_bytes(&mut fields, true).ok()?;
    (record.is_empty() && fields.is_empty()).then_some((BlockId::new(number, hash), list))
}

/// Blocks, each with its access list from a file of these.
///
/// A list that is of none of the blocks, though they have come past its number, is an error. Lists
/// of later blocks are left.
#[derive(Debug)]
pub struct WithAccessLists<I> {
    blocks: I,
    lists: AccessListReader,
    /// The next list, or the error in its place, which comes after the last block that has a list.
    next: Option<Result<(BlockId, Bytes), FileError>>,
    /// The highest number of a block so far.
    number_max: u64,
    ended: bool,
}

impl<I> WithAccessLists<I> {
    /// Gives `blocks` the lists that are of them.
    pub fn new(blocks: I, mut lists: AccessListReader) -> Result<Self, FileError> {
        let next = lists.next().transpose()?;
        Ok(Self {
            blocks,
            lists,
            next: next.map(Ok),
            number_max: 0,
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
            return Ok(None);
        };
        self.next = self.lists.next();
        Ok(Some(list.1))
    }

    /// What is wrong with the list that is left when the blocks have ended.
    fn left_over(&mut self) -> Option<FileError> {
        match self.next.take()? {
            Err(error) => Some(error),
            Ok((id, _)) => (id.number <= self.number_max).then(|| FileError::BadFile {
                file: self.lists.0.file_name(),
                what: format!("it has an access list for block {id}, which did not come"),
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

/// The hash of the header in a block's RLP.
fn header_hash(mut rlp: &[u8]) -> Option<B256> {
    let block = Header::decode_bytes(&mut rlp, true).ok()?;
    let mut rest = block;
    Header::decode_bytes(&mut rest, true).ok()?;
    Some(keccak256(&block[..block.len() - rest.len()]))
}

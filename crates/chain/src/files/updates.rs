//! Files of state updates: the changes that executing a block makes to the state, for databases that do not execute it. A
//! partial database can't, since it does not have all storage. As access lists, they have files of their own, each beside a
//! file of blocks.
//!
//! A file is a sequence of RLP lists, one for each block, in the order of the blocks, optionally gzipped as a whole.
//!
//! | item | RLP |
//! |---|---|
//! | number | the block's number |
//! | hash | the block's hash |
//! | changes | a string: the changes of accounts and slots, as [`Changes::encode`] encodes them |
//! | codes | a list of the codes that accounts have from this block on, which they did not have before |
//! | storage roots | a list of path and new storage root, one after another, of accounts whose slots change, sorted |

use super::{
    ChainReader, ChainWriter, FileError, RawBlock,
    beside::{self, header_hash, split},
    input::{InputFile, opened},
};
use alloy_primitives::{B256, Bytes};
use alloy_rlp::{Decodable, Encodable, Header};
use cambium_primitives::{BlockId, Changes};
use std::{fs::File, path::Path};

/// Which items of a record are lists, after the block's number and hash.
const ARE_LISTS: [bool; 3] = [false, true, true];

/// The changes that executing a block makes to the state. It is untrusted: the state root in the block's header proves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateUpdate {
    /// Accounts and slots that the block changes.
    pub changes: Changes,
    /// Codes that accounts have from this block on, in any order.
    pub codes: Vec<Bytes>,
    /// New storage roots of accounts whose slots change, by keccak(address), sorted.
    pub storage_roots: Vec<(B256, B256)>,
}

impl StateUpdate {
    /// Encodes the last three items of a record.
    pub fn encode(&self) -> Vec<u8> {
        let changes = Bytes::from(self.changes.encode());
        let roots = self.storage_roots.iter();
        let roots: Vec<B256> = roots.flat_map(|(path, root)| [*path, *root]).collect();
        let mut out = Vec::with_capacity(changes.length() + self.codes.length() + roots.length());
        changes.encode(&mut out);
        self.codes.encode(&mut out);
        roots.encode(&mut out);
        out
    }

    /// Decodes what [`StateUpdate::encode`] returns. Memory is proportional to the bytes.
    ///
    /// # Errors
    ///
    /// The reason, if they are malformed.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let rlp = |what: &'static str| move |error: alloy_rlp::Error| format!("{what}: {error}");
        let changes = Header::decode_bytes(&mut bytes, false).map_err(rlp("changes"))?;
        let changes = Changes::decode(changes).map_err(|error| format!("changes: {error}"))?;
        let mut rest = Header::decode_bytes(&mut bytes, true).map_err(rlp("codes"))?;
        let mut codes = Vec::new();
        while !rest.is_empty() {
            if codes.len() == changes.accounts().len() {
                return Err("codes: there are more than accounts that change".to_owned());
            }
            codes.push(Bytes::decode(&mut rest).map_err(rlp("codes"))?);
        }
        let roots = Vec::<B256>::decode(&mut bytes).map_err(rlp("storage roots"))?;
        let (pairs, odd) = roots.as_chunks::<2>();
        let storage_roots: Vec<_> = pairs.iter().map(|[path, root]| (*path, *root)).collect();
        if !odd.is_empty() {
            return Err("storage roots: an account without its root".to_owned());
        }
        if !storage_roots.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("storage roots: they are not sorted and unique".to_owned());
        }
        match bytes.len() {
            0 => Ok(Self {
                changes,
                codes,
                storage_roots,
            }),
            surplus => Err(format!("{surplus} surplus bytes")),
        }
    }
}

/// Writes a file of state updates, gzipped if its name ends in `.gz`.
///
/// The file is complete only after [`finish`](Self::finish).
#[derive(Debug)]
pub struct UpdateWriter(ChainWriter);

impl UpdateWriter {
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

    /// Appends a block's update.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the file cannot be written, a full disk included.
    pub fn write(&mut self, block: BlockId, update: &StateUpdate) -> Result<(), FileError> {
        self.0.write_rlp(&beside::record(block, &update.encode()))
    }

    /// Completes and syncs the file. Returns the number of updates in it.
    ///
    /// # Errors
    ///
    /// If writing or syncing fails.
    pub fn finish(self) -> Result<u64, FileError> {
        self.0.finish()
    }
}

/// Reads a file of state updates one by one, holding one in memory, not decoded.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct UpdateReader {
    items: ChainReader,
    first_bytes: Vec<u8>,
}

impl UpdateReader {
    /// Opens `path`, recognizing gzip by its magic number.
    ///
    /// # Errors
    ///
    /// If the file can't be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::of_file(InputFile::open(path)?)
    }

    /// Reads updates from an open file, such as standard input.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    pub fn of_file(file: InputFile) -> Result<Self, FileError> {
        let opened = opened(file)?;
        let first_bytes = opened.magic.clone();
        let number = |record: &[u8]| Some(split(record, &ARE_LISTS)?.0.number);
        Ok(Self {
            items: ChainReader::of_items("state update", number, opened),
            first_bytes,
        })
    }

    /// The first two bytes of the file, or fewer if it is shorter: none of an empty file, which has no
    /// update and no error.
    pub fn first_bytes(&self) -> &[u8] {
        &self.first_bytes
    }
}

impl Iterator for UpdateReader {
    type Item = Result<(BlockId, Bytes), FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let what = "the number, hash and state update of a block";
        beside::next(&mut self.items, &ARE_LISTS, what)
    }
}

/// Blocks, joined with their state updates from a file. Updates of lower blocks than the next one are passed over; a block
/// whose update does not come next has none.
#[derive(Debug)]
pub struct WithUpdates<I> {
    blocks: I,
    updates: UpdateReader,
    next: Option<(BlockId, Bytes)>,
    ended: bool,
}

impl<I> WithUpdates<I> {
    /// Joins `blocks` with their state updates.
    ///
    /// # Errors
    ///
    /// If the first update can't be read.
    pub fn new(blocks: I, mut updates: UpdateReader) -> Result<Self, FileError> {
        Ok(Self {
            blocks,
            next: updates.next().transpose()?,
            updates,
            ended: false,
        })
    }

    fn take_update(&mut self, block: &RawBlock) -> Result<Option<Bytes>, FileError> {
        let (Some(number), Some(hash)) = (block.number(), header_hash(&block.rlp)) else {
            return Ok(None);
        };
        while let Some((id, update)) = self.next.take() {
            if id.hash == hash {
                self.next = self.updates.next().transpose()?;
                return Ok(Some(update));
            }
            if id.number >= number {
                self.next = Some((id, update));
                return Ok(None);
            }
            self.next = self.updates.next().transpose()?;
        }
        Ok(None)
    }
}

impl<I: Iterator<Item = Result<RawBlock, FileError>>> Iterator for WithUpdates<I> {
    type Item = Result<RawBlock, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match self.blocks.next()? {
            Err(error) => Err(error),
            Ok(block) => self
                .take_update(&block)
                .map(|update| RawBlock { update, ..block }),
        };
        self.ended = next.is_err();
        Some(next)
    }
}

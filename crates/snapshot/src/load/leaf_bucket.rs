//! A bucket of accounts and slots to be loaded: encoded records, of which the newest are in memory
//! and the others in a spill file.
//!
//! ```text
//!   LeafBucket   | piece | piece | piece |  spilled, each with its checksum, anywhere in a SpillFile
//!                                      | bytes |  the newest, in memory
//! ```

use crate::base::error::StateError;
use alloy_primitives::{B256, U256};
use cambium_disk::{Disk, DiskError, DiskFile};
use cambium_primitives::{
    Account, DecodeError, EntryValue, INLINE_VALUE_BYTES_MAX, Reader, SlotValue, put_varint,
};
use cambium_store::StoreError;
use parking_lot::Mutex;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};
use xxhash_rust::xxh3::xxh3_64;

// Record: an account, an account's path alone, or a slot of the account whose record precedes it. A
// piece never begins with a slot.
//
// OFFSET  SIZE  MEANING
// 0       1     1 to 32: a slot, and the length of its value; 64: an account; 65: an account's path
//               alone, for slots that do not follow their account; 66: an entry
// 1       32    keccak(slot), or keccak(address)
// 33            the value, big-endian, or the account's compact form, or nothing; or, of an entry, the
//               length of its encoded value in LEB128, and the encoded value
const ACCOUNT: u8 = 64;
const PATH_ONLY: u8 = 65;
const ENTRY: u8 = 66;
/// Upper bound for the bytes that one leaf adds, which is an entry with the largest value in a leaf.
const RECORD_BYTES_MAX: usize = 33 + 2 + 1 + INLINE_VALUE_BYTES_MAX;

const PREFIX: &str = "load-";
const SUFFIX: &str = ".tmp";

/// A decoded record.
pub(crate) enum Record {
    /// An account, by keccak(address).
    Account(B256, Account),
    /// An entry of a key-value database.
    Entry(B256, EntryValue),
    /// The account, by keccak(address), that the following slots belong to.
    PathOnly(B256),
    /// A slot, by keccak(slot), whose value is not zero.
    Slot(B256, U256),
}

/// Whether a record with this first byte is a slot.
const fn is_slot(first: u8) -> bool {
    first < ACCOUNT
}

/// Decodes the next record.
pub(crate) fn read_record(reader: &mut Reader<'_>) -> Result<Record, StateError> {
    let mut read = || {
        let first = reader.u8()?;
        let path = reader.b256()?;
        match first {
            ACCOUNT => Ok(Record::Account(path, Account::decode_from(reader)?)),
            PATH_ONLY => Ok(Record::PathOnly(path)),
            ENTRY => {
                let len = reader.count(1)?;
                Ok(Record::Entry(path, EntryValue::decode(reader.take(len)?)?))
            }
            len => {
                let value = reader.take(len.into())?;
                Ok(Record::Slot(path, SlotValue::decode(value)?))
            }
        }
    };
    read().map_err(damaged)
}

/// Whether the next record is a slot.
pub(crate) fn is_slot_next(bytes: &[u8], reader: &Reader<'_>) -> bool {
    bytes
        .get(reader.offset())
        .is_some_and(|first| is_slot(*first))
}

fn damaged(source: DecodeError) -> StateError {
    StateError::Damaged {
        what: "a spilled record of the loader".to_owned(),
        source,
    }
}

/// Bytes that were spilled together: position, length and checksum (xxh3-64).
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    offset: u64,
    checksum: u64,
    len: u32,
}

impl Piece {
    /// Length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }
}

/// Temporary file for data that does not fit into memory, created with the first piece. It is
/// removed on drop or, after a crash, by [`remove_spilled`].
pub(crate) struct SpillFile {
    disk: Arc<dyn Disk>,
    file: OnceLock<Arc<dyn DiskFile>>,
    name: String,
    /// Length of the file, in bytes.
    end: AtomicU64,
    /// Held while the file is created, so that it is created once.
    creating: Mutex<()>,
}

impl SpillFile {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        // Other processes are locked out of the directory, but this one may have several spill
        // files.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            disk,
            file: OnceLock::new(),
            name: format!("{PREFIX}{number}{SUFFIX}"),
            end: AtomicU64::new(0),
            creating: Mutex::new(()),
        }
    }

    /// Length of the file, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    fn file(&self) -> Result<&dyn DiskFile, StoreError> {
        let _one = self.creating.lock();
        if self.file.get().is_none() {
            let _ = self.file.set(self.disk.create(&self.name)?);
        }
        Ok(&**self.file.get().expect("just set"))
    }

    /// Writes `bytes` as one piece.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<Piece, StateError> {
        let offset = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let written = self.file()?.write_at(bytes, offset);
        written.map_err(StoreError::from)?;
        let len = u32::try_from(bytes.len()).expect("pieces are far smaller");
        Ok(Piece {
            offset,
            checksum: xxh3_64(bytes),
            len,
        })
    }

    /// Reads a piece, and appends its bytes to `to`.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the piece can't be read, or its checksum is wrong.
    pub(crate) fn read(&self, piece: &Piece, to: &mut Vec<u8>) -> Result<(), StateError> {
        let start = to.len();
        to.resize(start + piece.len(), 0);
        let read = self.file()?.read_at(&mut to[start..], piece.offset);
        read.map_err(StoreError::from)?;
        if xxh3_64(&to[start..]) == piece.checksum {
            return Ok(());
        }
        Err(StateError::Store(StoreError::Corrupt {
            file: self.disk.display_path(&self.name),
            offset: piece.offset,
            what: "the checksum is wrong".to_owned(),
            advice: "check the disk, and load again",
        }))
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        if self.file.get().is_some() {
            let _ = self.disk.remove(&self.name);
        }
    }
}

/// Removes the spill files of interrupted loads. No load may be running.
///
/// # Errors
///
/// [`DiskError`] if listing the directory or removing a file fails.
pub fn remove_spilled(disk: &dyn Disk) -> Result<(), DiskError> {
    for name in disk.list("")? {
        let number = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_suffix(SUFFIX));
        if number.is_some_and(|number| number.parse::<u64>().is_ok()) {
            disk.remove(&name)?;
        }
    }
    Ok(())
}

/// A sequence of records: the newest in memory, the others in a spill file.
#[derive(Default)]
pub(crate) struct LeafBucket {
    /// The newest records.
    pub(crate) bytes: Vec<u8>,
    /// Older records, in order.
    pub(crate) pieces: Vec<Piece>,
    /// Number of accounts and slots.
    pub(crate) leaves: u64,
    /// Size of their keys and values, in bytes: about that of them in pages.
    pub(crate) leaf_bytes: u64,
    /// Account that a slot record at the end would belong to. `None` after a spill.
    owner: Option<B256>,
    /// Size at which records are spilled, in bytes.
    piece_bytes: usize,
}

impl LeafBucket {
    /// Creates an empty bucket that spills its records whenever they take `piece_bytes` bytes.
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self {
            piece_bytes: piece_bytes.max(2 * RECORD_BYTES_MAX),
            ..Self::default()
        }
    }

    /// Size of all records, in bytes.
    pub(crate) fn len(&self) -> u64 {
        let spilled: u64 = self.pieces.iter().map(|piece| piece.len() as u64).sum();
        spilled + self.bytes.len() as u64
    }

    /// Adds an account.
    pub(crate) fn account(
        &mut self,
        path: &B256,
        account: &Account,
        spill: &SpillFile,
    ) -> Result<(), StateError> {
        self.make_room(spill)?;
        let start = self.bytes.len();
        self.bytes.push(ACCOUNT);
        self.bytes.extend_from_slice(path.as_slice());
        account.encode_to(&mut self.bytes);
        self.owner = Some(*path);
        self.count(start);
        Ok(())
    }

    /// Adds an entry.
    pub(crate) fn entry(
        &mut self,
        key: &B256,
        value: &EntryValue,
        spill: &SpillFile,
    ) -> Result<(), StateError> {
        self.make_room(spill)?;
        let start = self.bytes.len();
        self.bytes.push(ENTRY);
        self.bytes.extend_from_slice(key.as_slice());
        put_varint(&mut self.bytes, value.encoded_len() as u64);
        value.encode_to(&mut self.bytes);
        self.owner = None;
        self.count(start);
        Ok(())
    }

    /// Adds a slot, whose value is not zero, of the account `owner`.
    pub(crate) fn slot(
        &mut self,
        owner: &B256,
        slot: &B256,
        value: U256,
        spill: &SpillFile,
    ) -> Result<(), StateError> {
        self.make_room(spill)?;
        if self.owner.as_ref() != Some(owner) {
            self.bytes.push(PATH_ONLY);
            self.bytes.extend_from_slice(owner.as_slice());
            self.owner = Some(*owner);
        }
        let value = SlotValue::new(value);
        let start = self.bytes.len();
        self.bytes.push(value.as_bytes().len() as u8);
        self.bytes.extend_from_slice(slot.as_slice());
        self.bytes.extend_from_slice(value.as_bytes());
        self.count(start);
        Ok(())
    }

    /// Counts the leaf whose record begins at `start`.
    fn count(&mut self, start: usize) {
        self.leaves += 1;
        self.leaf_bytes += (self.bytes.len() - start) as u64;
    }

    fn make_room(&mut self, spill: &SpillFile) -> Result<(), StateError> {
        if self.bytes.len() + RECORD_BYTES_MAX > self.piece_bytes {
            self.spill(spill)?;
        }
        if self.bytes.capacity() == 0 {
            // Reserved at once, so that the buffer is never moved. Untouched memory costs nothing.
            self.bytes.reserve_exact(self.piece_bytes);
        }
        Ok(())
    }

    /// Spills the records that are in memory.
    pub(crate) fn spill(&mut self, spill: &SpillFile) -> Result<(), StateError> {
        if !self.bytes.is_empty() {
            self.pieces.push(spill.append(&self.bytes)?);
            self.bytes.clear();
        }
        self.owner = None;
        Ok(())
    }
}

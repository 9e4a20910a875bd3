//! Accounts and slots on their way into a database, as bytes: in memory, and spilled to the disk
//! when they take too much of it.
//!
//! ```text
//!   LeafBucket   | piece | piece | piece |  spilled, each with its checksum, anywhere in a SpillFile
//!                                      | bytes |  the newest, in memory
//! ```

use crate::base::error::StateError;
use alloy_primitives::{B256, U256};
use cambium_disk::{Disk, DiskError, DiskFile};
use cambium_primitives::{Account, DecodeError, Reader, SlotValue};
use cambium_store::StoreError;
use parking_lot::Mutex;
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};
use xxhash_rust::xxh3::xxh3_64;

// Record: a head, or a slot of the account whose head comes before it. Each piece begins with a
// head.
//
// OFFSET  SIZE  MEANING
// 0       1     1 to 32: a slot with a value of so many bytes; 64: an account; 65: an account's
//               path alone, for slots that come apart from it
// 1       32    keccak(slot), or keccak(address)
// 33            the value, big-endian, or the account's compact form, or nothing
const ACCOUNT: u8 = 64;
const PATH_ONLY: u8 = 65;
/// The longest entry, and a head before it: an account has at most 75 bytes.
const RECORD_BYTES_MAX: usize = 33 + 33 + 75;

const PREFIX: &str = "load-";
const SUFFIX: &str = ".tmp";

/// One entry.
pub(crate) enum Record {
    /// An account.
    Account(B256, Account),
    /// The account that the slots after this belong to.
    PathOnly(B256),
    /// A slot; its value is not zero.
    Slot(B256, U256),
}

/// Whether the entry that begins with this byte is a slot.
const fn is_slot(first: u8) -> bool {
    first < ACCOUNT
}

/// Reads an entry.
pub(crate) fn read_record(reader: &mut Reader<'_>) -> Result<Record, StateError> {
    let mut read = || {
        let first = reader.u8()?;
        let path = reader.b256()?;
        match first {
            ACCOUNT => Ok(Record::Account(path, Account::decode_from(reader)?)),
            PATH_ONLY => Ok(Record::PathOnly(path)),
            len => {
                let value = reader.take(len.into())?;
                Ok(Record::Slot(path, SlotValue::decode(value)?))
            }
        }
    };
    read().map_err(damaged)
}

/// Whether a slot comes next.
pub(crate) fn is_slot_next(bytes: &[u8], reader: &Reader<'_>) -> bool {
    bytes
        .get(reader.offset())
        .is_some_and(|first| is_slot(*first))
}

fn damaged(source: DecodeError) -> StateError {
    StateError::Damaged {
        what: "what the loader keeps of the accounts".to_owned(),
        source,
    }
}

/// Bytes that were spilled together.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    offset: u64,
    checksum: u64,
    len: u32,
}

impl Piece {
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }
}

/// A file for what does not fit into memory. Removed when it is dropped, or else by the next
/// start.
pub(crate) struct SpillFile {
    disk: Arc<dyn Disk>,
    file: OnceLock<Arc<dyn DiskFile>>,
    name: String,
    end: AtomicU64,
    creating: Mutex<()>,
}

impl SpillFile {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        // Of this process, which has the directory locked, there may be several.
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

    /// Bytes in the file.
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

    /// Appends bytes, to be read together.
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

    /// Appends a piece's bytes to `to`.
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
            what: "it is not what was written".to_owned(),
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

/// Removes what loads that were cut short have spilled. None may be under way.
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

/// A sequence of entries: the newest in memory, the others in a spill.
#[derive(Default)]
pub(crate) struct LeafBucket {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pieces: Vec<Piece>,
    /// Accounts and slots.
    pub(crate) leaves: u64,
    /// Whose slots may follow the newest entry.
    owner: Option<B256>,
    piece_bytes: usize,
}

impl LeafBucket {
    /// No entries yet; to be spilled whenever there are `piece_bytes` of them.
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self {
            piece_bytes: piece_bytes.max(2 * RECORD_BYTES_MAX),
            ..Self::default()
        }
    }

    /// Bytes of all entries.
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
        self.bytes.push(ACCOUNT);
        self.bytes.extend_from_slice(path.as_slice());
        account.encode_to(&mut self.bytes);
        self.owner = Some(*path);
        self.leaves += 1;
        Ok(())
    }

    /// Adds a slot, whose value is not zero, of the account at `owner`.
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
        self.bytes.push(value.as_bytes().len() as u8);
        self.bytes.extend_from_slice(slot.as_slice());
        self.bytes.extend_from_slice(value.as_bytes());
        self.leaves += 1;
        Ok(())
    }

    fn make_room(&mut self, spill: &SpillFile) -> Result<(), StateError> {
        if self.bytes.len() + RECORD_BYTES_MAX > self.piece_bytes {
            self.spill(spill)?;
        }
        if self.bytes.capacity() == 0 {
            // All at once: what is not touched costs nothing, and nothing is ever moved.
            self.bytes.reserve_exact(self.piece_bytes);
        }
        Ok(())
    }

    /// Spills what is in memory.
    pub(crate) fn spill(&mut self, spill: &SpillFile) -> Result<(), StateError> {
        if !self.bytes.is_empty() {
            self.pieces.push(spill.append(&self.bytes)?);
            self.bytes.clear();
        }
        self.owner = None;
        Ok(())
    }
}

//! Data files: the bodies that the chain stores with its blocks, one after another.
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       xxh3-64 of the rest of the record
//! 8       4       length of the record
//! 12      8       number of the block
//! 20      32      its hash
//! 52              its body: see `body.rs`
//! ```
//!
//! Numbers are little-endian. The runs have the place of each record; the last one of a write is filled up to whole
//! blocks of 4096 bytes. Published records are never overwritten: after the chain has left some blocks, the next ones
//! go to a new file.

use crate::{IndexError, StoredBody, counters::Counters, extents::Extent, list::data_name};
use alloy_primitives::{B256, Bytes};
use cambium_disk::{Access, Disk, DiskFile};
use cambium_primitives::{BlockId, BlockNumber};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use xxhash_rust::xxh3::xxh3_64;

const HEAD_BYTES: usize = 52;
/// Most files that are open at once.
const OPEN_FILES_MAX: usize = 128;

/// A block of the index, with its stored body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedBlock {
    /// Number and hash of the block.
    pub id: BlockId,
    /// Its stored body.
    pub body: StoredBody,
}

/// Appends the record of a block to `out`. Returns its length; `None` if it is 4 GiB or more.
pub(crate) fn put_record(out: &mut Vec<u8>, id: BlockId, body: &[u8]) -> Option<u32> {
    let start = out.len();
    let len = u32::try_from(HEAD_BYTES + body.len()).ok()?;
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&id.number.to_le_bytes());
    out.extend_from_slice(id.hash.as_slice());
    out.extend_from_slice(body);
    let sum = xxh3_64(&out[start + 8..]);
    out[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    Some(len)
}

/// Takes the record of a block apart. `Err` says what is wrong.
fn take_record(bytes: Vec<u8>, number: BlockNumber) -> Result<(BlockId, Bytes), &'static str> {
    let bytes = Bytes::from(bytes);
    let field = |at: usize, len: usize| bytes.get(at..at + len);
    let (Some(sum), Some(len), Some(found), Some(hash)) =
        (field(0, 8), field(8, 4), field(12, 8), field(20, 32))
    else {
        return Err("the record of a block is too short");
    };
    let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
    if len < HEAD_BYTES || len > bytes.len() || xxh3_64(&bytes[8..len]).to_le_bytes() != sum {
        return Err("the checksum of a block's record does not match");
    }
    if found != number.to_le_bytes() {
        return Err("it has the record of another block");
    }
    let id = BlockId::new(number, B256::from_slice(hash));
    Ok((id, bytes.slice(HEAD_BYTES..len)))
}

/// The data files, opened when they are needed.
#[derive(Debug)]
pub(crate) struct DataFiles {
    disk: Arc<dyn Disk>,
    open: Mutex<BTreeMap<u64, Arc<dyn DiskFile>>>,
    counters: Arc<Counters>,
}

impl DataFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, counters: Arc<Counters>) -> Self {
        Self {
            disk,
            open: Mutex::default(),
            counters,
        }
    }

    /// A data file, which is opened, or created if there is none and `creates`.
    pub(crate) fn file(&self, number: u64, creates: bool) -> Result<Arc<dyn DiskFile>, IndexError> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&number) {
            return Ok(file.clone());
        }
        let name = data_name(number);
        let file = match self.disk.open_with(&name, Access::Direct) {
            Err(error) if error.is_not_found() && creates => {
                self.disk.create_with(&name, Access::Direct)?
            }
            Err(error) if error.is_not_found() => {
                let file = self.disk.display_path(&name);
                return Err(IndexError::Missing { file });
            }
            file => file?,
        };
        if open.len() >= OPEN_FILES_MAX {
            open.pop_first();
        }
        open.insert(number, file.clone());
        Ok(file)
    }

    /// Forgets all files: they may be others under the same names.
    pub(crate) fn close_all(&self) {
        self.open.lock().clear();
    }

    /// Forgets a file that is going to be removed.
    pub(crate) fn close(&self, number: u64) {
        self.open.lock().remove(&number);
    }

    /// Reads the block that is there.
    pub(crate) fn read(
        &self,
        extent: Extent,
        number: BlockNumber,
    ) -> Result<(BlockId, Bytes), IndexError> {
        let file = self.file(extent.file, false)?;
        let mut bytes = vec![0; extent.len as usize];
        let damaged = |what: &str| IndexError::Damaged {
            file: self.disk.display_path(&data_name(extent.file)),
            offset: extent.offset,
            what: what.to_owned(),
        };
        // A length that is wrong allocates no more than the file has.
        if extent.offset.saturating_add(extent.len.into()) > file.len()? {
            return Err(damaged("the file is shorter than its run says"));
        }
        file.read_at(&mut bytes, extent.offset)?;
        self.counters.count_data_read();
        take_record(bytes, number).map_err(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_and_every_changed_byte_is_found() {
        let id = BlockId::new(9, B256::repeat_byte(7));
        let mut bytes = Vec::new();
        assert_eq!(put_record(&mut bytes, id, b"body"), Some(56));
        let padded = [&bytes[..], &[0; 100]].concat();
        let body = Bytes::from_static(b"body");
        assert_eq!(take_record(padded, 9), Ok((id, body)));
        assert!(take_record(bytes.clone(), 8).is_err());
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            assert!(take_record(bytes, 9).is_err(), "byte {at}");
        }
        assert!((0..bytes.len()).all(|end| take_record(bytes[..end].to_vec(), 9).is_err()));
    }
}

//! Format of the file of codes.

use crate::{
    StoreError,
    error::REPAIR,
    record::{FRAME_BYTES, KEY_BYTES},
};
use cambium_disk::Disk;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) const NAME: &str = "codes.dat";

// Codes. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiCod"
// 8       4     format: 1
// 12      4     zeros
// 16      8     xxh3-64, seeded with the salt, of 0 .. 16
// 24            records (see record.rs), whose positions are their offsets: of kind 0 with a
//               code, of kind 1 with zeros, where a repair found less than had been there
//
// Payload of a record of kind 0
//
// 0       32    hash
// 32      8     xxh3-64, seeded with the salt, of the hash: it is read without the code
// 40            code
const MAGIC: &[u8; 8] = b"CambiCod";
pub(crate) const FORMAT: u32 = 1;
pub(super) const HEADER_BYTES: u64 = 24;
pub(super) const KIND: u8 = 0;
/// Kind of records that fill the place of lost codes.
pub(super) const FILLER: u8 = 1;
/// Limits of a filler record's size in bytes. The smallest has room for a frame and a key.
pub(super) const FILLER_BYTES_MIN: u64 = (FRAME_BYTES + KEY_BYTES) as u64;
pub(super) const FILLER_BYTES_MAX: u64 = 64 << 20;

/// Encodes the header of the file of codes.
pub(super) fn header(salt: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let check = xxh3_64_with_seed(&header[..16], salt);
    header[16..].copy_from_slice(&check.to_le_bytes());
    header
}

/// Creates the error of damage at `offset` of the file.
pub(super) fn corrupt(disk: &dyn Disk, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt {
        file: disk.display_path(NAME),
        offset,
        what: what.to_owned(),
        advice: REPAIR,
    }
}

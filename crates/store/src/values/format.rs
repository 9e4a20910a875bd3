//! Format of the value segments: names, headers and records.

use super::place::Place;
use crate::{
    StoreError,
    record::{FRAME_BYTES, KEY_BYTES, encode_key, put_record, record_bytes, verify_record},
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use std::collections::BTreeSet;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Directory of the value segments.
pub(crate) const DIR: &str = "values";

// Value segment. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiVal"
// 8       4     format: 1
// 12      4     number of the segment, from 1
// 16      8     xxh3-64, seeded with the salt, of 0 .. 16
// 24            records (see record.rs) of kind 0, whose positions are their places (place.rs);
//               between them, what crashes have left of values that nothing refers to
//
// Payload of a record
//
// 0       32    key
// 32      8     xxh3-64, seeded with the salt, of the key: it is read without the value
// 40            value
const MAGIC: &[u8; 8] = b"CambiVal";
pub(crate) const FORMAT: u32 = 1;
const KIND: u8 = 0;
/// Size of a segment's header in bytes.
pub(super) const HEADER_BYTES: u64 = 24;
/// Alignment of records in bytes.
pub(super) const RECORD_ALIGN_BYTES: u64 = 8;
/// Offset of the value in its record, in bytes.
pub(super) const VALUE_START: usize = FRAME_BYTES + KEY_BYTES;

/// Returns the size in bytes of the record of a value of `len` bytes.
pub(super) const fn value_bytes(len: u32) -> u64 {
    record_bytes(KEY_BYTES as u64 + len as u64)
}

/// Returns the path of the segment with this number.
pub(super) fn name_of(number: u32) -> String {
    format!("{DIR}/{number:08}.val")
}

/// Parses the number from the name of a segment's file, without its directory.
fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".val")?.parse().ok()?;
    let is_exact = name_of(number).strip_prefix(DIR)?.strip_prefix('/')? == name;
    (number > 0 && is_exact).then_some(number)
}

/// Returns the numbers of all segments that have a file.
pub(super) fn numbers(disk: &dyn Disk) -> Result<BTreeSet<u32>, StoreError> {
    if !disk.exists(DIR)? {
        return Ok(BTreeSet::new());
    }
    let names = disk.list(DIR)?;
    Ok(names.iter().filter_map(|name| number_of(name)).collect())
}

/// Encodes the header of the segment with this number.
pub(super) fn header_of(number: u32, salt: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&number.to_le_bytes());
    let check = xxh3_64_with_seed(&header[..16], salt);
    header[16..].copy_from_slice(&check.to_le_bytes());
    header
}

/// Encodes the record of a value. Everything before `durable_to` is durable.
pub(super) fn encode_value(
    salt: u64,
    place: Place,
    durable_to: Place,
    key: &B256,
    value: &[u8],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(record_bytes((KEY_BYTES + value.len()) as u64) as usize);
    let (position, durable_to) = (place.to_word().get(), durable_to.to_word().get());
    let parts = [&encode_key(salt, key)[..], value];
    put_record(&mut out, salt, KIND, position, durable_to, &parts);
    out
}

/// Verifies the record of a value of `len` bytes, and cuts out the value.
pub(super) fn decode_value(
    salt: u64,
    place: Place,
    len: u32,
    mut record: Vec<u8>,
) -> Result<Vec<u8>, String> {
    let (frame, payload) = verify_record(&record, salt, place.to_word().get())?;
    if frame.kind != KIND || payload.len() != KEY_BYTES + len as usize {
        let found = payload.len().saturating_sub(KEY_BYTES);
        return Err(format!(
            "a value of {len} bytes should be here, and one of {found} bytes is"
        ));
    }
    record.truncate(VALUE_START + len as usize);
    record.drain(..VALUE_START);
    Ok(record)
}

/// Creates the error of damage at `offset` of a segment.
pub(super) fn corrupt(disk: &dyn Disk, number: u32, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt {
        file: disk.display_path(&name_of(number)),
        offset,
        what: what.to_owned(),
        advice: "put back this file from a backup that has it whole, or restore the directory from one",
    }
}

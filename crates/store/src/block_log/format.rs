//! Format of the log files: names, headers, and the log's internal records.

use crate::{
    LogPosition, StoreError,
    log_position::HEADER_BYTES,
    record::{FRAME_BYTES, Found, RecordFile},
};
use cambium_disk::{Disk, DiskError, DiskFile};
use std::{collections::BTreeSet, sync::Arc};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Directory of the log files.
pub(super) const DIR: &str = "log";
/// Name of the next file while it is being filled with zeros.
pub(super) const TEMPORARY: &str = "log/next.tmp";

// Log file. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiLog"
// 8       4     format: 2
// 12      4     number of the file, from 1
// 16      8     length of the previous file, whose last record is of kind END
// 24      8     xxh3-64, seeded with the salt, of 0 .. 24
// 32            records (see record.rs), whose positions are those of `LogPosition::to_u64`
// then          zeros, in the newest file; a file of zeros only is preallocated
const MAGIC: &[u8; 8] = b"CambiLog";
pub(crate) const FORMAT: u32 = 2;

/// First record kind that is reserved for the log itself.
pub(super) const INTERNAL_KINDS: u8 = 0xf0;
/// Sync mark: everything before this record is durable.
pub(super) const SYNC_MARK: u8 = 0xf0;
/// Last record of a file. The next file has a durable header.
pub(super) const END: u8 = 0xf1;
/// Gap in place of a range that was damaged, written by a repair.
pub(super) const GAP: u8 = 0xf2;
/// Size of a sync mark and of an end record in bytes.
pub(super) const MARK_BYTES: u32 = FRAME_BYTES as u32;

/// Returns whether the damaged bytes at `offset` are a sync mark: an intact record follows after
/// exactly the size of one, and no user record is that short. Losing a mark does no harm, because
/// the next record states the same.
pub(super) fn is_damaged_mark(records: &RecordFile<'_>, offset: u64) -> Result<bool, DiskError> {
    let behind = offset + u64::from(MARK_BYTES);
    Ok(behind < records.len && matches!(records.record(behind)?, Found::Record(..)))
}

/// Returns the position of a file's first byte as a number.
pub(super) const fn base_of(file: u32) -> u64 {
    (file as u64) << 32
}

/// Returns the path of the log file with this number.
pub(crate) fn name_of(file: u32) -> String {
    format!("{DIR}/{file:08}.log")
}

/// Encodes the header of a log file. `previous_bytes` is the length of the previous file.
pub(super) fn header_of(file: u32, previous_bytes: u32, salt: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&file.to_le_bytes());
    header[16..24].copy_from_slice(&u64::from(previous_bytes).to_le_bytes());
    let check = xxh3_64_with_seed(&header[..24], salt);
    header[24..].copy_from_slice(&check.to_le_bytes());
    header
}

/// Creates a log file and makes its header durable. A file with content therefore had a valid
/// header.
pub(super) fn begin_file(
    disk: &dyn Disk,
    number: u32,
    previous_bytes: u32,
    salt: u64,
) -> Result<Arc<dyn DiskFile>, StoreError> {
    let file = disk.create(&name_of(number))?;
    file.write_at(&header_of(number, previous_bytes, salt), 0)?;
    file.sync()?;
    disk.sync_dir(DIR)?;
    Ok(file)
}

/// Creates the error of damage at `position`.
pub(super) fn corrupt(disk: &dyn Disk, position: LogPosition, what: &str) -> StoreError {
    StoreError::CorruptLog {
        file: disk.display_path(&name_of(position.file)),
        offset: position.offset.into(),
        position,
        what: what.to_owned(),
    }
}

/// Converts the error of opening a log file: a missing file is damage to the log.
pub(super) fn missing(disk: &dyn Disk, number: u32, error: DiskError) -> StoreError {
    if error.is_not_found() {
        corrupt(
            disk,
            LogPosition {
                file: number,
                offset: 0,
            },
            "the file is missing",
        )
    } else {
        error.into()
    }
}

/// Returns the numbers of all log files in the directory.
pub(super) fn file_numbers(disk: &dyn Disk) -> Result<BTreeSet<u32>, StoreError> {
    if !disk.exists(DIR)? {
        return Ok(BTreeSet::new());
    }
    let number = |name: String| {
        let number = name.strip_suffix(".log")?.parse().ok()?;
        (name_of(number) == format!("{DIR}/{name}")).then_some(number)
    };
    Ok(disk.list(DIR)?.into_iter().filter_map(number).collect())
}

//! Recovery: finding the end of the log after a crash.
//!
//! Finding the end changes no file. [`BlockLog::settle`] applies the outcome once the database is
//! open.
//!
//! [`BlockLog::settle`]: super::BlockLog::settle

use super::format::{
    DIR, END, MARK_BYTES, base_of, corrupt, file_numbers, header_of, is_damaged_mark, missing,
    name_of,
};
use crate::{
    LogPosition, StoreError,
    log_position::HEADER_BYTES,
    record::{Found, RecordFile},
};
use cambium_disk::{Disk, DiskFile};
use std::{collections::BTreeSet, sync::Arc};

/// Bytes at the end of the log that no sync had acknowledged, and that recovery drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The log file's path for display.
    pub file: String,
    /// Offset of the new end of the log in the file.
    pub offset: u64,
    /// Number of bytes dropped, without trailing zeros.
    pub bytes: u64,
}

/// Result of opening a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecovery {
    /// Position of the next record.
    pub end: LogPosition,
    /// The torn end that [`BlockLog::settle`](super::BlockLog::settle) drops, if there is one.
    pub torn_tail: Option<TornTail>,
}

/// Outcome of recovery that has not been applied to the files yet.
#[derive(Debug)]
pub(super) struct PendingRecovery {
    /// End of the log. `None` if no log was durably begun.
    pub(super) end: Option<FoundEnd>,
    /// Files after the end that were never durably begun. Recovery removes them.
    drop: BTreeSet<u32>,
}

/// End of the log, and what is known about its durability.
#[derive(Debug)]
pub(super) struct FoundEnd {
    file: Arc<dyn DiskFile>,
    /// The previous file, unless it is known to be durable. The process that ended it may have
    /// stopped before syncing it.
    before: Option<LogFile>,
    pub(super) end: LogPosition,
    /// Everything before this position is known to be durable.
    durable_to: u64,
    /// End of the bytes to drop, if there are any.
    torn_to: Option<u64>,
}

impl FoundEnd {
    /// Whether nothing was written at the end since it was found: a record that begins there is not zeros, and a file that follows is
    /// begun by one.
    pub(super) fn is_unchanged(&self) -> Result<bool, StoreError> {
        let (at, len) = (u64::from(self.end.offset), self.file.len()?);
        if self.torn_to.is_some() || len < at {
            return Ok(false);
        }
        let mut head = [0; MARK_BYTES as usize];
        let head = &mut head[..(len - at).min(MARK_BYTES.into()) as usize];
        self.file.read_at(head, at)?;
        Ok(head.iter().all(|byte| *byte == 0))
    }

    /// Describes the bytes to drop. Returns `None` if they are no longer than a torn sync mark,
    /// which is not worth reporting.
    pub(super) fn torn_tail(&self, disk: &dyn Disk) -> Option<TornTail> {
        let offset = u64::from(self.end.offset);
        let bytes = self.torn_to? - offset;
        (bytes > MARK_BYTES.into()).then(|| TornTail {
            file: disk.display_path(&name_of(self.end.file)),
            offset,
            bytes,
        })
    }
}

impl PendingRecovery {
    /// Drops what follows the end and makes durable what precedes it. Returns the newest file.
    pub(super) fn settle(
        self,
        disk: &dyn Disk,
        salt: u64,
    ) -> Result<Option<Arc<dyn DiskFile>>, StoreError> {
        // The newest file first: a crash must not leave a file without its predecessor.
        for number in self.drop.iter().rev() {
            disk.remove(&name_of(*number))?;
        }
        disk.sync_dir(DIR)?;
        let Some(found) = self.end else {
            return Ok(None);
        };
        let (base, end) = (base_of(found.end.file), u64::from(found.end.offset));
        if found.torn_to.is_some() {
            found.file.set_len(end)?;
            // If the old bytes reappeared under new records after a crash, they could pass for
            // records.
            found.file.sync()?;
        }
        // Data of a process that was killed, or whose sync failed, may exist in the page cache
        // only.
        if let Some(before) = &found.before {
            let durable_to = found.durable_to.saturating_sub(base_of(before.number));
            let records = before.records(before.len);
            records.rewrite(durable_to.min(before.len), before.len)?;
            before.file.sync()?;
        }
        let records = RecordFile {
            file: &*found.file,
            salt,
            base,
            len: end,
        };
        records.rewrite(found.durable_to.saturating_sub(base).min(end), end)?;
        found.file.sync()?;
        Ok(Some(found.file))
    }
}

/// An open log file.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) number: u32,
    pub(super) len: u64,
    salt: u64,
    /// Length of the previous file according to this file's header. `None` if the header is
    /// damaged.
    pub(super) previous_bytes: Option<u64>,
}

/// End of the intact records of a file, and why no further record follows.
struct EndOfRecords {
    offset: u64,
    what: &'static str,
    /// Whether the last intact record is an end record.
    is_ended: bool,
}

impl LogFile {
    pub(super) fn open(disk: &dyn Disk, number: u32, salt: u64) -> Result<Self, StoreError> {
        let file = disk
            .open(&name_of(number))
            .map_err(|e| missing(disk, number, e))?;
        let len = file.len()?;
        let mut previous_bytes = None;
        if len >= HEADER_BYTES.into() {
            let mut header = [0; HEADER_BYTES as usize];
            file.read_at(&mut header, 0)?;
            let claimed = u32::from_le_bytes(header[16..20].try_into().expect("4 bytes"));
            let is_possible = number == 1 || is_length(claimed);
            if is_possible && header == header_of(number, claimed, salt) {
                previous_bytes = Some(claimed.into());
            }
        }
        Ok(Self {
            file,
            number,
            len,
            salt,
            previous_bytes,
        })
    }

    pub(super) fn records(&self, len: u64) -> RecordFile<'_> {
        RecordFile {
            file: &*self.file,
            salt: self.salt,
            base: base_of(self.number),
            len,
        }
    }

    /// Returns whether the file holds anything but zeros after its header.
    pub(super) fn has_content(&self) -> Result<bool, StoreError> {
        let header = u64::from(HEADER_BYTES);
        Ok(self.len > header && self.records(self.len).content_end(header)?.is_some())
    }

    /// Finds the end of the intact records in `offset .. limit`. Raises `durable_to` to the
    /// positions that these records state to be durable.
    fn end_of_records(
        &self,
        mut offset: u64,
        limit: u64,
        durable_to: &mut u64,
    ) -> Result<EndOfRecords, StoreError> {
        let records = self.records(limit);
        let mut is_ended = false;
        let mut what = "records are missing";
        while offset < limit && !is_ended {
            match records.record(offset)? {
                Found::Record(frame, _) => {
                    *durable_to = frame.durable_to.max(*durable_to);
                    offset += frame.size();
                    is_ended = frame.kind == END;
                }
                Found::End | Found::Damage(_) if is_damaged_mark(&records, offset)? => {
                    offset += u64::from(MARK_BYTES);
                }
                Found::End => {
                    what = "a record is missing";
                    break;
                }
                Found::Damage(damage) => {
                    what = damage;
                    break;
                }
            }
        }
        Ok(EndOfRecords {
            offset,
            what,
            is_ended,
        })
    }
}

/// Returns whether a completed file can have this length: a header, records, and an end record. The
/// length comes from a header, and is checked before it is used in arithmetic.
const fn is_length(bytes: u32) -> bool {
    let least = HEADER_BYTES + MARK_BYTES;
    bytes.is_multiple_of(8) && (bytes == least || bytes >= least + MARK_BYTES)
}

/// Finds the end of the log by reading its records from `from` on.
pub(super) fn find_end(
    disk: &dyn Disk,
    salt: u64,
    from: LogPosition,
) -> Result<PendingRecovery, StoreError> {
    let numbers = file_numbers(disk)?;
    let drop_from = |number: u32| numbers.range(number..).copied().collect();
    if from == LogPosition::START && next_file(disk, &numbers, 0, salt)?.is_none() {
        return Ok(PendingRecovery {
            end: None,
            drop: drop_from(1),
        });
    }
    let mut at = from;
    // Without a checkpoint not even the header of the first file is known to be durable.
    let mut durable_to = if from == LogPosition::START {
        0
    } else {
        from.to_u64()
    };
    let mut before = None;
    if numbers.is_empty() {
        let what = "the file is missing, as all others: is the disk of the log mounted?";
        return Err(corrupt(disk, LogPosition { offset: 0, ..at }, what));
    }
    let mut file = LogFile::open(disk, at.file, salt)?;
    if file.previous_bytes.is_none() {
        return Err(bad_header(disk, &numbers, at.file, salt));
    }
    loop {
        let next = next_file(disk, &numbers, at.file, salt)?;
        let limit = next
            .as_ref()
            .and_then(|next| next.previous_bytes)
            .unwrap_or(file.len);
        let EndOfRecords {
            offset,
            what,
            is_ended,
        } = file.end_of_records(at.offset.into(), limit.min(file.len), &mut durable_to)?;
        at.offset = offset as u32;
        let is_last = match &next {
            None if is_ended => {
                let lost = LogPosition {
                    file: at.file + 1,
                    offset: 0,
                };
                return Err(corrupt(disk, lost, "the file is missing"));
            }
            None => true,
            Some(_) if is_ended && offset == limit => false,
            // The next file has only a durable header, so this file's end record may be missing.
            Some(next)
                if !is_ended && !next.has_content()? && numbers.last() == Some(&next.number) =>
            {
                true
            }
            Some(_) if offset + u64::from(MARK_BYTES) == limit => false,
            Some(_) => return Err(corrupt(disk, at, what)),
        };
        match next {
            Some(next) if !is_last => before = Some(std::mem::replace(&mut file, next)),
            _ => {
                let drop = drop_from(at.file + 1);
                let is_known = durable_to >= base_of(at.file);
                let end = FoundEnd {
                    before: before.filter(|_| !is_known),
                    ..end_in(disk, file, at, what, durable_to)?
                };
                return Ok(PendingRecovery {
                    end: Some(end),
                    drop,
                });
            }
        }
        at = LogPosition {
            file: at.file + 1,
            offset: HEADER_BYTES,
        };
    }
}

/// Opens the file after number `number`. Returns `None` if there is none, or if it was not durably
/// begun.
fn next_file(
    disk: &dyn Disk,
    numbers: &BTreeSet<u32>,
    number: u32,
    salt: u64,
) -> Result<Option<LogFile>, StoreError> {
    if numbers.range(number + 1..).next().is_none() {
        return Ok(None);
    }
    let file = LogFile::open(disk, number + 1, salt)?;
    if file.previous_bytes.is_some() {
        return Ok(Some(file));
    }
    // Records and further files are written only once the header is durable.
    if numbers.last() == Some(&file.number) && !file.has_content()? {
        return Ok(None);
    }
    Err(bad_header(disk, numbers, number + 1, salt))
}

/// The error of a damaged header. Names the likely cause if all headers are so.
fn bad_header(disk: &dyn Disk, numbers: &BTreeSet<u32>, file: u32, salt: u64) -> StoreError {
    let is_sound = |number: &u32| {
        let file = LogFile::open(disk, *number, salt);
        file.is_ok_and(|file| file.previous_bytes.is_some())
    };
    let what = match numbers.iter().any(is_sound) {
        true => "bad header",
        false => "bad header, as in all files of the log: they may be another database's",
    };
    corrupt(disk, LogPosition { file, offset: 0 }, what)
}

/// Returns `end` in the last file as the end of the log.
///
/// # Errors
///
/// [`StoreError::CorruptLog`] if the records after `end` prove it to have been durable.
fn end_in(
    disk: &dyn Disk,
    file: LogFile,
    end: LogPosition,
    what: &'static str,
    durable_to: u64,
) -> Result<FoundEnd, StoreError> {
    let offset = u64::from(end.offset);
    if offset > file.len {
        return Err(corrupt(
            disk,
            end,
            "the log ends before the position in the checkpoint",
        ));
    }
    let records = file.records(file.len);
    let torn_to = records.content_end(offset)?;
    if torn_to.is_some()
        && records
            .find_durability_proof(offset, end.to_u64())?
            .is_some()
    {
        return Err(corrupt(disk, end, what));
    }
    Ok(FoundEnd {
        file: file.file,
        before: None,
        end,
        durable_to,
        torn_to,
    })
}

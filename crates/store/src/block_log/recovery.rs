//! Finding the end of a log, whatever happened to it, and cutting it.

use super::{
    DIR, HEADER_BYTES, LogPosition, TornTail, base_of, corrupt, header_of, missing, name_of,
};
use crate::{
    StoreError,
    record::{Found, RecordFile},
};
use cambium_disk::{Disk, DiskFile};
use std::{collections::BTreeSet, sync::Arc};

/// The end of a log.
pub(super) struct End {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) end: LogPosition,
    pub(super) torn_tail: Option<TornTail>,
}

impl End {
    /// Makes durable what was found and is not known to be: a killed process, or one whose sync
    /// failed, may have left it in the system's cache alone.
    fn make_durable(&self, salt: u64, durable_to: u64) -> Result<(), StoreError> {
        let (base, end) = (base_of(self.end.file), self.end.offset.into());
        let records = RecordFile {
            file: &*self.file,
            salt,
            base,
            len: end,
        };
        records.rewrite(durable_to.saturating_sub(base), end)?;
        Ok(self.file.sync()?)
    }
}

/// One log file, opened.
struct LogFile {
    file: Arc<dyn DiskFile>,
    number: u32,
    len: u64,
    salt: u64,
    /// Length of the file before, if the header is good.
    previous_bytes: Option<u64>,
}

impl LogFile {
    fn open(disk: &dyn Disk, number: u32, salt: u64) -> Result<Self, StoreError> {
        let file = disk
            .open(&name_of(number))
            .map_err(|e| missing(disk, number, e))?;
        let len = file.len()?;
        let mut previous_bytes = None;
        if len >= HEADER_BYTES.into() {
            let mut header = [0; HEADER_BYTES as usize];
            file.read_at(&mut header, 0)?;
            let claimed = u32::from_le_bytes(header[16..20].try_into().expect("4 bytes"));
            if header == header_of(number, claimed, salt) {
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

    fn records(&self, len: u64) -> RecordFile<'_> {
        RecordFile {
            file: &*self.file,
            salt: self.salt,
            base: base_of(self.number),
            len,
        }
    }

    /// The end of the whole records from `offset` on and before `limit`, and what is there. Raises
    /// `durable_to` to what they tell.
    fn end_of_records(
        &self,
        mut offset: u64,
        limit: u64,
        durable_to: &mut u64,
    ) -> Result<(u64, &'static str), StoreError> {
        let records = self.records(limit);
        while offset < limit {
            match records.record(offset)? {
                Found::Record(frame, _) => {
                    *durable_to = frame.durable_to.max(*durable_to);
                    offset += frame.size();
                }
                Found::End => return Ok((offset, "a record is missing")),
                Found::Damage(what) => return Ok((offset, what)),
            }
        }
        Ok((offset, "records are missing"))
    }
}

/// Finds the end of the log by its records from `from` on, and drops what follows it. `None` if no
/// log was ever durably begun.
pub(super) fn find_end(
    disk: &dyn Disk,
    salt: u64,
    from: LogPosition,
) -> Result<Option<End>, StoreError> {
    let numbers = numbers(disk)?;
    if from == LogPosition::START && next_file(disk, &numbers, 0, salt)?.is_none() {
        drop_files(disk, &numbers, 1)?;
        return Ok(None);
    }
    let mut at = from;
    // Of a log without a checkpoint not even the header is known to be durable.
    let mut durable_to = if from == LogPosition::START {
        0
    } else {
        from.to_u64()
    };
    let mut file = LogFile::open(disk, at.file, salt)?;
    if file.previous_bytes.is_none() {
        return Err(corrupt(disk, LogPosition { offset: 0, ..at }, "bad header"));
    }
    loop {
        // A file is begun once the one before it is whole and durable.
        let next = next_file(disk, &numbers, at.file, salt)?;
        let limit = next
            .as_ref()
            .and_then(|next| next.previous_bytes)
            .unwrap_or(file.len);
        let (offset, what) =
            file.end_of_records(at.offset.into(), limit.min(file.len), &mut durable_to)?;
        at.offset = offset as u32;
        match next {
            None => {
                let end = drop_tail(disk, file, at, what, &numbers)?;
                end.make_durable(salt, durable_to)?;
                return Ok(Some(end));
            }
            Some(_) if offset != limit => return Err(corrupt(disk, at, what)),
            Some(next) => file = next,
        }
        at = LogPosition {
            file: at.file + 1,
            offset: HEADER_BYTES,
        };
    }
}

/// The file after number `number`. `None` if there is none, or none that was durably begun.
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
    // Records are written, and further files begun, only when the header is durable.
    if numbers.last() == Some(&file.number) {
        let header = u64::from(HEADER_BYTES);
        if file.len <= header || file.records(file.len).content_end(header)?.is_none() {
            return Ok(None);
        }
    }
    Err(corrupt(
        disk,
        LogPosition {
            file: number + 1,
            offset: 0,
        },
        "bad header",
    ))
}

/// Drops what follows `end` in the last file, unless it had been durable.
fn drop_tail(
    disk: &dyn Disk,
    file: LogFile,
    end: LogPosition,
    what: &'static str,
    numbers: &BTreeSet<u32>,
) -> Result<End, StoreError> {
    let offset = u64::from(end.offset);
    if offset > file.len {
        return Err(corrupt(
            disk,
            end,
            "the log ends before what a checkpoint says is there",
        ));
    }
    drop_files(disk, numbers, end.file + 1)?;
    let records = file.records(file.len);
    let mut torn_tail = None;
    if let Some(content_end) = records.content_end(offset)? {
        if records.witness(offset, end.to_u64())?.is_some() {
            return Err(corrupt(disk, end, what));
        }
        file.file.set_len(offset)?;
        // Were the old bytes to come back beneath new records, they could pass for records.
        file.file.sync()?;
        let name = disk.display_path(&name_of(end.file));
        torn_tail = Some(TornTail {
            file: name,
            offset,
            bytes: content_end - offset,
        });
    }
    Ok(End {
        file: file.file,
        end,
        torn_tail,
    })
}

/// Removes the files from number `first` on, the last one first.
fn drop_files(disk: &dyn Disk, numbers: &BTreeSet<u32>, first: u32) -> Result<(), StoreError> {
    for &number in numbers.range(first..).rev() {
        disk.remove(&name_of(number))?;
    }
    Ok(disk.sync_dir(DIR)?)
}

/// Cuts the log at `position`: within a file's header, the file goes too.
pub(super) fn truncate_from(disk: &dyn Disk, position: LogPosition) -> Result<(), StoreError> {
    let numbers = numbers(disk)?;
    let keeps_file = position.offset >= HEADER_BYTES;
    drop_files(disk, &numbers, position.file + u32::from(keeps_file))?;
    if keeps_file && numbers.contains(&position.file) {
        let file = disk.open(&name_of(position.file))?;
        file.set_len(file.len()?.min(position.offset.into()))?;
        file.sync()?;
    }
    Ok(())
}

/// Numbers of the log files that there are.
fn numbers(disk: &dyn Disk) -> Result<BTreeSet<u32>, StoreError> {
    let number = |name: String| {
        let number = name.strip_suffix(".log")?.parse().ok()?;
        (name_of(number) == format!("{DIR}/{name}")).then_some(number)
    };
    Ok(disk.list(DIR)?.into_iter().filter_map(number).collect())
}

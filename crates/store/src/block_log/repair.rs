//! Repair of damage to acknowledged records.
//!
//! The damaged bytes are first copied to a file outside the log. A gap record then takes their
//! place, so that all intact records before and after it keep their positions.

use super::{
    format::{
        DIR, END, GAP, MARK_BYTES, base_of, file_numbers, header_of, is_damaged_mark, name_of,
    },
    log::BlockLog,
    recovery::LogFile,
};
use crate::{
    LogPosition, StoreError,
    log_position::HEADER_BYTES,
    record::{FRAME_BYTES, Found, put_record},
};
use cambium_disk::{Disk, DiskFile, copy_range};

/// Largest part of a damaged range that one gap record covers, in bytes. The payload limit is 1
/// GiB.
const GAP_BYTES_MAX: u64 = 512 << 20;

/// Kind of damage to a part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDamageKind {
    /// Bytes that are not intact records, followed by intact ones.
    Range,
    /// The header of a file.
    Header,
    /// The end record of a file. No block is lost.
    End,
    /// A missing file, followed by others.
    File,
    /// The newest file and everything that was after it.
    Newest,
}

/// A part of the log that can't be read although it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDamage {
    /// Kind of the damaged part.
    pub kind: LogDamageKind,
    /// Start of the damaged part.
    pub position: LogPosition,
    /// Offset of its end in the same file, in bytes.
    pub end: u32,
    /// The log file's path for display.
    pub file: String,
}

/// Damage and gaps found by a search of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFindings {
    /// Parts that can't be read although they were acknowledged, in the order of the log.
    pub damage: Vec<LogDamage>,
    /// Parts that were damaged and cut out: where each begins, and the offset of its end in the same file, in bytes.
    pub gaps: Vec<(LogPosition, u32)>,
}

impl BlockLog {
    /// Searches the log for damage to acknowledged records, without changing anything. Damage is
    /// recognized by later records and files, and by `boundaries`: known positions, in order, at
    /// which records begin or the log ends, and before which everything was durable. Files before
    /// that of `start` may be missing. If `start` is unknown, the log starts with the oldest
    /// existing file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be read, and [`StoreError::Corrupt`] if a damaged range
    /// is shorter than any record.
    pub fn find_damage(
        disk: &dyn Disk,
        salt: u64,
        start: Option<LogPosition>,
        boundaries: &[LogPosition],
    ) -> Result<LogFindings, StoreError> {
        let mut numbers = file_numbers(disk)?;
        let first = match start {
            Some(start) => start.file,
            None => numbers.first().copied().unwrap_or(1),
        };
        numbers = numbers.split_off(&first);
        let mut search = Search {
            disk,
            boundaries,
            found: LogFindings::default(),
        };
        let last = numbers.last().copied().unwrap_or(first - 1);
        let known = boundaries.last().map_or(0, |known| known.file);
        let mut is_ended = false;
        for number in first..=last.max(known) {
            if !numbers.contains(&number) {
                search.add_missing_file(number, last);
                is_ended = false;
                continue;
            }
            let file = LogFile::open(disk, number, salt)?;
            if file.previous_bytes.is_none() {
                if number == last && !file.has_content()? {
                    // The file was preallocated, or not durably begun, and holds nothing.
                    if is_ended || number <= known {
                        search.add_missing_file(number, number - 1);
                    }
                    return Ok(search.found);
                }
                search.add(LogDamageKind::Header, start_of(number), HEADER_BYTES);
            }
            let next = match numbers.contains(&(number + 1)) {
                true => Some(LogFile::open(disk, number + 1, salt)?),
                false => None,
            };
            is_ended = search.search_file(&file, next.as_ref())?;
        }
        // An end record is written only when there is a next file.
        if is_ended && last >= known {
            search.add_missing_file(last + 1, last);
        }
        Ok(search.found)
    }

    /// Cuts out damage that [`BlockLog::find_damage`] has found. The log must not be open,
    /// `boundaries` must be the same, and damage must be passed in the order in which it was found.
    /// Bytes that are overwritten or cut off are first copied to `copy`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be read or written.
    pub fn cut_out(
        disk: &dyn Disk,
        salt: u64,
        boundaries: &[LogPosition],
        damage: &LogDamage,
        copy: &dyn DiskFile,
    ) -> Result<(), StoreError> {
        let LogDamage {
            kind,
            position,
            end,
            ..
        } = damage;
        let number = position.file;
        if *kind == LogDamageKind::Newest {
            // Without its end record, the previous file becomes the newest one.
            if let Some(end) = end_of(disk, salt, number - 1)? {
                let file = disk.open(&name_of(number - 1))?;
                copy_damaged(&*file, end.into(), file.len()?, copy)?;
                file.set_len(end.into())?;
                // Later repairs see by it that something was there.
                let mut gap = Vec::new();
                put_internal(&mut gap, salt, GAP, number - 1, end, 0);
                file.write_at(&gap, end.into())?;
                file.sync()?;
            }
            return Ok(());
        }
        let name = name_of(number);
        let file = match disk.exists(&name)? {
            true => disk.open(&name)?,
            false => disk.create(&name)?,
        };
        copy_damaged(&*file, position.offset.into(), (*end).into(), copy)?;
        let mut bytes = Vec::new();
        let mut from = position.offset;
        match kind {
            LogDamageKind::Header | LogDamageKind::File => {
                let before = match number {
                    1 => 0,
                    number => match records_end(disk, salt, number - 1)? {
                        Some((end, _)) => end + MARK_BYTES,
                        // The previous file is not kept, so its length is never used.
                        None => HEADER_BYTES + MARK_BYTES,
                    },
                };
                bytes.extend(header_of(number, before, salt));
                from = 0;
                if *kind == LogDamageKind::File {
                    let stated_end = match disk.exists(&name_of(number + 1))? {
                        true => LogFile::open(disk, number + 1, salt)?.previous_bytes,
                        false => None,
                    };
                    let known = known_end(boundaries, number).unwrap_or(HEADER_BYTES);
                    let end = stated_end.map_or(known, |stated_end| stated_end as u32 - MARK_BYTES);
                    put_gaps(&mut bytes, salt, boundaries, number, HEADER_BYTES, end);
                    let is_later = |known: &LogPosition| known.file > number;
                    if file_numbers(disk)?.last() > Some(&number) || boundaries.iter().any(is_later)
                    {
                        put_internal(&mut bytes, salt, END, number, end, 0);
                    }
                }
            }
            LogDamageKind::Range => put_gaps(&mut bytes, salt, boundaries, number, from, *end),
            LogDamageKind::End => put_internal(&mut bytes, salt, END, number, from, 0),
            LogDamageKind::Newest => {}
        }
        file.write_at(&bytes, from.into())?;
        file.sync()?;
        Ok(disk.sync_dir(DIR)?)
    }
}

const fn start_of(number: u32) -> LogPosition {
    LogPosition {
        file: number,
        offset: 0,
    }
}

/// Returns the last known boundary in a file. Everything before it was durable.
fn known_end(boundaries: &[LogPosition], number: u32) -> Option<u32> {
    let own = boundaries.iter().rev().find(|known| known.file == number);
    own.map(|known| known.offset)
}

/// Returns the offset of a file's end record. `None` if the file or the record does not exist.
fn end_of(disk: &dyn Disk, salt: u64, number: u32) -> Result<Option<u32>, StoreError> {
    let end = records_end(disk, salt, number)?;
    Ok(end.and_then(|(end, is_ended)| is_ended.then_some(end)))
}

/// Returns the offset of a file's end record and true, or the end of its last intact record and
/// false. `None` if the file does not exist.
fn records_end(disk: &dyn Disk, salt: u64, number: u32) -> Result<Option<(u32, bool)>, StoreError> {
    if !disk.exists(&name_of(number))? {
        return Ok(None);
    }
    let file = LogFile::open(disk, number, salt)?;
    let records = file.records(file.len);
    let mut offset = u64::from(HEADER_BYTES);
    while offset < file.len {
        match records.record(offset)? {
            Found::Record(frame, _) if frame.kind == END => return Ok(Some((offset as u32, true))),
            Found::Record(frame, _) => offset += frame.size(),
            Found::End | Found::Damage(_) => match records.find_record(offset + 8)? {
                Some(behind) => offset = behind,
                None => break,
            },
        }
    }
    Ok(Some((offset as u32, false)))
}

struct Search<'a> {
    disk: &'a dyn Disk,
    boundaries: &'a [LogPosition],
    found: LogFindings,
}

impl Search<'_> {
    fn add(&mut self, kind: LogDamageKind, position: LogPosition, end: u32) {
        self.found.damage.push(LogDamage {
            kind,
            position,
            end,
            file: self.disk.display_path(&name_of(position.file)),
        });
    }

    /// Adds a missing file, where `last` is the last file that exists. Only if other files or
    /// boundaries follow it is it known to have held records.
    fn add_missing_file(&mut self, number: u32, last: u32) {
        let is_needed = self.boundaries.iter().any(|known| known.file >= number);
        let kind = match number < last || is_needed {
            true => LogDamageKind::File,
            false => LogDamageKind::Newest,
        };
        self.add(kind, start_of(number), 0);
    }

    /// Searches one file for damage. Returns whether it has an end record.
    fn search_file(&mut self, file: &LogFile, next: Option<&LogFile>) -> Result<bool, StoreError> {
        // The length that the next file's header states, and a lower limit of the length from
        // boundaries.
        let stated_end = next.and_then(|next| next.previous_bytes);
        let known = known_end(self.boundaries, file.number).map_or(0, u64::from);
        let limit = stated_end.unwrap_or(file.len).min(file.len);
        let records = file.records(limit);
        let at = |offset: u64| LogPosition {
            file: file.number,
            offset: offset as u32,
        };
        let mut offset = u64::from(HEADER_BYTES);
        loop {
            if offset < limit
                && let Found::Record(frame, _) = records.record(offset)?
            {
                if frame.kind == GAP {
                    let end = offset + frame.size();
                    self.found.gaps.push((at(offset), end as u32));
                }
                offset += frame.size();
                if frame.kind == END {
                    return Ok(true);
                }
                continue;
            }
            if offset < limit && is_damaged_mark(&records, offset)? {
                offset += u64::from(MARK_BYTES);
                continue;
            }
            let end = match stated_end {
                // Everything up to the stated length was durable, except possibly the end record.
                Some(stated_end) => {
                    if offset >= stated_end {
                        return Ok(false);
                    }
                    let has_next = next.is_some_and(|next| next.has_content().unwrap_or(true));
                    if offset + u64::from(MARK_BYTES) == stated_end {
                        if has_next {
                            self.add(LogDamageKind::End, at(offset), stated_end as u32);
                        }
                        return Ok(false);
                    }
                    let behind = records.find_record(offset + 8)?;
                    behind.unwrap_or(stated_end - u64::from(MARK_BYTES))
                }
                None => {
                    let position = base_of(file.number) + offset;
                    // If nothing proves these bytes durable, they are a torn end.
                    if offset >= known && records.find_durability_proof(offset, position)?.is_none()
                    {
                        return Ok(false);
                    }
                    let behind = records.find_record(offset + 8)?;
                    behind.unwrap_or_else(|| known.max(offset))
                }
            };
            if end < offset + FRAME_BYTES as u64 {
                let name = self.disk.display_path(&name_of(file.number));
                let what = "the damaged range is shorter than a record";
                return Err(StoreError::corrupt(name, offset, what));
            }
            self.add(LogDamageKind::Range, at(offset), end as u32);
            offset = end;
            if offset >= limit {
                // The file was truncated, so its end record is missing too.
                if let Some(stated_end) = stated_end {
                    self.add(LogDamageKind::End, at(offset), stated_end as u32);
                }
                return Ok(false);
            }
        }
    }
}

/// Copies the existing bytes of a range of `file` to the end of `copy`, and syncs it. If that fails, restores the
/// length of `copy` if possible.
fn copy_damaged(
    file: &dyn DiskFile,
    from: u64,
    to: u64,
    copy: &dyn DiskFile,
) -> Result<(), StoreError> {
    let to = to.min(file.len()?);
    let before = copy.len()?;
    let copied = copy_range(file, from..to, copy, before, |_| ()).and_then(|()| copy.sync());
    if copied.is_err() {
        // Without a whole copy nothing is cut out, so a partial one is useless.
        let _ = copy.set_len(before);
    }
    Ok(copied?)
}

/// Appends an internal record with a payload of zeros.
fn put_internal(out: &mut Vec<u8>, salt: u64, kind: u8, file: u32, offset: u32, payload: usize) {
    let position = base_of(file) + u64::from(offset);
    // States that everything before it that exists is durable.
    put_record(out, salt, kind, position, position, &[&vec![0; payload]]);
}

/// Appends gap records that fill the range `from .. to`. Both ends and all `boundaries` in between
/// become record boundaries.
fn put_gaps(
    out: &mut Vec<u8>,
    salt: u64,
    boundaries: &[LogPosition],
    file: u32,
    from: u32,
    to: u32,
) {
    let within = boundaries
        .iter()
        .filter(|known| known.file == file && (from + 1..to).contains(&known.offset));
    let mut at = from;
    for end in within.map(|known| known.offset).chain([to]) {
        while at < end {
            let mut take = u64::from(end - at).min(GAP_BYTES_MAX);
            let left = u64::from(end - at) - take;
            if left > 0 && left < FRAME_BYTES as u64 {
                take -= FRAME_BYTES as u64;
            }
            put_internal(out, salt, GAP, file, at, take as usize - FRAME_BYTES);
            at += take as u32;
        }
    }
}

//! The reading half of the log: single records and scans.

use super::{
    format::{
        END, GAP, INTERNAL_KINDS, MARK_BYTES, base_of, corrupt, header_of, is_damaged_mark,
        missing, name_of,
    },
    log::BlockLog,
};
use crate::{
    LogPosition, StoreError,
    log_position::HEADER_BYTES,
    record::{Found, RecordFile},
};
use cambium_disk::DiskFile;
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

/// A record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Kind that the caller gave to the record, below 0xf0.
    pub kind: u8,
    /// Payload that the caller gave to the record.
    pub payload: Vec<u8>,
}

impl BlockLog {
    /// Reads the record at `position`, whether it is synced or not.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotKept`] if the record's file was removed, [`StoreError::LostRecord`] if a repair has cut the
    /// record out, [`StoreError::CorruptLog`] if it is damaged, and [`StoreError::Disk`] if it can't be read.
    pub fn read(&self, position: LogPosition) -> Result<Record, StoreError> {
        match self.or_not_kept(position.file, self.read_whole(position)) {
            Ok(record) if record.kind < INTERNAL_KINDS => Ok(record),
            Err(error) if !error.is_corruption() || !self.is_lost(position)? => Err(error),
            _ => Err(self.lost(position)),
        }
    }

    /// The error for a record that is not at its `position` any more.
    pub fn lost(&self, position: LogPosition) -> StoreError {
        StoreError::LostRecord {
            file: self.disk.display_path(&name_of(position.file)),
            offset: position.offset.into(),
        }
    }

    /// Returns whether no record begins at `position`, where one did, although all before it are there: a repair
    /// has cut it out.
    fn is_lost(&self, position: LogPosition) -> Result<bool, StoreError> {
        if position >= self.end() {
            return Ok(true);
        }
        let Ok(file) = self.file(position.file) else {
            return Ok(false);
        };
        let len = self.content_len(position.file, &*file)?;
        let records = self.records(&*file, len, position.file);
        let place = u64::from(position.offset);
        let is_met =
            |(number, gap): &(u32, Range<u64>)| *number == position.file && gap.contains(&place);
        if self.gap.lock().as_ref().is_some_and(is_met) {
            return Ok(true);
        }
        let mut offset = u64::from(HEADER_BYTES);
        while offset <= place {
            match records.record_head(offset, 0)? {
                Found::Record(frame, _) if place < offset + frame.size() => {
                    let is_gap = frame.kind == GAP;
                    if is_gap {
                        *self.gap.lock() = Some((position.file, offset..offset + frame.size()));
                    }
                    return Ok(is_gap || offset < place);
                }
                Found::Record(frame, _) => offset += frame.size(),
                Found::Damage(_) if is_damaged_mark(&records, offset)? => {
                    offset += u64::from(MARK_BYTES);
                }
                Found::End | Found::Damage(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn read_whole(&self, position: LogPosition) -> Result<Record, StoreError> {
        let file = self.file(position.file)?;
        let len = self.content_len(position.file, &*file)?;
        let (record, _) = self.read_from(&*file, len, position, None)?;
        Ok(record)
    }

    /// Returns whether there is still a record at `position`, where one was appended. Returns false if a repair has cut
    /// it out.
    ///
    /// # Errors
    ///
    /// As [`BlockLog::read`], but for [`StoreError::LostRecord`].
    pub fn has_record(&self, position: LogPosition) -> Result<bool, StoreError> {
        let head = || {
            let file = self.file(position.file)?;
            let len = self.content_len(position.file, &*file)?;
            self.read_from(&*file, len, position, Some(0))
        };
        match head() {
            Ok((record, _)) => Ok(record.kind < INTERNAL_KINDS),
            Err(error) if error.is_corruption() && self.is_lost(position)? => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns an iterator over the records from `from` to the current end of the log, in order.
    pub fn scan(&self, from: LogPosition) -> LogScan<'_> {
        LogScan {
            log: self,
            next: from,
            end: self.end(),
            file: None,
            head: None,
        }
    }

    /// Returns an iterator over the records from `from` on, with only the first `head` bytes of
    /// each payload. Only these bytes are read, and they are not verified.
    pub fn scan_heads(&self, from: LogPosition, head: usize) -> LogScan<'_> {
        LogScan {
            head: Some(head),
            ..self.scan(from)
        }
    }

    fn records<'a>(&self, file: &'a dyn DiskFile, len: u64, number: u32) -> RecordFile<'a> {
        RecordFile {
            file,
            salt: self.options.salt,
            base: base_of(number),
            len,
        }
    }

    fn read_from(
        &self,
        file: &dyn DiskFile,
        len: u64,
        position: LogPosition,
        head: Option<usize>,
    ) -> Result<(Record, LogPosition), StoreError> {
        let LogPosition {
            file: number,
            offset,
        } = position;
        let records = self.records(file, len, number);
        let found = match head {
            None => records.record(offset.into())?,
            Some(head) => records.record_head(offset.into(), head)?,
        };
        let what = match found {
            Found::Record(frame, payload) => {
                let offset = offset + frame.size() as u32;
                let record = Record {
                    kind: frame.kind,
                    payload,
                };
                return Ok((record, LogPosition { offset, ..position }));
            }
            Found::End => "there is no record",
            Found::Damage(what) => what,
        };
        Err(corrupt(&*self.disk, position, what))
    }

    /// Returns whether the next file's header states that the end record of this file is at
    /// `position`. A damaged end record is then harmless.
    fn is_last_of_file(&self, position: LogPosition) -> Result<bool, StoreError> {
        if position.file >= self.end().file {
            return Ok(false);
        }
        let mut header = [0; HEADER_BYTES as usize];
        self.file(position.file + 1)?.read_at(&mut header, 0)?;
        let end = position.offset + MARK_BYTES;
        Ok(header == header_of(position.file + 1, end, self.options.salt))
    }

    /// Returns an upper limit of the end of a file's records.
    fn content_len(&self, number: u32, file: &dyn DiskFile) -> Result<u64, StoreError> {
        let end = self.end();
        if number < end.file {
            Ok(file.len()?)
        } else {
            Ok(end.offset.into())
        }
    }

    fn file(&self, number: u32) -> Result<Arc<dyn DiskFile>, StoreError> {
        self.check_kept(number)?;
        if let Some(file) = self.files.read().get(&number) {
            return Ok(Arc::clone(file));
        }
        let file = self
            .disk
            .open(&name_of(number))
            .map_err(|e| missing(&*self.disk, number, e));
        let file = self.or_not_kept(number, file)?;
        self.keep_open(number, &file);
        Ok(file)
    }

    /// Returns [`StoreError::NotKept`] if the file `number` is before the oldest one that is kept.
    fn check_kept(&self, number: u32) -> Result<(), StoreError> {
        if number < self.first.load(Ordering::Acquire) {
            let file = self.disk.display_path(&name_of(number));
            return Err(StoreError::NotKept { file });
        }
        Ok(())
    }

    /// Replaces an error of damage by [`StoreError::NotKept`] if the file was removed during the
    /// read.
    fn or_not_kept<T>(&self, number: u32, read: Result<T, StoreError>) -> Result<T, StoreError> {
        if read.as_ref().is_err_and(StoreError::is_corruption) {
            self.check_kept(number)?;
        }
        read
    }
}

/// Iterator over records, made by [`BlockLog::scan`] and [`BlockLog::scan_heads`]. It ends after
/// the first error.
#[derive(Debug)]
pub struct LogScan<'a> {
    log: &'a BlockLog,
    next: LogPosition,
    end: LogPosition,
    /// The file of `next`, and the end of its records.
    file: Option<(Arc<dyn DiskFile>, u64)>,
    /// Number of payload bytes to read. `None` reads and verifies all of them.
    head: Option<usize>,
}

impl LogScan<'_> {
    /// Returns a position at or before the next record, and after the one returned last.
    pub const fn position(&self) -> LogPosition {
        self.next
    }
}

impl LogScan<'_> {
    fn step(&mut self) -> Result<Option<(LogPosition, Record)>, StoreError> {
        while self.next < self.end {
            let (file, len) = match &self.file {
                Some(file) => file,
                None => {
                    let file = self.log.file(self.next.file)?;
                    let len = self.log.content_len(self.next.file, &*file)?;
                    self.file.insert((file, len))
                }
            };
            if u64::from(self.next.offset) < *len {
                let position = self.next;
                match self.log.read_from(&**file, *len, position, self.head) {
                    Ok((record, _)) if record.kind == END => {}
                    Ok((record, next)) => {
                        self.next = next;
                        if record.kind >= INTERNAL_KINDS {
                            continue;
                        }
                        return Ok(Some((position, record)));
                    }
                    Err(error) if error.is_corruption() => {
                        let records = self.log.records(&**file, *len, position.file);
                        if is_damaged_mark(&records, position.offset.into())? {
                            self.next.offset += MARK_BYTES;
                            continue;
                        }
                        if !self.log.is_last_of_file(position)? {
                            return Err(error);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            self.next = LogPosition {
                file: self.next.file + 1,
                offset: HEADER_BYTES,
            };
            self.file = None;
        }
        Ok(None)
    }
}

impl Iterator for LogScan<'_> {
    type Item = Result<(LogPosition, Record), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step()
            .inspect_err(|_| self.next = self.end)
            .transpose()
    }
}

//! Reading records, one by one or in order.

use super::{
    format::{END, OWN_BYTES, OWN_KINDS, base_of, corrupt, header_of, is_mark, missing, name_of},
    log::BlockLog,
};
use crate::{
    LogPosition, StoreError,
    log_position::HEADER_BYTES,
    record::{Found, RecordFile},
};
use cambium_disk::DiskFile;
use std::sync::{Arc, atomic::Ordering};

/// A record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is, to the caller.
    pub kind: u8,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl BlockLog {
    /// Reads the record at `position`, synced or not. [`StoreError::NotKept`] if it has left the log.
    pub fn read(&self, position: LogPosition) -> Result<Record, StoreError> {
        let record = self.read_whole(position);
        let record = self.unless_not_kept(position.file, record)?;
        match record.kind {
            OWN_KINDS.. => Err(corrupt(&*self.disk, position, "there is no record")),
            _ => Ok(record),
        }
    }

    fn read_whole(&self, position: LogPosition) -> Result<Record, StoreError> {
        let file = self.file(position.file)?;
        let len = self.content_len(position.file, &*file)?;
        let (record, _) = self.read_from(&*file, len, position, None)?;
        Ok(record)
    }

    /// Whether a record is at `position`, where there was one: false if it was damaged, and was
    /// taken out by a repair.
    pub fn holds_record(&self, position: LogPosition) -> Result<bool, StoreError> {
        let file = self.file(position.file)?;
        let len = self.content_len(position.file, &*file)?;
        let (record, _) = self.read_from(&*file, len, position, Some(0))?;
        Ok(record.kind < OWN_KINDS)
    }

    /// The records from `from` to the present end, in order.
    pub fn scan(&self, from: LogPosition) -> LogScan<'_> {
        LogScan {
            log: self,
            next: from,
            end: self.end(),
            file: None,
            head: None,
        }
    }

    /// As [`BlockLog::scan`], with no more than the first `head` bytes of each payload. Only these
    /// are read, and whether they are what was written is for the caller to find out.
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

    /// Whether the file after it tells that the last record of a file is at `position`: its end,
    /// which says no more, may be damaged.
    fn is_last_of_file(&self, position: LogPosition) -> Result<bool, StoreError> {
        if position.file >= self.end().file {
            return Ok(false);
        }
        let mut header = [0; HEADER_BYTES as usize];
        self.file(position.file + 1)?.read_at(&mut header, 0)?;
        let end = position.offset + OWN_BYTES;
        Ok(header == header_of(position.file + 1, end, self.options.salt))
    }

    /// Where the records of a file end, at the most.
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
        let file = self.unless_not_kept(number, file)?;
        self.keep_open(number, &file);
        Ok(file)
    }

    /// The error of a file that is not kept.
    fn check_kept(&self, number: u32) -> Result<(), StoreError> {
        if number < self.first.load(Ordering::Acquire) {
            let file = self.disk.display_path(&name_of(number));
            return Err(StoreError::NotKept { file });
        }
        Ok(())
    }

    /// What was read while the file left is not damaged.
    fn unless_not_kept<T>(
        &self,
        number: u32,
        read: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if read.as_ref().is_err_and(StoreError::is_corruption) {
            self.check_kept(number)?;
        }
        read
    }
}

/// Iterator over records. After an error it ends.
#[derive(Debug)]
pub struct LogScan<'a> {
    log: &'a BlockLog,
    next: LogPosition,
    end: LogPosition,
    /// The file that `next` is in, and where its records end.
    file: Option<(Arc<dyn DiskFile>, u64)>,
    /// How much of each payload is wanted, if not all.
    head: Option<usize>,
}

impl LogScan<'_> {
    /// Where the next record is, or what comes before it.
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
                        if record.kind >= OWN_KINDS {
                            continue;
                        }
                        return Ok(Some((position, record)));
                    }
                    Err(error) if error.is_corruption() => {
                        let records = self.log.records(&**file, *len, position.file);
                        if is_mark(&records, position.offset.into())? {
                            self.next.offset += OWN_BYTES;
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

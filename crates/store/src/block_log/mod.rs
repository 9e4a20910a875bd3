//! The block log: what makes a commit durable.
//!
//! One record for each step, appended to the newest of a row of files. A commit is an append and
//! a sync; everything else in the directory can lag behind, because it can be made again from
//! here. A file is whole and durable before anything is appended to the next one, so only the
//! newest can end in anything but whole records.
//!
//! ```text
//!   00000001.log  [header][block][mark][block][block][mark][end]
//!   00000002.log  [header][block][mark][block][mark]000000000000000
//!                                              ^ written when the sync before it had returned
//! ```
//!
//! Records of the log's own stand between those of its user. A *mark* follows each sync and tells
//! that all before it is durable: it is not synced itself, but reaches the disk with the next
//! record, or when the system writes it; so that even damage to the newest record is told from a
//! record that was never acknowledged. An *end* is the last record of each file but the newest,
//! and is written when the next file has a durable header: if that file is missing, blocks were
//! lost. A *gap* stands where a repair has taken out what was damaged.
//!
//! The newest file is longer than its content, and filled with zeros: a sync then has to write no
//! new length, and to wait for no journal. A log's first file grows in steps; once it is 16 MiB
//! long whoever has time makes the next file ready as a whole ([`BlockLog::prepare_next`]). What
//! that is worth is in `docs/DISK.md`.

mod ahead;
mod beginning;
mod recovery;
mod repair;

pub use beginning::RemovedLogFile;
pub use repair::{LogDamage, LogDamageKind};

use crate::{
    StoreError,
    poison::Poison,
    record::{FRAME_BYTES, Found, PAYLOAD_BYTES_MAX, RecordFile, put_record, record_bytes},
    sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, RwLock},
};
use cambium_disk::{BLOCK_BYTES, Disk, DiskError, DiskFile};
use recovery::Unsettled;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const DIR: &str = "log";

// Log file. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiLog"
// 8       4     format: 2
// 12      4     number of the file, from 1
// 16      8     length of the file before: where its last record ends, which is one of kind END
// 24      8     xxh3-64, seeded with the salt, of 0 .. 24
// 32            records (see record.rs), whose positions are those of `LogPosition::to_u64`
// then          zeros, in the newest file; a file of nothing but zeros is one that was made ready
const MAGIC: &[u8; 8] = b"CambiLog";
const FORMAT: u32 = 2;
const HEADER_BYTES: u32 = 32;

/// Kinds of records from here on are the log's own.
const OWN_KINDS: u8 = 0xf0;
/// All before it is durable.
const MARK: u8 = 0xf0;
/// The file ends here, and the next one has a durable header.
const END: u8 = 0xf1;
/// Something was here that could not be read.
const GAP: u8 = 0xf2;
/// Bytes of a mark, and of an end.
const OWN_BYTES: u32 = FRAME_BYTES as u32;

/// Older files kept open for reading.
const OPEN_FILES_MAX: usize = 64;

/// Zeros are written in pieces of this size.
const ZEROS_BYTES: u64 = 1 << 20;

/// The place of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPosition {
    /// Number of the file, from 1.
    pub file: u32,
    /// Offset of the record in it.
    pub offset: u32,
}

impl LogPosition {
    /// Where the first record of a log is.
    pub const START: Self = Self {
        file: 1,
        offset: HEADER_BYTES,
    };

    /// As one number, in the same order. Never 0.
    pub const fn to_u64(self) -> u64 {
        (self.file as u64) << 32 | self.offset as u64
    }

    /// The reverse of [`LogPosition::to_u64`].
    pub const fn from_u64(word: u64) -> Self {
        Self {
            file: (word >> 32) as u32,
            offset: word as u32,
        }
    }
}

/// How the log is laid out.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// A new file is begun once one is this long. At most 2 GiB.
    pub file_bytes_max: u32,
    /// A file that was not made ready before is extended with zeros in steps of this, so that most
    /// syncs need not write the file's length too. 0 for no such steps.
    pub extend_bytes: u64,
    /// Mixed into every checksum, so that nobody can smuggle in a false record as a block's
    /// payload: see [`Manifest::salt`](crate::Manifest::salt).
    pub salt: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            file_bytes_max: 64 << 20,
            extend_bytes: 4 << 20,
            salt: 0,
        }
    }
}

/// A record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is, to the caller.
    pub kind: u8,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// An end that was never acknowledged by a sync, dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file, as its owner may look it up.
    pub file: String,
    /// Where the log now ends in it.
    pub offset: u64,
    /// Bytes dropped, the zeros after them not counted.
    pub bytes: u64,
}

/// What opening found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecovery {
    /// Where the next record goes.
    pub end: LogPosition,
    /// What [`BlockLog::settle`] drops, if anything.
    pub torn_tail: Option<TornTail>,
}

/// Bytes of the largest payload that a record can have.
pub const LOG_PAYLOAD_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX;

/// The log: one appends and syncs, any number of threads read.
#[derive(Debug)]
pub struct BlockLog {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    files: RwLock<BTreeMap<u32, Arc<dyn DiskFile>>>,
    writer: Mutex<Writer>,
    /// The next file, if it is ready. Held while a file is given its name, so that no two get the
    /// same. Taken after `writer`, never before it.
    next: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Held by whoever makes the next file ready.
    preparing: Mutex<()>,
    /// Whether it is ready.
    is_ahead: AtomicBool,
    /// Whether the newest file was made ready before it was begun.
    is_whole: AtomicBool,
    /// Held during a sync, which appends need not wait for.
    syncing: Mutex<()>,
    end: AtomicU64,
    written: AtomicU64,
    /// The oldest file that is kept.
    first: AtomicU32,
    /// Files before this one have been removed.
    removed_to: AtomicU32,
    poison: Poison,
    /// What opening found and left to be done.
    unsettled: Mutex<Option<Unsettled>>,
}

/// The newest file.
#[derive(Debug, Default)]
struct Writer {
    /// None until the log is settled.
    file: Option<Arc<dyn DiskFile>>,
    end: LogPosition,
    /// Length of the file: all from `end` on is zeros.
    file_bytes: u64,
    durable_to: LogPosition,
    /// Whether there are records that are not durable: a mark need not be.
    has_unsynced: bool,
    buffer: Vec<u8>,
}

impl BlockLog {
    /// Opens the log and finds its end from the record boundary `from` on: the position kept in a
    /// checkpoint, or [`LogPosition::START`], with which a log is begun if there is none. Nothing
    /// is changed: a torn end is reported, and dropped by [`BlockLog::settle`].
    ///
    /// # Errors
    ///
    /// [`StoreError::CorruptLog`] for damage to what had been acknowledged.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        from: LogPosition,
    ) -> Result<(Self, LogRecovery), StoreError> {
        assert!(
            options.file_bytes_max <= 1 << 31,
            "log files of {}",
            options.file_bytes_max
        );
        let unsettled = recovery::find_end(&*disk, options.salt, from)?;
        let (end, torn_tail) = match &unsettled.end {
            Some(found) => (found.end, found.torn_tail(&*disk)),
            None => (LogPosition::START, None),
        };
        let writer = Writer {
            end,
            durable_to: end,
            ..Writer::default()
        };
        let log = Self {
            disk,
            options,
            files: RwLock::default(),
            writer: Mutex::new(writer),
            next: Mutex::new(None),
            preparing: Mutex::new(()),
            is_ahead: AtomicBool::new(false),
            is_whole: AtomicBool::new(false),
            syncing: Mutex::new(()),
            end: AtomicU64::new(end.to_u64()),
            written: AtomicU64::new(0),
            first: AtomicU32::new(LogPosition::START.file),
            removed_to: AtomicU32::new(LogPosition::START.file),
            poison: Poison::new("block log"),
            unsettled: Mutex::new(Some(unsettled)),
        };
        Ok((log, LogRecovery { end, torn_tail }))
    }

    /// Finds the end anew, of a log to which another process appends: this one never settles it.
    ///
    /// # Errors
    ///
    /// As [`BlockLog::open`], and what looks like damage may be something that is being written: it is
    /// not there when that is asked for again.
    pub fn refresh(&self) -> Result<LogPosition, StoreError> {
        let mut writer = self.writer.lock();
        let from = writer.end;
        let mut unsettled = self.unsettled.lock();
        if unsettled.is_none() {
            return Ok(from);
        }
        let found = recovery::find_end(&*self.disk, self.options.salt, from)?;
        let end = found.end.as_ref().map_or(from, |found| found.end);
        (writer.end, writer.durable_to) = (end, end);
        *unsettled = Some(found);
        self.end.store(end.to_u64(), Ordering::Release);
        Ok(end)
    }

    /// Makes the log ready to be appended to, once: drops what came after its end, makes durable
    /// what is before it, and begins the first file of a new log.
    pub fn settle(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let Some(unsettled) = self.unsettled.lock().take() else {
            return Ok(());
        };
        self.poison.guard(|| {
            self.disk.create_dir(DIR)?;
            self.disk.sync_dir("")?;
            ahead::remove_unfinished(&*self.disk)?;
            let file = match unsettled.settle(&*self.disk, self.options.salt)? {
                Some(file) => file,
                None => begin_file(&*self.disk, 1, 0, self.options.salt)?,
            };
            self.disk.sync_dir(DIR)?;
            writer.file_bytes = file.len()?;
            let is_whole = writer.file_bytes > self.options.file_bytes_max.into();
            self.is_whole.store(is_whole, Ordering::Release);
            let number = writer.end.file;
            self.files.write().insert(number, Arc::clone(&file));
            writer.file = Some(file);
            Ok(())
        })
    }

    /// Appends a record whose payload is `parts`, one after the other, not empty and at most
    /// [`LOG_PAYLOAD_BYTES_MAX`] in all. Durable after [`BlockLog::sync`].
    ///
    /// # Panics
    ///
    /// If the log is not settled, `kind` is 0xf0 or above, or the payload is empty.
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<LogPosition, StoreError> {
        assert!(kind < OWN_KINDS, "records of kind {kind} are the log's own");
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        assert!(bytes > 0, "only the log's own records are empty");
        if bytes > PAYLOAD_BYTES_MAX {
            let max = PAYLOAD_BYTES_MAX;
            return Err(StoreError::TooLarge {
                what: "log record",
                bytes,
                max,
            });
        }
        let writer = &mut *self.writer.lock();
        self.poison.guard(|| {
            let is_ahead = self.is_ahead.load(Ordering::Acquire);
            let is_whole = self.is_whole.load(Ordering::Acquire);
            if writer.end.offset >= self.options.file_bytes_max || (is_ahead && !is_whole) {
                self.begin_next_file(writer)?;
            }
            writer.has_unsynced = true;
            self.put(writer, kind, parts, bytes)
        })
    }

    /// Writes a record to the newest file.
    fn put(
        &self,
        writer: &mut Writer,
        kind: u8,
        parts: &[&[u8]],
        bytes: u64,
    ) -> Result<LogPosition, StoreError> {
        let position = writer.end;
        let end = u64::from(position.offset) + record_bytes(bytes);
        self.extend(writer, end)?;
        writer.buffer.clear();
        let (at, durable_to) = (position.to_u64(), writer.durable_to.to_u64());
        put_record(
            &mut writer.buffer,
            self.options.salt,
            kind,
            at,
            durable_to,
            parts,
        );
        // Whole blocks need not be read first: there are zeros behind it anyway. What ends in the
        // block that was written last is in the system's memory.
        let block_end = end.next_multiple_of(BLOCK_BYTES as u64);
        let is_new = u64::from(position.offset).next_multiple_of(BLOCK_BYTES as u64) < block_end;
        if is_new && block_end <= writer.file_bytes {
            let len = block_end - u64::from(position.offset);
            writer.buffer.resize(len as usize, 0);
        }
        let file = writer.file.as_ref().expect("the log is settled");
        file.write_at(&writer.buffer, position.offset.into())?;
        self.count_written(writer.buffer.len());
        writer.file_bytes = writer.file_bytes.max(end);
        writer.end.offset = u32::try_from(end).expect("files and records have limits");
        self.end.store(writer.end.to_u64(), Ordering::Release);
        Ok(position)
    }

    /// Makes all records appended so far durable. Returns a position before which all is durable,
    /// which a checkpoint may keep: [`BlockLog::end`] may be behind a mark that is not. After an
    /// error nothing more can be appended, and what was not durable before may be lost.
    pub fn sync(&self) -> Result<LogPosition, StoreError> {
        let _one = self.syncing.lock();
        self.poison.check()?;
        let (file, end) = {
            let writer = self.writer.lock();
            if !writer.has_unsynced {
                return Ok(writer.durable_to);
            }
            (writer.file.clone().expect("the log is settled"), writer.end)
        };
        self.poison.guard(|| Ok(file.sync()?))?;
        let writer = &mut *self.writer.lock();
        // A write that failed meanwhile may have been of a part of what was to be synced.
        self.poison.check()?;
        writer.durable_to = writer.durable_to.max(end);
        if writer.end == end {
            writer.has_unsynced = false;
            // What it tells is true without it: where it can't be written, the next record goes.
            let _ = self.put(writer, MARK, &[], 0);
        }
        Ok(writer.durable_to)
    }

    /// Where the next record goes.
    pub fn end(&self) -> LogPosition {
        LogPosition::from_u64(self.end.load(Ordering::Acquire))
    }

    /// Bytes written since the log was opened: records, headers, and the zeros by which files are
    /// extended.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn count_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

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

    /// Keeps a file open for those who read it next, and no more than some: the oldest goes.
    fn keep_open(&self, number: u32, file: &Arc<dyn DiskFile>) {
        let mut files = self.files.write();
        while files.len() >= OPEN_FILES_MAX {
            files.pop_first();
        }
        files.insert(number, Arc::clone(file));
    }

    fn begin_next_file(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let number = writer.end.file;
        let end = writer.end.offset + OWN_BYTES;
        // Nobody else gives a file a name until the new one has its own.
        let mut next = self.next.lock();
        self.is_ahead.store(false, Ordering::Release);
        self.is_whole.store(next.is_some(), Ordering::Release);
        let file = match next.take() {
            Some(file) => {
                let header = header_of(number + 1, end, self.options.salt);
                file.write_at(&header, 0)?;
                file.sync()?;
                file
            }
            None => begin_file(&*self.disk, number + 1, end, self.options.salt)?,
        };
        self.count_written(HEADER_BYTES as usize);
        self.put(writer, END, &[], 0)?;
        let old = writer.file.as_ref().expect("the log is settled");
        old.sync()?;
        // Whether that is durable or not: the file's last record is the one of its end.
        old.set_len(end.into())?;
        self.keep_open(number + 1, &file);
        writer.file_bytes = file.len()?;
        writer.file = Some(file);
        writer.end = LogPosition {
            file: number + 1,
            offset: HEADER_BYTES,
        };
        writer.durable_to = writer.end;
        self.end.store(writer.end.to_u64(), Ordering::Release);
        Ok(())
    }

    /// Sees to it that the file is longer than `end`, by a step of zeros.
    fn extend(&self, writer: &mut Writer, end: u64) -> Result<(), StoreError> {
        let step = self.options.extend_bytes;
        if step == 0 || end <= writer.file_bytes {
            return Ok(());
        }
        let target = end.next_multiple_of(step);
        let zeros = vec![0; ZEROS_BYTES.min(target - writer.file_bytes) as usize];
        let file = writer.file.clone().expect("the log is settled");
        while writer.file_bytes < target {
            let len = (target - writer.file_bytes).min(zeros.len() as u64);
            match file.write_at(&zeros[..len as usize], writer.file_bytes) {
                Ok(()) => {
                    self.count_written(len as usize);
                    writer.file_bytes += len;
                }
                // The record itself may still fit.
                Err(e) if e.is_full() => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
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

/// Whether what is damaged at `offset` is a mark: nothing else is so short. What it told is told
/// by the record behind it as well.
fn is_mark(records: &RecordFile<'_>, offset: u64) -> Result<bool, DiskError> {
    let behind = offset + u64::from(OWN_BYTES);
    Ok(behind < records.len && matches!(records.record(behind)?, Found::Record(..)))
}

/// Position of a file's first byte.
const fn base_of(file: u32) -> u64 {
    (file as u64) << 32
}

pub(crate) fn name_of(file: u32) -> String {
    format!("{DIR}/{file:08}.log")
}

fn header_of(file: u32, previous_bytes: u32, salt: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&file.to_le_bytes());
    header[16..24].copy_from_slice(&u64::from(previous_bytes).to_le_bytes());
    let check = xxh3_64_with_seed(&header[..24], salt);
    header[24..].copy_from_slice(&check.to_le_bytes());
    header
}

/// Creates a log file, durably: whatever is in it is proof that it had a header.
fn begin_file(
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

fn corrupt(disk: &dyn Disk, position: LogPosition, what: &str) -> StoreError {
    StoreError::CorruptLog {
        file: disk.display_path(&name_of(position.file)),
        offset: position.offset.into(),
        position,
        what: what.to_owned(),
    }
}

/// The error of a file that can't be opened: one that is gone is damage to the log.
fn missing(disk: &dyn Disk, number: u32, error: DiskError) -> StoreError {
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

#[cfg(all(test, feature = "shuttle"))]
mod model;
#[cfg(test)]
mod tests;

//! The writing half of the log: append, sync, and the start of new files.

use super::{
    format::{DIR, END, INTERNAL_KINDS, MARK_BYTES, SYNC_MARK, TEMPORARY, begin_file, header_of},
    recovery::{LogRecovery, PendingRecovery, find_end},
};
use crate::{
    LogPosition, StoreError,
    files::remove_if_exists,
    log_position::HEADER_BYTES,
    poison::Poison,
    record::{PAYLOAD_BYTES_MAX, put_record, record_bytes},
    sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, RwLock},
};
use cambium_disk::{BLOCK_BYTES, Disk, DiskFile};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

/// Number of older files that are kept open for reading.
pub(super) const OPEN_FILES_MAX: usize = 64;

/// Size of one write of zeros when a file is extended, in bytes.
const ZEROS_BYTES: u64 = 1 << 20;

/// Layout of the log's files.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Length in bytes at which a file is complete and the next one begins. At most 2 GiB.
    pub file_bytes_max: u32,
    /// Step in bytes by which a file is extended with zeros, if it was not preallocated as a whole.
    /// Most syncs then leave the file's length as it is. 0 turns extension off.
    pub extend_bytes: u64,
    /// Seed of all checksums, so that an attacker can't hide a forged record in a block's payload:
    /// see [`Manifest::salt`](crate::Manifest::salt).
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

/// Largest payload of a record in bytes.
pub const LOG_PAYLOAD_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX;

/// The write-ahead log of blocks. One thread at a time appends and syncs, any number of threads
/// read.
#[derive(Debug)]
pub struct BlockLog {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: LogOptions,
    pub(super) files: RwLock<BTreeMap<u32, Arc<dyn DiskFile>>>,
    pub(super) writer: Mutex<Writer>,
    /// The next file, if it is prepared. The lock is held while a new file gets its name, so that
    /// two threads never choose the same. Lock order: after `writer`.
    pub(super) next: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Held while the next file is prepared.
    pub(super) preparing: Mutex<()>,
    /// Whether the next file is prepared.
    pub(super) is_next_ready: AtomicBool,
    /// Whether the newest file was preallocated as a whole.
    pub(super) is_preallocated: AtomicBool,
    /// Whether the disk was too full for the next file, since the newest one was begun.
    pub(super) was_full: AtomicBool,
    /// Held during a sync. Appends don't take it.
    pub(super) syncing: Mutex<()>,
    pub(super) end: AtomicU64,
    pub(super) written: AtomicU64,
    /// Number of the oldest file that is kept.
    pub(super) first: AtomicU32,
    /// Files with smaller numbers have been removed.
    pub(super) removed_to: AtomicU32,
    pub(super) poison: Poison,
    /// The gap that was met last: its file, and from where to where.
    pub(super) gap: Mutex<Option<(u32, Range<u64>)>>,
    /// Outcome of recovery that [`BlockLog::settle`] applies. `None` afterwards.
    pub(super) pending: Mutex<Option<PendingRecovery>>,
}

/// State of the newest file.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// `None` until the log is settled.
    pub(super) file: Option<Arc<dyn DiskFile>>,
    pub(super) end: LogPosition,
    /// Length of the file. It holds zeros from `end` on.
    pub(super) file_bytes: u64,
    pub(super) durable_to: LogPosition,
    /// Whether records other than sync marks are not durable yet.
    pub(super) has_unsynced: bool,
    pub(super) buffer: Vec<u8>,
}

impl BlockLog {
    /// Opens the log, and finds its end by reading records from the record boundary `from` on.
    /// `from` is the position stored in a checkpoint, or [`LogPosition::START`], with which a
    /// missing log is created by [`BlockLog::settle`]. Opening changes no file: a torn end is
    /// reported here and dropped by [`BlockLog::settle`].
    ///
    /// # Errors
    ///
    /// [`StoreError::CorruptLog`] if acknowledged records are damaged, and [`StoreError::Disk`] if
    /// a file can't be read.
    ///
    /// # Panics
    ///
    /// If [`LogOptions::file_bytes_max`] exceeds 2 GiB.
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
        let pending = find_end(&*disk, options.salt, from)?;
        let (end, torn_tail) = match &pending.end {
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
            is_next_ready: AtomicBool::new(false),
            is_preallocated: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
            syncing: Mutex::new(()),
            end: AtomicU64::new(end.to_u64()),
            written: AtomicU64::new(0),
            first: AtomicU32::new(LogPosition::START.file),
            removed_to: AtomicU32::new(LogPosition::START.file),
            poison: Poison::new("block log"),
            gap: Mutex::new(None),
            pending: Mutex::new(Some(pending)),
        };
        Ok((log, LogRecovery { end, torn_tail }))
    }

    /// Finds the end of the log again, for a process that only reads a log to which another process
    /// appends. Returns the end.
    ///
    /// # Errors
    ///
    /// As [`BlockLog::open`]. [`StoreError::CorruptLog`] may be caused by a record that is being
    /// written. In that case a second call succeeds.
    pub fn refresh(&self) -> Result<LogPosition, StoreError> {
        let mut writer = self.writer.lock();
        let from = writer.end;
        let mut pending = self.pending.lock();
        if pending.is_none() {
            return Ok(from);
        }
        // A reader looks often, and behind the end are megabytes of zeros.
        let known = pending.as_ref().and_then(|known| known.end.as_ref());
        if let Some(known) = known
            && known.is_unchanged()?
        {
            return Ok(from);
        }
        let found = find_end(&*self.disk, self.options.salt, from)?;
        let end = found.end.as_ref().map_or(from, |found| found.end);
        (writer.end, writer.durable_to) = (end, end);
        *pending = Some(found);
        self.end.store(end.to_u64(), Ordering::Release);
        Ok(end)
    }

    /// Applies the outcome of recovery: drops the torn end, makes durable what precedes it, and
    /// creates the first file of a new log. The log can be appended to afterwards. Further calls do
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be written or synced. The log is poisoned then.
    pub fn settle(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let Some(pending) = self.pending.lock().take() else {
            return Ok(());
        };
        self.poison.guard(|| {
            self.disk.create_dir(DIR)?;
            self.disk.sync_dir("")?;
            remove_if_exists(&*self.disk, TEMPORARY)?;
            let file = match pending.settle(&*self.disk, self.options.salt)? {
                Some(file) => file,
                None => begin_file(&*self.disk, 1, 0, self.options.salt)?,
            };
            self.disk.sync_dir(DIR)?;
            writer.file_bytes = file.len()?;
            let is_preallocated = writer.file_bytes > self.options.file_bytes_max.into();
            self.is_preallocated
                .store(is_preallocated, Ordering::Release);
            let number = writer.end.file;
            self.files.write().insert(number, Arc::clone(&file));
            writer.file = Some(file);
            Ok(())
        })
    }

    /// Appends a record with the concatenation of `parts` as its payload, and returns its position.
    /// The record is durable after the next [`BlockLog::sync`].
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] if the payload exceeds [`LOG_PAYLOAD_BYTES_MAX`],
    /// [`StoreError::Disk`] if the write fails, which poisons the log, and [`StoreError::Poisoned`]
    /// after that.
    ///
    /// # Panics
    ///
    /// If the log is not settled, `kind` is 0xf0 or above, or the payload is empty.
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<LogPosition, StoreError> {
        assert!(
            kind < INTERNAL_KINDS,
            "record kind {kind} is reserved for the log"
        );
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        assert!(bytes > 0, "a record has a payload");
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
            if writer.end.offset >= self.options.file_bytes_max || self.continues_in_next() {
                self.begin_next_file(writer)?;
            }
            writer.has_unsynced = true;
            self.put(writer, kind, parts, bytes)
        })
    }

    /// Writes a record at the end of the newest file.
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
        // Writing whole blocks saves reading them first, since only zeros follow anyway. If the
        // record ends in the block that was written last, that block is in the page cache.
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
        writer.end.offset =
            u32::try_from(end).expect("the lengths of files and records are limited");
        self.end.store(writer.end.to_u64(), Ordering::Release);
        Ok(position)
    }

    /// Makes all records appended so far durable. Returns a position up to which everything is
    /// durable, for use in a checkpoint. [`BlockLog::end`] may be after a sync mark that is not
    /// durable.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the sync fails, which poisons the log and may lose all unsynced
    /// records, and [`StoreError::Poisoned`] after that.
    ///
    /// # Panics
    ///
    /// If records were appended to a log that is not settled.
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
        // A write that failed during the sync may have been one of the writes to sync.
        self.poison.check()?;
        writer.durable_to = writer.durable_to.max(end);
        if writer.end == end {
            writer.has_unsynced = false;
            // The mark is optional. If it can't be written, the next record takes its place.
            let _ = self.put(writer, SYNC_MARK, &[], 0);
        }
        Ok(writer.durable_to)
    }

    /// Returns the position of the next record.
    pub fn end(&self) -> LogPosition {
        LogPosition::from_u64(self.end.load(Ordering::Acquire))
    }

    /// Returns the bytes written since the log was opened: records, headers, and zeros.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(super) fn count_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Keeps a file open for later reads. Closes the oldest files beyond [`OPEN_FILES_MAX`].
    pub(super) fn keep_open(&self, number: u32, file: &Arc<dyn DiskFile>) {
        let mut files = self.files.write();
        while files.len() >= OPEN_FILES_MAX {
            files.pop_first();
        }
        files.insert(number, Arc::clone(file));
    }

    /// Returns whether the next file is to be used at once, because it is prepared and the newest one was not.
    pub(super) fn continues_in_next(&self) -> bool {
        self.is_next_ready.load(Ordering::Acquire) && !self.is_preallocated.load(Ordering::Acquire)
    }

    pub(super) fn begin_next_file(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let number = writer.end.file;
        let end = writer.end.offset + MARK_BYTES;
        // No other thread names a file until the new one has its name.
        let mut next = self.next.lock();
        self.is_next_ready.store(false, Ordering::Release);
        self.was_full.store(false, Ordering::Release);
        self.is_preallocated
            .store(next.is_some(), Ordering::Release);
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
        // This need not be durable: the end record marks the end of the file's records.
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

    /// Extends the newest file with zeros beyond `end`, by a multiple of the configured step.
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

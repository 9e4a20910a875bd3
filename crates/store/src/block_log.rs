//! The block log: what makes a commit durable.

use crate::StoreError;
use cambium_disk::Disk;
use std::sync::Arc;

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
        offset: 32,
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
    /// A new file is begun once one is this long.
    pub file_bytes_max: u64,
    /// The active file is extended with zeros in steps of this, so that most syncs need not write
    /// the file's length too. 0 for no such steps.
    pub extend_bytes: u64,
    /// Mixed into every checksum, so that nobody can smuggle in a false record as a block's
    /// payload: see [`Manifest::salt`](crate::Manifest::salt).
    pub salt: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            file_bytes_max: 256 << 20,
            extend_bytes: 4 << 20,
            salt: 0,
        }
    }
}

/// A record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the order of all records, from 0.
    pub sequence: u64,
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
    /// Where the log now ends.
    pub offset: u64,
    /// Bytes dropped, the zeros after them not counted.
    pub bytes: u64,
}

/// What opening found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecovery {
    /// Where the next record goes.
    pub end: LogPosition,
    /// Sequence number of the next record.
    pub next_sequence: u64,
    /// What was dropped, if anything.
    pub torn_tail: Option<TornTail>,
}

/// The log: one appends and syncs, any number of threads read.
#[derive(Debug)]
pub struct BlockLog {
    _disk: Arc<dyn Disk>,
}

impl BlockLog {
    /// Opens the log, or begins it, and finds its end from the record boundary `from` on: the position kept in a
    /// checkpoint, or [`LogPosition::START`]. All before `from` was durable.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        from: LogPosition,
    ) -> Result<(Self, LogRecovery), StoreError> {
        _ = (disk, options, from);
        unimplemented!()
    }

    /// Appends a record whose payload is `parts`, one after the other. Durable after
    /// [`BlockLog::sync`].
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<LogPosition, StoreError> {
        _ = (kind, parts);
        unimplemented!()
    }

    /// Makes all records appended so far durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        unimplemented!()
    }

    /// Where the next record goes.
    pub fn end(&self) -> LogPosition {
        unimplemented!()
    }

    /// Reads the record at `position`, synced or not.
    pub fn read(&self, position: LogPosition) -> Result<Record, StoreError> {
        _ = position;
        unimplemented!()
    }

    /// The records from `from` to the present end, in order.
    pub fn scan(&self, from: LogPosition) -> LogScan<'_> {
        _ = from;
        unimplemented!()
    }

    /// Drops the records from `position` on, of a log that is not open: for a repair after
    /// [`StoreError::CorruptLog`].
    pub fn truncate_from(disk: &dyn Disk, position: LogPosition) -> Result<(), StoreError> {
        _ = (disk, position);
        unimplemented!()
    }
}

/// Iterator over records. After an error it ends.
#[derive(Debug)]
pub struct LogScan<'a> {
    _log: &'a BlockLog,
}

impl Iterator for LogScan<'_> {
    type Item = Result<(LogPosition, Record), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

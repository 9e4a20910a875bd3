//! The end of a preallocated log file, which is written past the page cache, by whole blocks.
//!
//! ```text
//!   |header|pad......|record|record..|..record|pad...|mark|record|pad.......|mark|
//!   ^ block          ^ block                         ^ block                ^ block
//!   | durable first  | a group: written and synced   | the next group
//!                      by one operation
//! ```
//!
//! Records gather in memory until a sync, a reader that wants one of them, or a megabyte of them. A sync pads the
//! group to a whole number of blocks, and writes it by one operation that is durable when it returns. So a commit
//! flushes no other data of the file system, and waits for no journal.
//!
//! **A block with an acknowledged record is never written again**, for a block that is torn by a loss of power
//! may hold anything afterwards. So the group that follows begins at the next block. That block may have a sync mark
//! at its start, which is optional, and is written again with the group. One case is left: after a crash the last block may
//! have records of a group that was never acknowledged, and the first append after the opening pads it.

use super::format::{SYNC_MARK, put_pad};
use crate::record::put_record;
use cambium_disk::{BLOCK_BYTES, DiskError, DiskFile};
use std::{mem, sync::Arc};

/// Bytes of unwritten records from which on their whole blocks are written without waiting for a sync.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// The end of the newest file: records of which none is durable, from the start of a block on.
#[derive(Debug)]
pub(super) struct DirectTail {
    /// The file, with direct access.
    file: Arc<dyn DiskFile>,
    salt: u64,
    /// Position of the file's first byte.
    base: u64,
    /// Offset of `bytes`, at the start of a block.
    start: u64,
    bytes: Vec<u8>,
    /// Whether some of `bytes` are not in the file.
    is_unwritten: bool,
    /// Whether records in the file need a sync of it, because they were written without one.
    needs_sync: bool,
    /// The group that a sync is writing.
    in_flight: Option<Arc<Group>>,
}

/// Records that are written by one sync.
#[derive(Debug)]
pub(super) struct Group {
    file: Arc<dyn DiskFile>,
    start: u64,
    /// Whole blocks.
    bytes: Vec<u8>,
    needs_sync: bool,
}

impl Group {
    /// Makes the group durable, and what was written of it before. Returns the number of bytes written.
    pub(super) fn write_durably(&self) -> Result<usize, DiskError> {
        match (self.bytes.is_empty(), self.needs_sync) {
            (true, _) => self.file.sync()?,
            (false, true) => {
                self.file.write_at(&self.bytes, self.start)?;
                self.file.sync()?;
            }
            (false, false) => self.file.write_durably_at(&self.bytes, self.start)?,
        }
        Ok(self.bytes.len())
    }
}

impl DirectTail {
    /// An empty end at the block boundary `start`. With `needs_sync`, something before it is not durable.
    pub(super) const fn new(
        file: Arc<dyn DiskFile>,
        salt: u64,
        base: u64,
        start: u64,
        needs_sync: bool,
    ) -> Self {
        Self {
            file,
            salt,
            base,
            start,
            bytes: Vec::new(),
            is_unwritten: false,
            needs_sync,
            in_flight: None,
        }
    }

    /// Returns the offset of the next record.
    pub(super) const fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Returns whether the file lacks records.
    pub(super) const fn is_hidden(&self) -> bool {
        self.is_unwritten || self.in_flight.is_some()
    }

    /// Adds a record. Returns the number of bytes written to the file.
    pub(super) fn push(
        &mut self,
        kind: u8,
        durable_to: u64,
        parts: &[&[u8]],
    ) -> Result<usize, DiskError> {
        let position = self.base + self.end();
        put_record(
            &mut self.bytes,
            self.salt,
            kind,
            position,
            durable_to,
            parts,
        );
        self.is_unwritten = true;
        if self.bytes.len() <= GROUP_BYTES_MAX {
            return Ok(0);
        }
        let whole = self.bytes.len() / BLOCK_BYTES * BLOCK_BYTES;
        self.file.write_at(&self.bytes[..whole], self.start)?;
        self.bytes.drain(..whole);
        self.start += whole as u64;
        self.is_unwritten = !self.bytes.is_empty();
        self.needs_sync = true;
        Ok(whole)
    }

    /// Writes what is not in the file, without making it durable, so that it can be read. Returns the number of
    /// bytes written.
    pub(super) fn show(&mut self, durable_to: u64) -> Result<usize, DiskError> {
        let mut written = 0;
        // The sync writes the same bytes to the same place.
        if let Some(group) = &self.in_flight {
            self.file.write_at(&group.bytes, group.start)?;
            written += group.bytes.len();
        }
        if self.is_unwritten {
            // The next record takes the place of the pad.
            let mut blocks = self.bytes.clone();
            put_pad(&mut blocks, self.salt, self.base, self.end(), durable_to);
            self.file.write_at(&blocks, self.start)?;
            written += blocks.len();
            self.is_unwritten = false;
            self.needs_sync = true;
        }
        Ok(written)
    }

    /// Ends the group, whose records are made durable by [`Group::write_durably`]. The next one begins at the next block.
    pub(super) fn seal(&mut self, durable_to: u64) -> Arc<Group> {
        let (start, at) = (self.start, self.end());
        put_pad(&mut self.bytes, self.salt, self.base, at, durable_to);
        let bytes = mem::take(&mut self.bytes);
        self.start += bytes.len() as u64;
        let group = Arc::new(Group {
            file: Arc::clone(&self.file),
            start,
            bytes: if self.is_unwritten { bytes } else { Vec::new() },
            needs_sync: self.needs_sync,
        });
        (self.is_unwritten, self.needs_sync) = (false, false);
        self.in_flight = Some(Arc::clone(&group));
        group
    }

    /// Notes that the group in flight is durable.
    pub(super) fn group_is_durable(&mut self) {
        self.in_flight = None;
    }

    /// Writes a sync mark, if no record was added since the group before. The mark is not synced, and a failure does no
    /// harm: the next group takes its place.
    pub(super) fn mark(&mut self) -> Result<usize, DiskError> {
        let (mut block, at) = (Vec::new(), self.base + self.end());
        put_record(&mut block, self.salt, SYNC_MARK, at, at, &[]);
        let bytes = block.len();
        block.resize(BLOCK_BYTES, 0);
        self.file.write_at(&block, self.start)?;
        // Not before it is written: after an error or a panic the log goes on without the mark.
        block.truncate(bytes);
        self.bytes = block;
        Ok(BLOCK_BYTES)
    }
}

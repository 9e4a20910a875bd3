//! Scan of the file of codes when it is opened.

use super::format::{FILLER, HEADER_BYTES, corrupt};
use crate::{
    StoreError,
    record::{Found, KEY_BYTES, RecordFile, decode_key},
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use std::collections::HashMap;

/// Result of the scan so far.
pub(super) struct Scan<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) offsets: HashMap<B256, u64>,
    /// Position up to which the records found state everything to be durable.
    pub(super) durable_to: u64,
    pub(super) damage: Vec<StoreError>,
}

impl Scan<'_> {
    pub(super) fn add(&mut self, offset: u64, what: &str) {
        self.damage.push(corrupt(self.disk, offset, what));
    }

    /// Reads the keys of all records below `end`, which are expected to be intact. Returns the
    /// offset at which they end.
    pub(super) fn up_to_checkpoint(
        &mut self,
        records: RecordFile<'_>,
        end: u64,
    ) -> Result<u64, StoreError> {
        let mut offset = HEADER_BYTES;
        while offset < end {
            let mut key = [0; KEY_BYTES];
            let frame = records.frame(offset, &mut key)?;
            match frame {
                Some(frame) if frame.kind == FILLER => offset += frame.size(),
                Some(frame) => {
                    match decode_key(records.salt, &key) {
                        Some(hash) => _ = self.offsets.insert(hash, offset),
                        None => self.add(offset, "the hash of a code can't be read"),
                    }
                    offset += frame.size();
                }
                None => {
                    self.add(offset, "there is no intact record");
                    let behind = records.find_record(offset + 8)?;
                    offset = behind.map_or(end, |behind| behind.min(end));
                }
            }
        }
        Ok(offset)
    }

    /// Reads all records from `offset` on, and raises `durable_to` to the positions that they state
    /// to be durable. Returns the end of those that may have been acknowledged.
    pub(super) fn after_checkpoint(
        &mut self,
        records: RecordFile<'_>,
        mut offset: u64,
    ) -> Result<u64, StoreError> {
        while offset < records.len {
            let found = match records.record(offset)? {
                Found::Record(frame, payload) => {
                    self.durable_to = frame.durable_to.max(self.durable_to);
                    offset += frame.size();
                    decode_key(records.salt, &payload).map(|hash| (hash, offset - frame.size()))
                }
                Found::End | Found::Damage(_) => {
                    if records.find_durability_proof(offset, offset)?.is_none() {
                        return Ok(offset);
                    }
                    self.add(offset, "the checksum of a record does not match");
                    let behind = records.find_record(offset + 8)?;
                    offset = behind.unwrap_or(records.len);
                    None
                }
            };
            self.offsets.extend(found);
        }
        Ok(offset)
    }
}

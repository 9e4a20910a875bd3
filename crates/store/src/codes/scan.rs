//! Finding the codes in their file.

use super::format::{FILLER, HEADER_BYTES, KEY_BYTES, corrupt, decode_key};
use crate::{
    StoreError,
    record::{Found, RecordFile},
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use std::collections::HashMap;

/// Finding where codes are.
pub(super) struct Scan<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) offsets: HashMap<B256, u64>,
    /// What the records found tell to be durable.
    pub(super) durable_to: u64,
    pub(super) damage: Vec<StoreError>,
}

impl Scan<'_> {
    pub(super) fn add(&mut self, offset: u64, what: &str) {
        self.damage.push(corrupt(self.disk, offset, what));
    }

    /// Reads the keys of all records below `end`, each of which should be there. Returns where they
    /// end.
    pub(super) fn checkpointed(
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
                    self.add(offset, "there is no whole record");
                    let behind = records.witness(offset + 8, 0)?;
                    offset = behind.map_or(end, |behind| behind.min(end));
                }
            }
        }
        Ok(offset)
    }

    /// Reads all records from `offset` on, and raises `durable_to` to what they tell. Returns where
    /// those end that may have been acknowledged.
    pub(super) fn later(
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
                    if records.witness(offset, offset)?.is_none() {
                        return Ok(offset);
                    }
                    self.add(offset, "the checksum of a record does not match");
                    let behind = records.witness(offset + 8, 0)?;
                    offset = behind.unwrap_or(records.len);
                    None
                }
            };
            self.offsets.extend(found);
        }
        Ok(offset)
    }
}

//! The table of segments that a checkpoint stores.

use super::{
    addr::{OFFSET_END, SEGMENT_MAX},
    segment::{HEADER_BYTES, SegmentStats},
};
use crate::StoreError;
use cambium_disk::BLOCK_BYTES;
use cambium_primitives::{DecodeError, Reader};
use std::collections::HashSet;

// Table of segments. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     sequence number that the next segment gets
// 8       4     number of segments
// 12      28    of each, in the order of their sequence numbers: its number (4), sequence number
//               (8), bytes (8, a multiple of 4096), bytes of live pages (8)
const ROW_BYTES: usize = 28;

/// The segments that a checkpoint refers to.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) next_sequence: u64,
    /// One row per segment, in the order of sequence numbers.
    pub(super) rows: Vec<SegmentStats>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            next_sequence: 1,
            rows: Vec::new(),
        }
    }
}

impl Table {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut table = self.next_sequence.to_le_bytes().to_vec();
        table.extend((self.rows.len() as u32).to_le_bytes());
        for row in &self.rows {
            table.extend(row.segment.to_le_bytes());
            table.extend(row.sequence.to_le_bytes());
            table.extend(row.bytes.to_le_bytes());
            table.extend(row.live_bytes.to_le_bytes());
        }
        table
    }

    /// Decodes the table that a checkpoint stores.
    pub(super) fn read(table: &[u8]) -> Result<Self, StoreError> {
        let of = || "the checkpoint's table of segments".to_owned();
        Self::decode(table).map_err(|error| StoreError::corrupt(of(), 0, error))
    }

    fn decode(table: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(table);
        let next_sequence = reader.u64()?;
        let count = reader.u32()? as usize;
        if count > reader.remaining() / ROW_BYTES {
            return Err(reader.error("count larger than what follows"));
        }
        let mut before = 0;
        let mut numbers = HashSet::with_capacity(count);
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let (segment, sequence) = (reader.u32()?, reader.u64()?);
            let (bytes, live_bytes) = (reader.u64()?, reader.u64()?);
            let sound = (before + 1..next_sequence).contains(&sequence)
                && (1..=SEGMENT_MAX).contains(&segment)
                && numbers.insert(segment)
                && (HEADER_BYTES..=OFFSET_END).contains(&bytes)
                && bytes.is_multiple_of(BLOCK_BYTES as u64);
            if !sound || live_bytes > bytes {
                return Err(reader.error("impossible segment"));
            }
            before = sequence;
            rows.push(SegmentStats {
                segment,
                sequence,
                bytes,
                live_bytes,
            });
        }
        reader.finish()?;
        Ok(Self {
            next_sequence,
            rows,
        })
    }
}

//! The table of value segments that a checkpoint stores.

use crate::StoreError;
use cambium_primitives::{BlockNumber, DecodeError, Reader};

// Table of value segments. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       4     number that the next segment gets
// 4       4     number of the first segment to which blocks after the checkpoint may refer
// 8       4     number of segments
// 12      28    of each, in the order of their numbers: its number (4), durable bytes (8), live
//               bytes (8), the highest block whose reverts refer to it, plus one, or 0 (8)
const ROW_BYTES: usize = 28;

/// One segment of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) number: u32,
    /// Length of the file that is durable. 0 if its name may not be durable either.
    pub(super) bytes: u64,
    pub(super) live_bytes: u64,
    pub(super) needed_until: Option<BlockNumber>,
}

/// The segments at a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Number that the next segment gets. Files with smaller numbers that the table does not list
    /// are those of removed segments.
    pub(super) next_number: u32,
    /// Blocks after the checkpoint may refer to this segment and to later ones.
    pub(super) pinned_from: u32,
    /// One row per segment, in the order of numbers.
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// The table of a database without values.
    pub(super) const EMPTY: Self = Self {
        next_number: 1,
        pinned_from: 1,
        rows: Vec::new(),
    };

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut table = self.next_number.to_le_bytes().to_vec();
        table.extend(self.pinned_from.to_le_bytes());
        table.extend((self.rows.len() as u32).to_le_bytes());
        for row in &self.rows {
            let needed = row.needed_until.map_or(0, |block| block.saturating_add(1));
            table.extend(row.number.to_le_bytes());
            table.extend(row.bytes.to_le_bytes());
            table.extend(row.live_bytes.to_le_bytes());
            table.extend(needed.to_le_bytes());
        }
        table
    }

    /// Decodes the table that a checkpoint stores. An empty one is that of a database without
    /// values.
    pub(super) fn read(table: &[u8]) -> Result<Self, StoreError> {
        if table.is_empty() {
            return Ok(Self::EMPTY);
        }
        let of = || "the checkpoint's table of value segments".to_owned();
        Self::decode(table).map_err(|error| StoreError::corrupt(of(), 0, error))
    }

    fn decode(table: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(table);
        let (next_number, pinned_from) = (reader.u32()?, reader.u32()?);
        let count = reader.u32()? as usize;
        if count > reader.remaining() / ROW_BYTES {
            return Err(reader.error("count larger than what follows"));
        }
        let mut before = 0;
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let (number, bytes) = (reader.u32()?, reader.u64()?);
            let (live_bytes, needed) = (reader.u64()?, reader.u64()?);
            if number <= before || number >= next_number {
                return Err(reader.error("impossible value segment"));
            }
            before = number;
            rows.push(Row {
                number,
                bytes,
                live_bytes,
                needed_until: needed.checked_sub(1),
            });
        }
        reader.finish()?;
        if next_number == 0 {
            return Err(reader.error("value segments count from 1"));
        }
        Ok(Self {
            next_number,
            pinned_from,
            rows,
        })
    }
}

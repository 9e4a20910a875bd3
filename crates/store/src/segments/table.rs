//! The table of segments, as kept in a checkpoint.

use super::{
    SegmentStats,
    addr::{OFFSET_END, SEGMENT_MAX},
    segment::HEADER_BYTES,
};
use cambium_disk::BLOCK_BYTES;
use cambium_primitives::{DecodeError, Reader};

// Table of segments. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       4     number of segments
// 4       20    of each, in order: its number (4), bytes (8, a multiple of 4096), bytes of live
//               pages (8)
const ROW_BYTES: usize = 20;

pub(super) fn encode(rows: &[SegmentStats]) -> Vec<u8> {
    let mut table = (rows.len() as u32).to_le_bytes().to_vec();
    for row in rows {
        table.extend(row.segment.to_le_bytes());
        table.extend(row.bytes.to_le_bytes());
        table.extend(row.live_bytes.to_le_bytes());
    }
    table
}

pub(super) fn decode(table: &[u8]) -> Result<Vec<SegmentStats>, DecodeError> {
    let mut reader = Reader::new(table);
    let count = reader.u32()? as usize;
    if count > reader.remaining() / ROW_BYTES {
        return Err(reader.error("count larger than what follows"));
    }
    let mut before = 0;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let (segment, bytes, live_bytes) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let sound = segment > before
            && segment <= SEGMENT_MAX
            && (HEADER_BYTES..=OFFSET_END).contains(&bytes)
            && bytes.is_multiple_of(BLOCK_BYTES as u64);
        if !sound || live_bytes > bytes {
            return Err(reader.error("impossible segment"));
        }
        before = segment;
        rows.push(SegmentStats {
            segment,
            bytes,
            live_bytes,
        });
    }
    reader.finish()?;
    Ok(rows)
}

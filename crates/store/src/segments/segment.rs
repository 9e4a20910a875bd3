//! One segment: its file, its header, and how full it is.

use super::{DIR, SegmentStats};
use crate::StoreError;
use cambium_disk::{Access, Disk, DiskFile};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

// Segment. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiSeg"
// 8       4     format: 1
// 12      4     number of the segment
// 16            pages, each padded with zeros to a multiple of 16 bytes; zeros from the end of
//               what was made durable at once to the next multiple of 4096
const MAGIC: &[u8; 8] = b"CambiSeg";
const FORMAT: u32 = 1;
pub(super) const HEADER_BYTES: u64 = 16;

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    /// Open as long as the segment exists. A terabyte in segments of 64 MiB is 16,384 files: more
    /// than processes may open unasked, within what they may ask for, and `StdDisk` asks.
    pub(super) file: Arc<dyn DiskFile>,
    /// Where the next page goes.
    pub(super) bytes: AtomicU64,
    pub(super) live_bytes: AtomicU64,
    /// Bytes that are in the file: what follows is in the tail. Whole blocks.
    pub(super) flushed_bytes: AtomicU64,
    /// Bytes that are durable. Whole blocks.
    pub(super) synced_bytes: AtomicU64,
}

impl Segment {
    pub(super) fn create(disk: &dyn Disk, number: u32) -> Result<Self, StoreError> {
        Ok(Self {
            number,
            file: disk.create_with(&name_of(number), Access::Direct)?,
            bytes: HEADER_BYTES.into(),
            live_bytes: 0.into(),
            flushed_bytes: 0.into(),
            synced_bytes: 0.into(),
        })
    }

    pub(super) fn open(disk: &dyn Disk, stats: &SegmentStats) -> Result<Self, StoreError> {
        let name = name_of(stats.segment);
        let corrupt = |what| StoreError::corrupt(disk.display_path(&name), 0, what);
        if !disk.exists(&name)? {
            return Err(corrupt("the file is missing"));
        }
        let file = disk.open_with(&name, Access::Direct)?;
        if file.len()? < stats.bytes {
            return Err(corrupt("the file is shorter than its checkpointed length"));
        }
        let mut header = [0; HEADER_BYTES as usize];
        file.read_at(&mut header, 0)?;
        if header != header_of(stats.segment) {
            return Err(corrupt("bad header"));
        }
        Ok(Self {
            number: stats.segment,
            file,
            bytes: stats.bytes.into(),
            live_bytes: stats.live_bytes.into(),
            flushed_bytes: stats.bytes.into(),
            synced_bytes: stats.bytes.into(),
        })
    }

    pub(super) fn stats(&self) -> SegmentStats {
        SegmentStats {
            segment: self.number,
            bytes: self.bytes.load(Ordering::Acquire),
            live_bytes: self.live_bytes.load(Ordering::Relaxed),
        }
    }

    /// Makes durable what is in the file.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let flushed = self.flushed_bytes.load(Ordering::Acquire);
        self.file.sync()?;
        self.synced_bytes.store(flushed, Ordering::Release);
        Ok(())
    }
}

pub(super) fn name_of(segment: u32) -> String {
    format!("{DIR}/{segment:08}.seg")
}

pub(super) fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".seg")?.parse().ok()?;
    (name_of(number).strip_prefix(DIR)?.strip_prefix('/')? == name).then_some(number)
}

pub(super) fn header_of(segment: u32) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..].copy_from_slice(&segment.to_le_bytes());
    header
}

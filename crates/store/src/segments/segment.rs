//! One segment: its file, header and fill level.

use crate::{StoreError, sync::AtomicU64};
use cambium_disk::{Access, BLOCK_BYTES, Disk, DiskError, DiskFile};
use std::sync::{Arc, atomic::Ordering};

// Segment. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiSeg"
// 8       4     format: 2
// 12      4     zeros
// 16      8     sequence number of the segment
// 24      8     zeros
// 32            pages and parts of an index, each padded with zeros to a multiple of 16 bytes, and its checksum combined
//               with where it is (addr.rs); zeros from the end of what was made durable at once to
//               the next multiple of 4096
const MAGIC: &[u8; 8] = b"CambiSeg";
pub(crate) const FORMAT: u32 = 2;
/// Size of a segment's header in bytes.
pub(super) const HEADER_BYTES: u64 = 32;

/// Directory of the segments.
pub(super) const DIR: &str = "segments";

/// Fill level of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStats {
    /// Number of the segment in addresses.
    pub segment: u32,
    /// Sequence number of the segment, which its file name contains.
    pub sequence: u64,
    /// Number of bytes appended to the segment.
    pub bytes: u64,
    /// Number of bytes in pages that are still in use.
    pub live_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Segment {
    /// Number of the segment in addresses.
    pub(super) number: u32,
    /// Unique sequence number, never reused.
    pub(super) sequence: u64,
    /// The file, open for as long as the segment exists. A terabyte in segments of 64 MiB is 16,384
    /// files, more than the default limit of a process, but below the limit to which `StdDisk`
    /// raises it. `None` if the file was missing when the database was opened.
    pub(super) file: Option<Arc<dyn DiskFile>>,
    /// Offset from which on data is lost, and why, if the file is missing or too short.
    pub(super) lost: Option<(u64, &'static str)>,
    /// Offset of the next page in bytes.
    pub(super) bytes: AtomicU64,
    pub(super) live_bytes: AtomicU64,
    /// Number of bytes in the file, in whole blocks. Later bytes are in the tail.
    pub(super) flushed_bytes: AtomicU64,
    /// Number of durable bytes, in whole blocks.
    pub(super) synced_bytes: AtomicU64,
}

impl Segment {
    pub(super) fn create(disk: &dyn Disk, number: u32, sequence: u64) -> Result<Self, StoreError> {
        Ok(Self {
            number,
            sequence,
            file: Some(disk.create_with(&name_of(sequence), Access::Direct)?),
            lost: None,
            bytes: HEADER_BYTES.into(),
            live_bytes: 0.into(),
            flushed_bytes: 0.into(),
            synced_bytes: 0.into(),
        })
    }

    /// Opens a segment that a checkpoint lists. If its file is missing, too short, or has a damaged
    /// header, the second value describes the damage, and the intact pages can still be read.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be opened or read for another reason.
    pub(super) fn open(
        disk: &dyn Disk,
        stats: &SegmentStats,
    ) -> Result<(Self, Option<StoreError>), StoreError> {
        let name = name_of(stats.sequence);
        let mut segment = Self {
            number: stats.segment,
            sequence: stats.sequence,
            file: None,
            lost: None,
            bytes: stats.bytes.into(),
            live_bytes: stats.live_bytes.into(),
            flushed_bytes: stats.bytes.into(),
            synced_bytes: stats.bytes.into(),
        };
        let mut damage = None;
        let damaged = |at, what: &str| Some(StoreError::damaged_pages(disk, &name, at, what));
        match disk.open_with(&name, Access::Direct) {
            Ok(file) => {
                let len = file.len()?;
                let mut header = [0; HEADER_BYTES as usize];
                let mut what_of_header = "bad header";
                if len >= HEADER_BYTES {
                    match file.read_at(&mut header, 0) {
                        // The header only serves tools that read the file by itself.
                        Err(error) if error.is_unreadable() => {
                            what_of_header = "its header can't be read";
                        }
                        read => read?,
                    }
                }
                if len < stats.bytes {
                    let what = "the file is shorter than its checkpointed length";
                    segment.lost = Some((len, what));
                    damage = damaged(len, what);
                } else if header != header_of(stats.sequence) {
                    // The pages remain usable, because each has its own checksum.
                    damage = damaged(0, what_of_header);
                }
                segment.file = Some(file);
            }
            Err(error) if error.is_not_found() => {
                let what = "the file is missing";
                segment.lost = Some((0, what));
                damage = damaged(0, what);
            }
            Err(error) => return Err(error.into()),
        }
        Ok((segment, damage))
    }

    /// Returns whether the segment has no file.
    pub(super) const fn is_missing(&self) -> bool {
        self.file.is_none()
    }

    /// Writes the header again, and keeps the rest of its block as it is.
    pub(super) fn repair_header(&self) -> Result<(), DiskError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut block = vec![0; BLOCK_BYTES];
        file.read_at(&mut block, 0)?;
        block[..HEADER_BYTES as usize].copy_from_slice(&header_of(self.sequence));
        file.write_at(&block, 0)?;
        file.sync()
    }

    pub(super) fn stats(&self) -> SegmentStats {
        SegmentStats {
            segment: self.number,
            sequence: self.sequence,
            bytes: self.bytes.load(Ordering::Acquire),
            live_bytes: self.live_bytes.load(Ordering::Relaxed),
        }
    }

    /// Returns the file, or the reason why data before the offset `end` is lost.
    pub(super) fn file_up_to(&self, end: u64) -> Result<&Arc<dyn DiskFile>, &'static str> {
        match (&self.file, self.lost) {
            (_, Some((from, why))) if end > from => Err(why),
            (Some(file), _) => Ok(file),
            (None, _) => Err("the file is missing"),
        }
    }

    /// Writes whole blocks to the file.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        let file = self.file.as_ref().expect("the active segment has a file");
        file.write_at(bytes, offset)
    }

    /// Makes everything in the file durable.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let flushed = self.flushed_bytes.load(Ordering::Acquire);
        let file = self.file.as_ref().expect("the active segment has a file");
        file.sync()?;
        self.synced_bytes.store(flushed, Ordering::Release);
        Ok(())
    }
}

/// Returns the path of the segment with this sequence number.
pub(super) fn name_of(sequence: u64) -> String {
    format!("{DIR}/{sequence:08}.seg")
}

/// Parses the sequence number from the name of a segment's file, without its directory.
pub(super) fn sequence_of(name: &str) -> Option<u64> {
    let sequence = name.strip_suffix(".seg")?.parse().ok()?;
    (name_of(sequence).strip_prefix(DIR)?.strip_prefix('/')? == name).then_some(sequence)
}

/// Encodes the header of the segment with this sequence number.
pub(super) fn header_of(sequence: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[16..24].copy_from_slice(&sequence.to_le_bytes());
    header
}

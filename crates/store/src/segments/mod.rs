//! Segments: append-only files of leaf pages.
//!
//! Pages are gathered in a buffer and written in large sequential pieces; a page can be read from
//! the moment it was appended, out of the buffer if need be. Nothing is ever overwritten: an
//! address leads to the same page for as long as its segment exists.
//!
//! ```text
//!            readers                          one appender
//!               |  in the file already?  no        |
//!               v                        \         v
//!  000001.seg  000002.seg [======flushed====|==flushing==|==buffer==]
//!                                           ^ written with no lock held that readers need
//! ```
//!
//! What is durable is decided by the checkpoint, which holds the table of segments and of their
//! lengths as of a sync. Opening drops all that came later: no index leads there.

mod addr;
mod tail;

pub use addr::PageAddr;

use crate::{PAGE_BYTES_MAX, Page, StoreError, poison::Poison};
use addr::{OFFSET_END, SEGMENT_MAX, UNIT_BYTES};
use cambium_disk::{Disk, DiskFile, ReadRequest};
use cambium_primitives::{DecodeError, Reader};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tail::Tail;

const DIR: &str = "segments";

// Segment. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiSeg"
// 8       4     format: 1
// 12      4     number of the segment
// 16            pages, each padded with zeros to a multiple of 16 bytes
const MAGIC: &[u8; 8] = b"CambiSeg";
const FORMAT: u32 = 1;
const HEADER_BYTES: u64 = 16;

// Table of segments, as kept in a checkpoint. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       4     number of segments
// 4       20    of each, in order: its number (4), bytes (8), bytes of live pages (8)
const TABLE_ROW_BYTES: usize = 20;

/// How segments are laid out.
#[derive(Clone, Debug)]
pub struct SegmentOptions {
    /// A new segment is begun when a page would lead beyond this. At most 256 MiB.
    pub segment_bytes_max: u64,
    /// Pages are gathered to writes of this size.
    pub buffer_bytes: usize,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            segment_bytes_max: OFFSET_END,
            buffer_bytes: 4 << 20,
        }
    }
}

/// How full a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStats {
    /// Its number.
    pub segment: u32,
    /// Bytes appended to it.
    pub bytes: u64,
    /// Bytes of pages not yet dead.
    pub live_bytes: u64,
}

/// What opening had to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentsRecovery {
    /// Bytes after the checkpointed end, dropped.
    pub truncated_bytes: u64,
    /// Segments that the checkpoint does not know, removed.
    pub removed_segments: u32,
}

/// All segments: one appends, any number of threads read.
#[derive(Debug)]
pub struct Segments {
    disk: Arc<dyn Disk>,
    options: SegmentOptions,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    tail: Tail,
    /// Held by whoever appends or syncs.
    writer: Mutex<Writer>,
    poison: Poison,
}

#[derive(Debug)]
struct Segment {
    number: u32,
    file: Arc<dyn DiskFile>,
    bytes: AtomicU64,
    live_bytes: AtomicU64,
    /// Bytes that are in the file: what follows is in the tail.
    flushed_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Writer {
    active: Option<Arc<Segment>>,
    unsynced: Vec<Arc<Segment>>,
    names_unsynced: bool,
    last_number: u32,
}

impl Segments {
    /// Opens the segments as the checkpointed `table` (of [`Segments::encode_table`]) knows them,
    /// or an empty set without one. What was appended after the checkpoint is dropped.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: SegmentOptions,
        table: Option<&[u8]>,
    ) -> Result<(Self, SegmentsRecovery), StoreError> {
        disk.create_dir(DIR)?;
        disk.sync_dir("")?;
        let stats = match table {
            Some(table) => decode_table(table).map_err(|e| {
                StoreError::corrupt("the checkpoint's table of segments".into(), 0, e)
            })?,
            None => Vec::new(),
        };
        let mut recovery = SegmentsRecovery::default();
        let mut segments = BTreeMap::new();
        for stats in &stats {
            // Dead when the checkpoint was made, it may have been removed since.
            if stats.live_bytes > 0 || disk.exists(&name_of(stats.segment))? {
                segments.insert(stats.segment, Arc::new(Segment::open(&*disk, stats)?));
            }
        }
        for name in disk.list(DIR)? {
            if number_of(&name).is_none_or(|number| !segments.contains_key(&number)) {
                disk.remove(&format!("{DIR}/{name}"))?;
                recovery.removed_segments += 1;
            }
        }
        let active = segments
            .last_key_value()
            .map(|(_, segment)| Arc::clone(segment));
        let mut tail_at = 0;
        if let Some(active) = &active {
            tail_at = active.bytes.load(Ordering::Relaxed);
            let len = active.file.len()?;
            if len > tail_at {
                active.file.set_len(tail_at)?;
                recovery.truncated_bytes = len - tail_at;
            }
        }
        let last_number = stats.last().map_or(0, |last| last.segment);
        let tail = Tail::new(active.as_ref().map_or(0, |active| active.number), tail_at);
        let unsynced = Vec::from_iter(active.clone());
        let writer = Writer {
            active,
            unsynced,
            names_unsynced: false,
            last_number,
        };
        let segments = Self {
            disk,
            options,
            segments: RwLock::new(segments),
            tail,
            writer: Mutex::new(writer),
            poison: Poison::new("segments"),
        };
        Ok((segments, recovery))
    }

    /// Appends a page, made by [`PageBuilder::finish`](crate::PageBuilder::finish). It can be read
    /// at once, and is durable after [`Segments::sync`] and a checkpoint.
    pub fn append(&self, page: &[u8]) -> Result<PageAddr, StoreError> {
        if page.is_empty() || page.len() > PAGE_BYTES_MAX {
            let (bytes, max) = (page.len() as u64, PAGE_BYTES_MAX as u64);
            return Err(StoreError::TooLarge {
                what: "page",
                bytes,
                max,
            });
        }
        let len = (page.len() as u64).next_multiple_of(UNIT_BYTES);
        let writer = &mut *self.writer.lock();
        self.poison.guard(|| {
            let segment = self.segment_for(writer, len)?;
            let offset = segment.bytes.load(Ordering::Relaxed);
            let buffered = self.tail.append(page, len as usize);
            segment.bytes.store(offset + len, Ordering::Release);
            segment.live_bytes.fetch_add(len, Ordering::Relaxed);
            if buffered >= self.options.buffer_bytes {
                self.flush(&segment)?;
            }
            Ok(PageAddr::new(segment.number, offset, len))
        })
    }

    /// Makes all pages appended so far durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        let writer = &mut *self.writer.lock();
        self.poison.guard(|| {
            if let Some(active) = &writer.active {
                self.flush(active)?;
            }
            for segment in &writer.unsynced {
                segment.file.sync()?;
            }
            if writer.names_unsynced {
                self.disk.sync_dir(DIR)?;
            }
            writer.names_unsynced = false;
            writer.unsynced = Vec::from_iter(writer.active.clone());
            Ok(())
        })
    }

    /// Reads a page: one device read, or none if it is still buffered.
    pub fn read(&self, addr: PageAddr) -> Result<Page, StoreError> {
        let segment = self.segment_of(addr)?;
        let mut bytes = vec![0; addr.len() as usize];
        if !self.read_buffered(&segment, addr, &mut bytes) {
            segment.file.read_at(&mut bytes, addr.offset())?;
        }
        self.parse(addr, bytes)
    }

    /// Reads many pages, all in flight at once if the disk can; results in the order of `addrs`.
    pub fn read_batch(&self, addrs: &[PageAddr]) -> Vec<Result<Page, StoreError>> {
        let found: Vec<_> = addrs.iter().map(|addr| self.segment_of(*addr)).collect();
        let mut bytes: Vec<Vec<u8>> = addrs
            .iter()
            .map(|addr| vec![0; addr.len() as usize])
            .collect();
        let mut outcomes: Vec<Result<(), StoreError>> = Vec::with_capacity(addrs.len());
        let (mut requests, mut requested) = (Vec::new(), Vec::new());
        for (at, (segment, bytes)) in found.iter().zip(&mut bytes).enumerate() {
            if let Ok(segment) = segment
                && !self.read_buffered(segment, addrs[at], bytes)
            {
                requests.push(ReadRequest::new(&*segment.file, addrs[at].offset(), bytes));
                requested.push(at);
            }
            outcomes.push(Ok(()));
        }
        self.disk.read_batch(&mut requests);
        for (request, at) in requests.into_iter().zip(requested) {
            outcomes[at] = request.outcome.map_err(StoreError::from);
        }
        let each = addrs.iter().zip(found).zip(outcomes).zip(bytes);
        each.map(|(((addr, found), outcome), bytes)| {
            found.and(outcome).and_then(|()| self.parse(*addr, bytes))
        })
        .collect()
    }

    /// Notes that nothing current refers to a page any more. It stays readable. No effect if its
    /// segment is gone.
    pub fn mark_dead(&self, addr: PageAddr) {
        if let Some(segment) = self.segments.read().get(&addr.segment()) {
            let less = |live: u64| Some(live.saturating_sub(addr.len()));
            let _ = segment
                .live_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// How full each segment is, in order.
    pub fn live(&self) -> Vec<SegmentStats> {
        let stats = |segment: &Arc<Segment>| SegmentStats {
            segment: segment.number,
            bytes: segment.bytes.load(Ordering::Acquire),
            live_bytes: segment.live_bytes.load(Ordering::Relaxed),
        };
        self.segments.read().values().map(stats).collect()
    }

    /// Removes the segments without a live page, except the one being appended to, for which
    /// `may_remove` agrees: it must not while a view, or one of the two checkpoints kept, can
    /// still lead to it. Returns those removed. A removal need not survive a crash: the next
    /// opening removes whatever its table does not know.
    pub fn remove_dead(
        &self,
        mut may_remove: impl FnMut(u32) -> bool,
    ) -> Result<Vec<u32>, StoreError> {
        let writer = &mut *self.writer.lock();
        let active = writer.active.as_ref().map_or(0, |active| active.number);
        let mut removed = Vec::new();
        for SegmentStats {
            segment,
            live_bytes,
            ..
        } in self.live()
        {
            if live_bytes > 0 || segment == active || !may_remove(segment) {
                continue;
            }
            self.poison
                .guard(|| Ok(self.disk.remove(&name_of(segment))?))?;
            self.segments.write().remove(&segment);
            writer
                .unsynced
                .retain(|unsynced| unsynced.number != segment);
            removed.push(segment);
        }
        Ok(removed)
    }

    /// The table for the checkpoint: to be taken after [`Segments::sync`], with no append between.
    pub fn encode_table(&self) -> Vec<u8> {
        let all = self.live();
        let mut table = (all.len() as u32).to_le_bytes().to_vec();
        for SegmentStats {
            segment,
            bytes,
            live_bytes,
        } in all
        {
            table.extend(segment.to_le_bytes());
            table.extend(bytes.to_le_bytes());
            table.extend(live_bytes.to_le_bytes());
        }
        table
    }

    /// The segment that takes the next `len` bytes: the active one, or a new one.
    fn segment_for(&self, writer: &mut Writer, len: u64) -> Result<Arc<Segment>, StoreError> {
        let limit = self.options.segment_bytes_max.min(OFFSET_END);
        if let Some(active) = &writer.active {
            let bytes = active.bytes.load(Ordering::Relaxed);
            if bytes + len <= limit || (bytes == HEADER_BYTES && bytes + len <= OFFSET_END) {
                return Ok(Arc::clone(active));
            }
            self.flush(active)?;
        }
        let number = writer.last_number + 1;
        if number > SEGMENT_MAX {
            let (bytes, max) = (number.into(), SEGMENT_MAX.into());
            return Err(StoreError::TooLarge {
                what: "number of a segment",
                bytes,
                max,
            });
        }
        let file = self.disk.create(&name_of(number))?;
        writer.names_unsynced = true;
        let segment = Arc::new(Segment {
            number,
            file,
            bytes: AtomicU64::new(HEADER_BYTES),
            live_bytes: AtomicU64::new(0),
            flushed_bytes: AtomicU64::new(0),
        });
        self.tail.begin(number, &header_of(number));
        self.segments.write().insert(number, Arc::clone(&segment));
        writer.last_number = number;
        writer.unsynced.push(Arc::clone(&segment));
        writer.active = Some(Arc::clone(&segment));
        Ok(segment)
    }

    /// Writes the buffer to the active segment's file.
    fn flush(&self, active: &Segment) -> Result<(), StoreError> {
        let (start, bytes) = self.tail.begin_flush();
        if !bytes.is_empty() {
            active.file.write_at(&bytes, start)?;
            // Readers look here first: it must be in the file before it leaves the tail.
            active
                .flushed_bytes
                .store(start + bytes.len() as u64, Ordering::Release);
        }
        self.tail.end_flush();
        Ok(())
    }

    fn segment_of(&self, addr: PageAddr) -> Result<Arc<Segment>, StoreError> {
        let what = match self.segments.read().get(&addr.segment()) {
            None => "a page is said to be there, but the segment does not exist",
            Some(segment) => {
                let bytes = segment.bytes.load(Ordering::Acquire);
                if addr.offset() >= HEADER_BYTES && addr.end() <= bytes {
                    return Ok(Arc::clone(segment));
                }
                "a page is said to be there, beyond the end of the segment"
            }
        };
        Err(self.corrupt(addr, what))
    }

    /// Copies a page out of the tail, if it is not in the file yet.
    fn read_buffered(&self, segment: &Segment, addr: PageAddr, bytes: &mut [u8]) -> bool {
        addr.end() > segment.flushed_bytes.load(Ordering::Acquire)
            && self.tail.read(segment.number, addr.offset(), bytes)
    }

    fn parse(&self, addr: PageAddr, bytes: Vec<u8>) -> Result<Page, StoreError> {
        Page::parse(bytes).map_err(|e| self.corrupt(addr, e))
    }

    fn corrupt(&self, addr: PageAddr, what: impl ToString) -> StoreError {
        let file = self.disk.display_path(&name_of(addr.segment()));
        StoreError::corrupt(file, addr.offset(), what)
    }
}

impl Segment {
    fn open(disk: &dyn Disk, stats: &SegmentStats) -> Result<Self, StoreError> {
        let name = name_of(stats.segment);
        let corrupt = |what| StoreError::corrupt(disk.display_path(&name), 0, what);
        if !disk.exists(&name)? {
            return Err(corrupt("the file is missing"));
        }
        let file = disk.open(&name)?;
        if stats.bytes < HEADER_BYTES || file.len()? < stats.bytes {
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
        })
    }
}

fn name_of(segment: u32) -> String {
    format!("{DIR}/{segment:08}.seg")
}

fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".seg")?.parse().ok()?;
    (name_of(number).strip_prefix(DIR)?.strip_prefix('/')? == name).then_some(number)
}

fn header_of(segment: u32) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..].copy_from_slice(&segment.to_le_bytes());
    header
}

fn decode_table(table: &[u8]) -> Result<Vec<SegmentStats>, DecodeError> {
    let mut reader = Reader::new(table);
    let count = reader.u32()? as usize;
    if count > reader.remaining() / TABLE_ROW_BYTES {
        return Err(reader.error("count larger than what follows"));
    }
    let mut before = 0;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let (segment, bytes, live_bytes) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let sound = segment > before && segment <= SEGMENT_MAX && bytes <= OFFSET_END;
        if !sound || live_bytes > bytes || !bytes.is_multiple_of(UNIT_BYTES) {
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

#[cfg(test)]
mod tests;

//! Segments: append-only files of leaf pages.
//!
//! Pages are gathered in a buffer and written in large sequential pieces, past the system's page
//! cache; a page can be read from the moment it was appended, out of the buffer if need be. Nothing
//! is ever overwritten: an address leads to the same page for as long as its segment exists.
//!
//! ```text
//!            readers                          appenders
//!               |  in the file already?  no        |
//!               v                        \         v
//!  000001.seg  000002.seg [======flushed====|==flushing==|==buffer==]
//!                                           ^            ^ at a block of the device
//!                                           | written with no lock held that others need
//! ```
//!
//! Only whole blocks are written, so a page may have its start in the file and its end in the
//! buffer. A sync fills the last block with zeros: bytes that are durable are never written again.
//!
//! Why past the cache: through it, a merge's writes reach the device in one burst when they are
//! synced, which the block log's sync then waits behind, and they drive out of memory what is worth
//! having there. Why in pieces: a sync of the log waits for what the device was given before it. On
//! the development machine the log's median sync beside such writing took 6.4 ms with pieces of 4
//! MiB, 1.7 ms with 1 MiB and 1.0 ms with 512 KiB, at the same 0.6 to 1 GB/s; see `docs/DISK.md`,
//! and [`WritePace`]. But each piece waits behind the reads that the device was given before it:
//! while there are many, or nobody else to be gentle to, all that was gathered is written at once.
//!
//! What is durable is decided by the checkpoint, which holds the table of segments and of their
//! lengths as of a sync. Opening drops all that came later: no index leads there.

mod addr;
mod segment;
mod table;
mod tail;

pub use addr::PageAddr;

use crate::{PAGE_BYTES_MAX, Page, StoreError, WritePace, pace::PIECE_BYTES, poison::Poison};
use addr::{OFFSET_END, SEGMENT_MAX, UNIT_BYTES};
use cambium_disk::{Disk, ReadRequest};
use parking_lot::{Mutex, RwLock};
use segment::{HEADER_BYTES, Segment, name_of, number_of};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use tail::Tail;

const DIR: &str = "segments";

/// So many reads are many: what a device takes at once, about.
const READS_MANY: usize = 32;

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
            // Small, since dead space is reclaimed by segments.
            segment_bytes_max: 64 << 20,
            // Large, since a merge waits for each write behind all reads under way.
            buffer_bytes: 2 << 20,
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
    /// Replaced when a segment comes or goes, so that a batch of reads looks it up once.
    segments: RwLock<Arc<SegmentMap>>,
    tail: Tail,
    /// Held by whoever appends or syncs.
    writer: Mutex<Writer>,
    /// Held by whoever writes from the tail to the file. Taken after `writer`, if that is held too.
    flusher: Mutex<()>,
    written: AtomicU64,
    reads_buffered: AtomicU64,
    /// Reads of batches that are under way.
    reading: AtomicUsize,
    pace: Arc<WritePace>,
    poison: Poison,
}

type SegmentMap = BTreeMap<u32, Arc<Segment>>;

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
            Some(table) => table::decode(table).map_err(|e| {
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
        if let Some(active) = &active {
            let end = active.bytes.load(Ordering::Relaxed);
            let len = active.file.len()?;
            if len > end {
                active.file.set_len(end)?;
                recovery.truncated_bytes = len - end;
            }
        }
        let last_number = stats.last().map_or(0, |last| last.segment);
        let tail = Tail::new(active.clone());
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
            segments: RwLock::new(Arc::new(segments)),
            tail,
            writer: Mutex::new(writer),
            flusher: Mutex::new(()),
            written: AtomicU64::new(0),
            reads_buffered: AtomicU64::new(0),
            reading: AtomicUsize::new(0),
            pace: Arc::default(),
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
        let (addr, buffered) = {
            let writer = &mut *self.writer.lock();
            self.poison.guard(|| {
                let segment = self.segment_for(writer, len)?;
                let offset = segment.bytes.load(Ordering::Relaxed);
                let buffered = self.tail.append(page, len as usize);
                segment.bytes.store(offset + len, Ordering::Release);
                segment.live_bytes.fetch_add(len, Ordering::Relaxed);
                Ok((PageAddr::new(segment.number, offset, len), buffered))
            })?
        };
        if buffered >= self.options.buffer_bytes {
            // Others go on appending meanwhile, until they have filled a buffer and wait here.
            let flusher = self.flusher.lock();
            if self.tail.buffered() >= self.options.buffer_bytes {
                self.poison.guard(|| self.write_out(false))?;
            }
            drop(flusher);
        }
        Ok(addr)
    }

    /// Makes all pages appended so far durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        let writer = &mut *self.writer.lock();
        self.flush()?;
        self.poison.guard(|| {
            for segment in &writer.unsynced {
                segment.sync()?;
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
        let segments = self.segments();
        let segment = self.segment_of(&segments, addr)?;
        let mut bytes = vec![0; addr.len() as usize];
        let in_file = self.read_buffered(segment, addr, &mut bytes);
        if in_file > 0 {
            segment.file.read_at(&mut bytes[..in_file], addr.offset())?;
        }
        self.parse(addr, bytes)
    }

    /// Reads many pages, all in flight at once if the disk can; results in the order of `addrs`.
    pub fn read_batch(&self, addrs: &[PageAddr]) -> Vec<Result<Page, StoreError>> {
        let segments = self.segments();
        let bytes_for = |addr: &PageAddr| {
            let segment = self.segment_of(&segments, *addr)?;
            Ok((segment, vec![0; addr.len() as usize]))
        };
        let mut found: Vec<Result<_, StoreError>> = addrs.iter().map(bytes_for).collect();
        let mut requests = Vec::with_capacity(addrs.len());
        let mut requested = Vec::with_capacity(addrs.len());
        for (at, (addr, found)) in addrs.iter().zip(&mut found).enumerate() {
            if let Ok((segment, bytes)) = found {
                let in_file = self.read_buffered(segment, *addr, bytes);
                if in_file > 0 {
                    let bytes = &mut bytes[..in_file];
                    requests.push(ReadRequest::new(&*segment.file, addr.offset(), bytes));
                    requested.push(at);
                }
            }
        }
        self.read_requests(&mut requests);
        let failed = |(request, at): (ReadRequest<'_>, _)| Some((at, request.outcome.err()?));
        let failures: Vec<_> = requests
            .into_iter()
            .zip(requested)
            .filter_map(failed)
            .collect();
        for (at, error) in failures {
            found[at] = Err(error.into());
        }
        let each = addrs.iter().zip(found);
        each.map(|(addr, found)| found.and_then(|(_, bytes)| self.parse(*addr, bytes)))
            .collect()
    }

    /// Reads spans: pages that lie one after another in one segment, not far apart, with one
    /// device read for all of a span. All spans are in flight at once if the disk can. Pages in
    /// the order of the spans.
    pub fn read_spans(
        &self,
        spans: &[&[PageAddr]],
    ) -> Result<Vec<Result<Page, StoreError>>, StoreError> {
        let segments = self.segments();
        let mut read = Vec::with_capacity(spans.len());
        for span in spans {
            let (Some(first), Some(last)) = (span.first(), span.last()) else {
                continue;
            };
            let segment = self.segment_of(&segments, *first)?;
            self.segment_of(&segments, *last)?;
            let mut bytes = vec![0; (last.end() - first.offset()) as usize];
            let mut in_file = bytes.len();
            if last.end() > segment.flushed_bytes.load(Ordering::Acquire) {
                in_file = self.tail.read(segment.number, first.offset(), &mut bytes);
            }
            read.push((span, first.offset(), segment, bytes, in_file));
        }
        let requests = read.iter_mut();
        let requests = requests.map(|(_, offset, segment, bytes, in_file)| {
            ReadRequest::new(&*segment.file, *offset, &mut bytes[..*in_file])
        });
        let mut requests: Vec<_> = requests.collect();
        self.read_requests(&mut requests);
        let outcomes: Result<Vec<_>, _> = requests.into_iter().map(|read| read.outcome).collect();
        outcomes?;
        let mut pages = Vec::new();
        for (span, offset, _, bytes, _) in &read {
            for addr in span.iter() {
                let start = (addr.offset() - offset) as usize;
                pages.push(self.parse(*addr, &bytes[start..start + addr.len() as usize]));
            }
        }
        Ok(pages)
    }

    /// Notes that nothing current refers to a page any more. It stays readable. No effect if its
    /// segment is gone.
    pub fn mark_dead(&self, addr: PageAddr) {
        if let Some(segment) = self.segments().get(&addr.segment()) {
            let less = |live: u64| Some(live.saturating_sub(addr.len()));
            let _ = segment
                .live_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// How full each segment is, in order.
    pub fn live(&self) -> Vec<SegmentStats> {
        self.segments()
            .values()
            .map(|segment| segment.stats())
            .collect()
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
            Arc::make_mut(&mut *self.segments.write()).remove(&segment);
            writer
                .unsynced
                .retain(|unsynced| unsynced.number != segment);
            removed.push(segment);
        }
        Ok(removed)
    }

    /// The table for the checkpoint: of what is durable, so to be taken after [`Segments::sync`].
    pub fn encode_table(&self) -> Vec<u8> {
        let durable = |segment: &Arc<Segment>| {
            let bytes = segment.synced_bytes.load(Ordering::Acquire);
            let live_bytes = segment.stats().live_bytes.min(bytes);
            (bytes > 0).then_some(SegmentStats {
                segment: segment.number,
                bytes,
                live_bytes,
            })
        };
        let rows: Vec<_> = self.segments().values().filter_map(durable).collect();
        table::encode(&rows)
    }

    /// The segment that takes the next `len` bytes: the active one, or a new one.
    fn segment_for(&self, writer: &mut Writer, len: u64) -> Result<Arc<Segment>, StoreError> {
        let limit = self.options.segment_bytes_max.min(OFFSET_END);
        if let Some(active) = &writer.active {
            let bytes = active.bytes.load(Ordering::Relaxed);
            if bytes + len <= limit || (bytes == HEADER_BYTES && bytes + len <= OFFSET_END) {
                return Ok(Arc::clone(active));
            }
            self.flush()?;
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
        let segment = Arc::new(Segment::create(&*self.disk, number)?);
        writer.names_unsynced = true;
        self.tail.begin(Arc::clone(&segment));
        Arc::make_mut(&mut *self.segments.write()).insert(number, Arc::clone(&segment));
        writer.last_number = number;
        writer.unsynced.push(Arc::clone(&segment));
        writer.active = Some(Arc::clone(&segment));
        Ok(segment)
    }

    /// Writes all of the tail to the active segment's file. Nobody may append meanwhile.
    fn flush(&self) -> Result<(), StoreError> {
        let _flusher = self.flusher.lock();
        self.poison.guard(|| self.write_out(true))
    }

    fn read_requests(&self, requests: &mut [ReadRequest<'_>]) {
        self.reading.fetch_add(requests.len(), Ordering::Relaxed);
        self.disk.read_batch(requests);
        self.reading.fetch_sub(requests.len(), Ordering::Relaxed);
    }

    /// Writes what [`Tail::begin_flush`] gives. Only for the flusher, and not after a failure.
    fn write_out(&self, pad: bool) -> Result<(), StoreError> {
        let Some(flush) = self.tail.begin_flush(pad) else {
            return Ok(());
        };
        let (mut rest, mut offset) = (&flush.bytes[..], flush.start);
        while !rest.is_empty() {
            let are_many = self.reading.load(Ordering::Relaxed) >= READS_MANY;
            let len = match self.pace.is_gentle() && !are_many {
                true => rest.len().min(PIECE_BYTES),
                false => rest.len(),
            };
            let (piece, later) = rest.split_at(len);
            self.pace
                .write(|| flush.segment.file.write_at(piece, offset))?;
            (rest, offset) = (later, offset + len as u64);
        }
        let bytes = flush.bytes.len() as u64;
        self.written.fetch_add(bytes, Ordering::Relaxed);
        // Readers look here first: it must be in the file before it leaves the tail.
        let end = flush.start + flush.bytes.len() as u64;
        flush.segment.flushed_bytes.store(end, Ordering::Release);
        self.tail.end_flush();
        Ok(())
    }

    /// How what is appended is written.
    pub const fn pace(&self) -> &Arc<WritePace> {
        &self.pace
    }

    /// Bytes written since the segments were opened: pages, and zeros that fill blocks.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Pages read that were still in the buffer: no device read each.
    pub fn reads_buffered(&self) -> u64 {
        self.reads_buffered.load(Ordering::Relaxed)
    }

    /// All segments as of now.
    fn segments(&self) -> Arc<SegmentMap> {
        Arc::clone(&self.segments.read())
    }

    fn segment_of<'a>(
        &self,
        segments: &'a SegmentMap,
        addr: PageAddr,
    ) -> Result<&'a Segment, StoreError> {
        let what = match segments.get(&addr.segment()) {
            None => "a page is said to be there, but the segment does not exist",
            Some(segment) => {
                let bytes = segment.bytes.load(Ordering::Acquire);
                if addr.offset() >= HEADER_BYTES && addr.end() <= bytes {
                    return Ok(segment);
                }
                "a page is said to be there, beyond the end of the segment"
            }
        };
        Err(self.corrupt(addr, what))
    }

    /// Copies out of the tail what is not in the file yet. Returns how much of the page's start is.
    fn read_buffered(&self, segment: &Segment, addr: PageAddr, bytes: &mut [u8]) -> usize {
        if addr.end() <= segment.flushed_bytes.load(Ordering::Acquire) {
            return bytes.len();
        }
        let in_file = self.tail.read(segment.number, addr.offset(), bytes);
        if in_file == 0 {
            self.reads_buffered.fetch_add(1, Ordering::Relaxed);
        }
        in_file
    }

    fn parse(&self, addr: PageAddr, bytes: impl Into<Box<[u8]>>) -> Result<Page, StoreError> {
        Page::parse(bytes).map_err(|e| self.corrupt(addr, e))
    }

    fn corrupt(&self, addr: PageAddr, what: impl ToString) -> StoreError {
        let file = self.disk.display_path(&name_of(addr.segment()));
        StoreError::corrupt(file, addr.offset(), what)
    }
}

#[cfg(test)]
mod tests;

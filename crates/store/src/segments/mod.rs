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
//! lengths as of a sync. All that came later is dropped once the database is open: no index leads
//! there. A segment is never appended to again after that, so that a place is written once: a page
//! tells by its checksum where it belongs, and a write that the disk lost leaves nothing there
//! that could pass for it.
//!
//! A segment goes when nothing can lead to it any more. Its number in addresses is then used
//! again, and the sequence number in its file's name never.

mod addr;
mod beside;
mod scan;
mod segment;
mod table;
mod tail;

pub use addr::PageAddr;
pub use beside::RemovedSegment;
pub(crate) use beside::SegmentFile;
pub use scan::SegmentScan;

use crate::{
    PAGE_BYTES_MAX, Page, StoreError, WritePace,
    pace::PIECE_BYTES,
    poison::Poison,
    sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock},
};
use addr::{OFFSET_END, SEGMENT_MAX, UNIT_BYTES};
use cambium_disk::{Disk, DiskFile, ReadRequest};
use segment::{HEADER_BYTES, Segment, header_of, name_of, sequence_of};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};
use table::Table;
use tail::{Tail, combine};

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
    /// Segments that there can be at a time. At most 2^23 - 1.
    pub segments_max: u32,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            // Small, since dead space is reclaimed by segments.
            segment_bytes_max: 64 << 20,
            // Large, since a merge waits for each write behind all reads under way.
            buffer_bytes: 2 << 20,
            segments_max: SEGMENT_MAX,
        }
    }
}

/// How full a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentStats {
    /// Its number, as addresses have it.
    pub segment: u32,
    /// Its sequence number, as its file's name has it.
    pub sequence: u64,
    /// Bytes appended to it.
    pub bytes: u64,
    /// Bytes of pages not yet dead.
    pub live_bytes: u64,
}

/// What was dropped after opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentsRecovery {
    /// Bytes after checkpointed ends.
    pub truncated_bytes: u64,
    /// Segments that the checkpoint does not know.
    pub removed_segments: u32,
}

/// All segments: one appends, any number of threads read.
#[derive(Debug)]
pub struct Segments {
    disk: Arc<dyn Disk>,
    options: SegmentOptions,
    salt: u64,
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
    /// Whether another process may cut off files that nothing newer needs: so for a reader.
    may_be_cut: AtomicBool,
}

type SegmentMap = BTreeMap<u32, Arc<Segment>>;

/// Pages that are read at once, with what lies between them.
struct Span<'a> {
    segment: &'a Segment,
    file: &'a Arc<dyn DiskFile>,
    offset: u64,
    bytes: Vec<u8>,
    /// So many of the bytes are in the file, and are to be read.
    in_file: usize,
}

#[derive(Debug, Default)]
struct Writer {
    active: Option<Arc<Segment>>,
    unsynced: Vec<Arc<Segment>>,
    names_unsynced: bool,
    /// That was given away last.
    last_number: u32,
    next_sequence: u64,
}

impl Segments {
    /// Opens the segments as the checkpointed `table` (of [`Segments::encode_table`]) knows them,
    /// or an empty set without one, and changes nothing: [`Segments::settle`] drops what was
    /// appended after the checkpoint. `retired` are pages that the table counts as live and that
    /// nothing leads to any more: a segment that has no others may have been removed since. `salt`
    /// as in [`LogOptions::salt`](crate::LogOptions::salt).
    ///
    /// A segment whose file is missing or damaged is no error: its pages can't be read, as far as
    /// they are lost, and the second value has an error for each such file.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: SegmentOptions,
        salt: u64,
        table: Option<&[u8]>,
        retired: &[PageAddr],
    ) -> Result<(Self, Vec<StoreError>), StoreError> {
        assert!(
            (1..=SEGMENT_MAX).contains(&options.segments_max),
            "{} segments",
            options.segments_max
        );
        let table = match table {
            Some(table) => decode(table)?,
            None => Table::default(),
        };
        let mut retired_bytes = HashMap::<u32, u64>::new();
        for addr in retired {
            *retired_bytes.entry(addr.segment()).or_default() += addr.len();
        }
        // Those of an attempt to go on from here have other names than those of the next.
        let mut next_sequence = table.next_sequence;
        if disk.exists(DIR)? {
            let found = disk.list(DIR)?;
            let found = found.iter().filter_map(|name| sequence_of(name));
            next_sequence = found.map(|found| found + 1).fold(next_sequence, u64::max);
        }
        let (mut segments, mut damage) = (BTreeMap::new(), Vec::new());
        for stats in &table.rows {
            let retired = retired_bytes.get(&stats.segment).copied().unwrap_or(0);
            let is_needed = stats.live_bytes > retired;
            let (segment, damaged) = Segment::open(&*disk, stats)?;
            // Without a page that anything leads to, it may have been removed.
            if !is_needed && segment.is_missing() {
                continue;
            }
            segments.insert(stats.segment, Arc::new(segment));
            damage.extend(damaged);
        }
        let writer = Writer {
            last_number: table.rows.last().map_or(0, |last| last.segment),
            next_sequence,
            ..Writer::default()
        };
        let segments = Self {
            disk,
            options,
            salt,
            segments: RwLock::new(Arc::new(segments)),
            tail: Tail::new(),
            writer: Mutex::new(writer),
            flusher: Mutex::new(()),
            written: AtomicU64::new(0),
            reads_buffered: AtomicU64::new(0),
            reading: AtomicUsize::new(0),
            pace: Arc::default(),
            poison: Poison::new("segments"),
            may_be_cut: AtomicBool::new(false),
        };
        Ok((segments, damage))
    }

    /// Drops what the checkpoint does not know: to be called once the database is open, and before
    /// anything is appended.
    pub fn settle(&self) -> Result<SegmentsRecovery, StoreError> {
        let mut recovery = SegmentsRecovery::default();
        self.disk.create_dir(DIR)?;
        self.disk.sync_dir("")?;
        let segments = self.segments();
        let known: HashMap<u64, &Arc<Segment>> = segments
            .values()
            .map(|segment| (segment.sequence, segment))
            .collect();
        for name in self.disk.list(DIR)? {
            // Of other names, files are none of its own.
            let Some(sequence) = sequence_of(&name) else {
                continue;
            };
            match known.get(&sequence) {
                None => {
                    self.disk.remove(&format!("{DIR}/{name}"))?;
                    recovery.removed_segments += 1;
                }
                Some(segment) => {
                    let end = segment.bytes.load(Ordering::Relaxed);
                    // A copy of the database may share the file, and need more of it.
                    if let Some(file) = &segment.file
                        && file.len()? > end
                        && file.names()? == 1
                    {
                        recovery.truncated_bytes += file.len()? - end;
                        file.set_len(end)?;
                    }
                }
            }
        }
        Ok(recovery)
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
                let stamp = PageAddr::stamp(self.salt, segment.sequence, offset);
                let buffered = self.tail.append(page, stamp, len as usize);
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
            let file = self.file_of(segment, addr)?;
            let read = file.read_at(&mut bytes[..in_file], addr.offset());
            read.map_err(|error| self.failed(segment, error))?;
        }
        self.parse(segment, addr, bytes)
    }

    /// Reads many pages, all in flight at once if the disk can; results in the order of `addrs`.
    pub fn read_batch(&self, addrs: &[PageAddr]) -> Vec<Result<Page, StoreError>> {
        let segments = self.segments();
        let bytes_for = |addr: &PageAddr| {
            let segment = self.segment_of(&segments, *addr)?;
            Ok((segment, vec![0; addr.len() as usize]))
        };
        let mut missing = Vec::new();
        let mut found: Vec<Result<_, StoreError>> = addrs.iter().map(bytes_for).collect();
        let mut requests = Vec::with_capacity(addrs.len());
        let mut requested = Vec::with_capacity(addrs.len());
        for (at, (addr, found)) in addrs.iter().zip(&mut found).enumerate() {
            if let Ok((segment, bytes)) = found {
                let in_file = self.read_buffered(segment, *addr, bytes);
                if in_file == 0 {
                    continue;
                }
                match self.file_of(segment, *addr) {
                    Ok(file) => {
                        let bytes = &mut bytes[..in_file];
                        requests.push(ReadRequest::new(&**file, addr.offset(), bytes));
                        requested.push(at);
                    }
                    Err(error) => missing.push((at, error)),
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
            if let Ok((segment, _)) = &found[at] {
                found[at] = Err(self.failed(segment, error));
            }
        }
        for (at, error) in missing {
            found[at] = Err(error);
        }
        let parse = |(addr, found): (&PageAddr, Result<(&Segment, _), _>)| {
            found.and_then(|(segment, bytes)| self.parse(segment, *addr, bytes))
        };
        addrs.iter().zip(found).map(parse).collect()
    }

    /// Reads spans: pages that lie one after another in one segment, not far apart, with one
    /// device read for all of a span. All spans are in flight at once if the disk can. Pages in
    /// the order of the spans. Those of a span that can't be read at once are read one by one.
    pub fn read_spans(&self, spans: &[&[PageAddr]]) -> Vec<Result<Page, StoreError>> {
        let segments = self.segments();
        let mut read: Vec<_> = spans
            .iter()
            .map(|span| self.begin_span(&segments, span))
            .collect();
        let requests = read.iter_mut().flatten();
        let mut requests: Vec<_> = requests
            .map(|span| {
                ReadRequest::new(&**span.file, span.offset, &mut span.bytes[..span.in_file])
            })
            .collect();
        self.read_requests(&mut requests);
        let outcomes: Vec<_> = requests.into_iter().map(|read| read.outcome).collect();
        let mut outcomes = outcomes.into_iter();
        let mut pages = Vec::new();
        for (addrs, span) in spans.iter().zip(&read) {
            match span {
                Some(span) if outcomes.next().is_some_and(|outcome| outcome.is_ok()) => {
                    pages.extend(addrs.iter().map(|addr| {
                        let start = (addr.offset() - span.offset) as usize;
                        let bytes = &span.bytes[start..start + addr.len() as usize];
                        self.parse(span.segment, *addr, bytes.to_vec())
                    }));
                }
                _ => pages.extend(self.read_batch(addrs)),
            }
        }
        pages
    }

    /// A span to be read, with what of it is not in the file yet. `None` if not all of it is there.
    fn begin_span<'a>(&self, segments: &'a SegmentMap, span: &[PageAddr]) -> Option<Span<'a>> {
        let (first, last) = (span.first()?, span.last()?);
        let segment = self.segment_of(segments, *first).ok()?;
        self.segment_of(segments, *last).ok()?;
        let mut bytes = vec![0; last.end().checked_sub(first.offset())? as usize];
        let mut in_file = bytes.len();
        if last.end() > segment.flushed_bytes.load(Ordering::Acquire) {
            in_file = self.tail.read(segment, first.offset(), &mut bytes);
        }
        Some(Span {
            segment,
            file: self.file_of(segment, *last).ok()?,
            offset: first.offset(),
            bytes,
            in_file,
        })
    }

    /// Writes the headers of segments again of which nothing else is known to be damaged: a repair.
    /// Returns what was wrong with them.
    pub fn mend_headers(&self) -> Result<Vec<StoreError>, StoreError> {
        let mut mended = Vec::new();
        for segment in self.segments().values().filter(|one| one.lost.is_none()) {
            let Some(file) = &segment.file else {
                continue;
            };
            let mut header = [0; HEADER_BYTES as usize];
            file.read_at(&mut header, 0)?;
            if header != header_of(segment.sequence) {
                segment.mend_header()?;
                mended.push(self.corrupt_at(segment, 0, "bad header"));
            }
        }
        Ok(mended)
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
    /// still lead to it. Returns those removed, whose numbers are used again. A removal need not
    /// survive a crash: what the table of the next opening does not know is removed then.
    pub fn remove_dead(
        &self,
        mut may_remove: impl FnMut(u32) -> bool,
    ) -> Result<Vec<RemovedSegment>, StoreError> {
        let writer = &mut *self.writer.lock();
        let active = writer.active.as_ref().map_or(0, |active| active.number);
        let mut removed = Vec::new();
        for segment in self.segments().values() {
            let number = segment.number;
            let live_bytes = segment.live_bytes.load(Ordering::Relaxed);
            if live_bytes > 0 || number == active || !may_remove(number) {
                continue;
            }
            if segment.file.is_some() {
                self.poison
                    .guard(|| Ok(self.disk.remove(&name_of(segment.sequence))?))?;
            }
            Arc::make_mut(&mut *self.segments.write()).remove(&number);
            writer.unsynced.retain(|unsynced| unsynced.number != number);
            removed.push(RemovedSegment {
                number,
                bytes: segment.bytes.load(Ordering::Relaxed),
                file: segment.file.clone(),
            });
        }
        Ok(removed)
    }

    /// The table for the checkpoint: of what is durable, so to be taken after [`Segments::sync`].
    /// In it the pages `dying` are dead, which are to be marked so once the checkpoint is durable.
    pub fn encode_table(&self, dying: &[PageAddr]) -> Vec<u8> {
        let mut dying_bytes = HashMap::<u32, u64>::new();
        for addr in dying {
            *dying_bytes.entry(addr.segment()).or_default() += addr.len();
        }
        let durable = |segment: &Arc<Segment>| {
            let bytes = segment.synced_bytes.load(Ordering::Acquire);
            let stats = segment.stats();
            let dying = dying_bytes.get(&stats.segment).copied().unwrap_or(0);
            let live_bytes = stats.live_bytes.saturating_sub(dying).min(bytes);
            (bytes > 0).then_some(SegmentStats {
                bytes,
                live_bytes,
                ..stats
            })
        };
        let next_sequence = self.writer.lock().next_sequence;
        let mut rows: Vec<_> = self.segments().values().filter_map(durable).collect();
        rows.sort_unstable_by_key(|row| row.sequence);
        Table {
            next_sequence,
            rows,
        }
        .encode()
    }

    /// The segments that a table of [`Segments::encode_table`] has, in the order of their sequence
    /// numbers.
    pub fn decode_table(table: &[u8]) -> Result<Vec<SegmentStats>, StoreError> {
        Ok(decode(table)?.rows)
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
        let number = self.free_number(writer.last_number)?;
        let sequence = writer.next_sequence;
        let segment = Arc::new(Segment::create(&*self.disk, number, sequence)?);
        writer.names_unsynced = true;
        self.tail.begin(Arc::clone(&segment));
        Arc::make_mut(&mut *self.segments.write()).insert(number, Arc::clone(&segment));
        (writer.last_number, writer.next_sequence) = (number, sequence + 1);
        writer.unsynced.push(Arc::clone(&segment));
        writer.active = Some(Arc::clone(&segment));
        Ok(segment)
    }

    /// The next number after `last` that no segment has: as late as can be is one used again.
    fn free_number(&self, last: u32) -> Result<u32, StoreError> {
        let (segments, max) = (self.segments(), self.options.segments_max);
        let mut from_last = (last + 1..=max).chain(1..=last.min(max));
        let free = from_last.find(|number| !segments.contains_key(number));
        free.ok_or(StoreError::TooLarge {
            what: "a number of segments",
            bytes: u64::from(max) + 1,
            max: max.into(),
        })
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
            self.pace.write(|| flush.segment.write(piece, offset))?;
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
        let Some(segment) = segments.get(&addr.segment()) else {
            let (number, offset) = (addr.segment(), addr.offset());
            let file = format!("segment {number} of {}", self.disk.display_path(DIR));
            let what = "a page is said to be there, but there is no such segment";
            return Err(StoreError::corrupt(file, offset, what));
        };
        let bytes = segment.bytes.load(Ordering::Acquire);
        if addr.offset() >= HEADER_BYTES && addr.end() <= bytes {
            return Ok(segment);
        }
        let what = "a page is said to be there, beyond the end of the segment";
        Err(self.corrupt(segment.sequence, addr, what))
    }

    /// Copies out of the tail what is not in the file yet. Returns how much of the page's start is.
    fn read_buffered(&self, segment: &Segment, addr: PageAddr, bytes: &mut [u8]) -> usize {
        if addr.end() <= segment.flushed_bytes.load(Ordering::Acquire) {
            return bytes.len();
        }
        let in_file = self.tail.read(segment, addr.offset(), bytes);
        if in_file == 0 {
            self.reads_buffered.fetch_add(1, Ordering::Relaxed);
        }
        in_file
    }

    /// The file of the page at `addr`, unless that is lost.
    fn file_of<'a>(
        &self,
        segment: &'a Segment,
        addr: PageAddr,
    ) -> Result<&'a Arc<dyn DiskFile>, StoreError> {
        let file = segment.file_to(addr.end());
        file.map_err(|what| self.corrupt(segment.sequence, addr, what))
    }

    fn parse(
        &self,
        segment: &Segment,
        addr: PageAddr,
        mut bytes: Vec<u8>,
    ) -> Result<Page, StoreError> {
        let sequence = segment.sequence;
        combine(
            &mut bytes,
            PageAddr::stamp(self.salt, sequence, addr.offset()),
        );
        Page::parse(bytes).map_err(|e| self.corrupt(sequence, addr, &e.to_string()))
    }

    fn corrupt(&self, sequence: u64, addr: PageAddr, what: &str) -> StoreError {
        StoreError::damaged_pages(&*self.disk, &name_of(sequence), addr.offset(), what)
    }

    fn corrupt_at(&self, segment: &Segment, offset: u64, what: &str) -> StoreError {
        StoreError::damaged_pages(&*self.disk, &name_of(segment.sequence), offset, what)
    }
}

fn decode(table: &[u8]) -> Result<Table, StoreError> {
    let of = || "the checkpoint's table of segments".to_owned();
    Table::decode(table).map_err(|error| StoreError::corrupt(of(), 0, error))
}

#[cfg(all(test, feature = "shuttle"))]
mod model;
#[cfg(test)]
mod tests;

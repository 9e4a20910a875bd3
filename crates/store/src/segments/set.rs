//! The set of segments: opening it, appending pages, and making them durable.

use super::{
    addr::{OFFSET_END, PageAddr, SEGMENT_MAX, UNIT_BYTES},
    segment::{DIR, HEADER_BYTES, Segment, header_of, name_of, sequence_of},
    table::Table,
    tail::Tail,
};
use crate::{
    PAGE_BYTES_MAX, StoreError, WritePace,
    pace::PIECE_BYTES,
    poison::Poison,
    sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock},
};
use cambium_disk::Disk;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

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
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: SegmentOptions,
    pub(super) salt: u64,
    /// Replaced when a segment comes or goes, so that a batch of reads looks it up once.
    pub(super) segments: RwLock<Arc<SegmentMap>>,
    pub(super) tail: Tail,
    /// Held by whoever appends or syncs.
    pub(super) writer: Mutex<Writer>,
    /// Held by whoever writes from the tail to the file. Taken after `writer`, if that is held too.
    pub(super) flusher: Mutex<()>,
    pub(super) written: AtomicU64,
    pub(super) reads_buffered: AtomicU64,
    /// Reads of batches that are under way.
    pub(super) reading: AtomicUsize,
    pub(super) pace: Arc<WritePace>,
    pub(super) poison: Poison,
    /// Whether another process may cut off files that nothing newer needs: so for a reader.
    pub(super) may_be_cut: AtomicBool,
}

pub(super) type SegmentMap = BTreeMap<u32, Arc<Segment>>;

#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) active: Option<Arc<Segment>>,
    pub(super) unsynced: Vec<Arc<Segment>>,
    names_unsynced: bool,
    /// That was given away last.
    last_number: u32,
    pub(super) next_sequence: u64,
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
            Some(table) => Table::read(table)?,
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

    /// All segments as of now.
    pub(super) fn segments(&self) -> Arc<SegmentMap> {
        Arc::clone(&self.segments.read())
    }

    pub(super) fn corrupt_at(&self, segment: &Segment, offset: u64, what: &str) -> StoreError {
        StoreError::damaged_pages(&*self.disk, &name_of(segment.sequence), offset, what)
    }
}

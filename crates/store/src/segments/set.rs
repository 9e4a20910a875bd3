//! The set of segments: opening, appending pages, and making them durable.

use super::{
    addr::{OFFSET_END, PageAddr, SEGMENT_MAX, UNIT_BYTES},
    segment::{DIR, HEADER_BYTES, Segment, header_of, name_of, sequence_of},
    table::Table,
    tail::Tail,
};
use crate::{
    PAGE_BYTES_MAX, StoreError,
    poison::Poison,
    sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock},
};
use cambium_disk::{Disk, WritePace};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
};

/// Number of reads in flight from which on writes are not split up: about the queue depth of a
/// device.
const READS_IN_FLIGHT_MANY: usize = 32;

/// Layout of the segments.
#[derive(Clone, Debug)]
pub struct SegmentOptions {
    /// Size limit of a segment in bytes, beyond which a new one begins. At most 256 MiB.
    pub segment_bytes_max: u64,
    /// Number of buffered bytes at which they are written to the file.
    pub buffer_bytes: usize,
    /// Maximum number of segments that exist at a time. At most 2^23 - 1.
    pub segments_max: u32,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self {
            // Small, because dead space is reclaimed by whole segments.
            segment_bytes_max: 64 << 20,
            // Large, because each write of a merge waits for all reads in flight.
            buffer_bytes: 2 << 20,
            segments_max: SEGMENT_MAX,
        }
    }
}

/// Bytes and files dropped by [`Segments::settle`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentsRecovery {
    /// Bytes cut off after the checkpointed ends of segments.
    pub truncated_bytes: u64,
    /// Number of removed files that the checkpoint does not list.
    pub removed_segments: u32,
}

/// All segments of a database. Appends and syncs are serialized; any number of threads read
/// meanwhile.
#[derive(Debug)]
pub struct Segments {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: SegmentOptions,
    pub(super) salt: u64,
    /// Replaced as a whole when a segment is added or removed. A batch of reads uses one version.
    pub(super) segments: RwLock<Arc<SegmentMap>>,
    pub(super) tail: Tail,
    /// Held for appends and syncs.
    pub(super) writer: Mutex<Writer>,
    /// Held while the tail is written to the file. Lock order: after `writer`.
    pub(super) flusher: Mutex<()>,
    pub(super) written: AtomicU64,
    pub(super) reads_buffered: AtomicU64,
    /// Pages that were read by the device read of another page since opening.
    pub(super) read_together: AtomicU64,
    /// Number of reads in flight that belong to batches or queues.
    pub(super) reading: Arc<AtomicUsize>,
    pub(super) pace: Arc<WritePace>,
    pub(super) poison: Poison,
    /// Whether another process may truncate files that are obsolete to it. Set by readers.
    pub(super) may_be_truncated: AtomicBool,
}

pub(super) type SegmentMap = BTreeMap<u32, Arc<Segment>>;

#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) active: Option<Arc<Segment>>,
    pub(super) unsynced: Vec<Arc<Segment>>,
    names_unsynced: bool,
    /// Number of the segment that was created last.
    last_number: u32,
    pub(super) next_sequence: u64,
}

impl Segments {
    /// Opens the segments listed in a checkpoint's `table`, made by [`Segments::encode_table`], or
    /// an empty set without one. Opening changes no file: [`Segments::settle`] drops what was
    /// appended after the checkpoint. `retired` are pages that the table counts as live although
    /// nothing refers to them any more; a segment with no other live pages may be missing. `salt`
    /// is that of [`LogOptions::salt`](crate::LogOptions::salt).
    ///
    /// A segment whose file is missing or damaged does not fail the opening. The second value holds
    /// an error for each such file, and reads of its lost pages fail.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the table is damaged, and [`StoreError::Disk`] if a file can't be
    /// opened.
    ///
    /// # Panics
    ///
    /// If [`SegmentOptions::segments_max`] is out of range.
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
        // Files of an abandoned attempt to continue from this checkpoint keep their names to
        // themselves.
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
            // The segment may have been removed, since nothing refers to its pages.
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
            read_together: AtomicU64::new(0),
            reading: Arc::default(),
            pace: Arc::default(),
            poison: Poison::new("segments"),
            may_be_truncated: AtomicBool::new(false),
        };
        Ok((segments, damage))
    }

    /// Drops everything that the checkpoint does not list. Call it once the database is open, and
    /// before anything is appended.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be removed or truncated.
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
            // Files with other names are not segments.
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
                    // A backup may share the file by a hard link, and need the bytes after its end.
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

    /// Appends a page made by [`PageBuilder::finish`](crate::PageBuilder::finish), or a part of an index made by
    /// [`encode_part`](crate::encode_part), and returns its address. It can be read at once. It is durable after [`Segments::sync`] and the next
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] if the page exceeds [`PAGE_BYTES_MAX`] or all segment numbers are
    /// in use, [`StoreError::Disk`] if a write fails, which poisons the segments, and
    /// [`StoreError::Poisoned`] after that.
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
            // Other threads go on appending until they have filled another buffer.
            let flusher = self.flusher.lock();
            if self.tail.buffered() >= self.options.buffer_bytes {
                self.poison.guard(|| self.write_out(false))?;
            }
            drop(flusher);
        }
        Ok(addr)
    }

    /// Makes all pages appended so far durable.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a write or sync fails, which poisons the segments, and
    /// [`StoreError::Poisoned`] after that.
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

    /// Repairs the damaged headers of segments that have no other known damage. Returns an error
    /// for each header that was damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a header can't be read or written.
    pub fn repair_headers(&self) -> Result<Vec<StoreError>, StoreError> {
        let mut mended = Vec::new();
        for segment in self.segments().values().filter(|one| one.lost.is_none()) {
            let Some(file) = &segment.file else {
                continue;
            };
            let mut header = [0; HEADER_BYTES as usize];
            file.read_at(&mut header, 0)?;
            if header != header_of(segment.sequence) {
                segment.repair_header()?;
                mended.push(self.corrupt_at(segment, 0, "bad header"));
            }
        }
        Ok(mended)
    }

    /// Returns the segment for the next `len` bytes: the active one, or a new one if that is full.
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

    /// Returns the first unused number after `last`, cyclically. So a number is reused as late as
    /// possible.
    fn free_number(&self, last: u32) -> Result<u32, StoreError> {
        let (segments, max) = (self.segments(), self.options.segments_max);
        let mut from_last = (last + 1..=max).chain(1..=last.min(max));
        let free = from_last.find(|number| !segments.contains_key(number));
        free.ok_or(StoreError::TooLarge {
            what: "set of segments",
            bytes: u64::from(max) + 1,
            max: max.into(),
        })
    }

    /// Writes the whole tail to the active segment's file. Nothing may be appended meanwhile.
    fn flush(&self) -> Result<(), StoreError> {
        let _flusher = self.flusher.lock();
        self.poison.guard(|| self.write_out(true))
    }

    /// Writes the blocks of [`Tail::begin_flush`]. The caller holds `flusher`, and nothing has
    /// failed.
    fn write_out(&self, pad: bool) -> Result<(), StoreError> {
        let Some(flush) = self.tail.begin_flush(pad) else {
            return Ok(());
        };
        let (mut rest, mut offset) = (&flush.bytes[..], flush.start);
        while !rest.is_empty() {
            let are_many = self.reading.load(Ordering::Relaxed) >= READS_IN_FLIGHT_MANY;
            let len = match self.pace.is_gentle() && !are_many {
                true => rest.len().min(WritePace::PIECE_BYTES),
                false => rest.len(),
            };
            let (piece, later) = rest.split_at(len);
            self.pace.write(|| flush.segment.write(piece, offset))?;
            (rest, offset) = (later, offset + len as u64);
        }
        let bytes = flush.bytes.len() as u64;
        self.written.fetch_add(bytes, Ordering::Relaxed);
        // Readers check this first, so the bytes must be in the file before they leave the tail.
        let end = flush.start + flush.bytes.len() as u64;
        flush.segment.flushed_bytes.store(end, Ordering::Release);
        self.tail.end_flush();
        Ok(())
    }

    /// The throttle for appended data.
    pub const fn pace(&self) -> &Arc<WritePace> {
        &self.pace
    }

    /// Returns the bytes written since the segments were opened, with padding.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the current set of segments.
    pub(super) fn segments(&self) -> Arc<SegmentMap> {
        Arc::clone(&self.segments.read())
    }

    pub(super) fn corrupt_at(&self, segment: &Segment, offset: u64, what: &str) -> StoreError {
        StoreError::damaged_pages(&*self.disk, &name_of(segment.sequence), offset, what)
    }
}

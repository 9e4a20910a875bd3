//! The set of value segments: opening, appending values, and making them durable.

use super::{
    format::{DIR, HEADER_BYTES, RECORD_ALIGN_BYTES, corrupt, encode_value, numbers, value_bytes},
    place::Place,
    segment::Segment,
    table::{Row, Table},
};
use crate::{StoreError, poison::Poison};
use alloy_primitives::B256;
use cambium_disk::{Access, Disk};
use cambium_primitives::{BlockNumber, VALUE_BYTES_MAX};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Largest limit of a segment's length in bytes: places have 32 bits for offsets.
const SEGMENT_BYTES_MAX: u64 = 1 << 31;

/// Layout of the value segments.
#[derive(Clone, Debug)]
pub struct ValueOptions {
    /// Length in bytes beyond which a new segment begins. A longer value has a segment of its own.
    /// At most 2 GiB.
    pub segment_bytes_max: u64,
}

impl Default for ValueOptions {
    fn default() -> Self {
        Self {
            // Small enough that whole segments die, since dead space is reclaimed by segments, and
            // large enough that a terabyte has few thousand files, which are open all the time.
            segment_bytes_max: 256 << 20,
        }
    }
}

/// Result of opening the value segments.
#[derive(Debug, Default)]
pub struct ValuesRecovery {
    /// Number of segments.
    pub segments: usize,
    /// Bytes that were appended after the checkpoint. They are kept.
    pub later_bytes: u64,
    /// Number of files of removed segments, which [`Values::settle`] removes again.
    pub removed_segments: usize,
    /// The first segment to which blocks after the checkpoint may refer.
    pub pinned_from: u32,
    /// Errors for headers that are damaged. The values are read without them.
    pub damage: Vec<StoreError>,
}

/// The value segments of a database. Any number of threads append, sync and read.
#[derive(Debug)]
pub struct Values {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: ValueOptions,
    pub(super) salt: u64,
    /// By number. Replaced as a whole when a segment is added or removed.
    segments: RwLock<Arc<SegmentMap>>,
    /// Lock order: after `syncing` and `writing`.
    pub(super) writer: Mutex<Writer>,
    /// Held by appends, shared, from taking their place to the end of their write. A sync takes it
    /// for a moment to wait for the writes that it has to make durable.
    writing: RwLock<()>,
    /// Held during a sync. Appends don't take it.
    syncing: Mutex<()>,
    written: AtomicU64,
    pub(super) poison: Poison,
    /// Whether another process may truncate files that are obsolete to it. Set by readers.
    pub(super) may_be_truncated: AtomicBool,
}

/// Segments to sync, each with its end.
type Unsynced = Vec<(Arc<Segment>, u64)>;

pub(super) type SegmentMap = BTreeMap<u32, Arc<Segment>>;

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) is_settled: bool,
    /// The segment to which values are appended. `None` if the next value begins one.
    pub(super) active: Option<Arc<Segment>>,
    /// Number of the next segment.
    pub(super) next_number: u32,
    /// Segments with values that are not durable.
    unsynced: Vec<Arc<Segment>>,
    /// Segments that are full, but may not be durable.
    full: Vec<Arc<Segment>>,
    /// Whether a segment's name is not durable.
    has_new_names: bool,
    /// Files of removed segments, to be removed again.
    pub(super) leftovers: Vec<u32>,
}

impl Values {
    /// Opens the segments listed in a checkpoint's `table`, made by [`Values::encode_table`], and
    /// those that were begun after it. `table` is empty if there is no checkpoint. Opening changes
    /// no file. `salt` is that of [`LogOptions::salt`](crate::LogOptions::salt).
    ///
    /// A file may be missing if only reverts refer to it, because those of old blocks are removed:
    /// see [`Values::check_kept`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the table is damaged, or if a file is missing or too short that
    /// the state at the checkpoint refers to, or later blocks may refer to; and
    /// [`StoreError::Disk`] if a file can't be opened.
    ///
    /// # Panics
    ///
    /// If [`ValueOptions::segment_bytes_max`] exceeds 2 GiB.
    pub fn open(
        disk: Arc<dyn Disk>,
        salt: u64,
        options: ValueOptions,
        table: &[u8],
    ) -> Result<(Self, ValuesRecovery), StoreError> {
        assert!(
            options.segment_bytes_max <= SEGMENT_BYTES_MAX,
            "value segments of {}",
            options.segment_bytes_max
        );
        let table = Table::read(table)?;
        let found = numbers(&*disk)?;
        let last_row = table.rows.last().map_or(0, |row| row.number);
        let newest = found.last().copied().unwrap_or(0).max(last_row);
        let mut segments = SegmentMap::new();
        let mut recovery = ValuesRecovery {
            pinned_from: table.pinned_from,
            ..ValuesRecovery::default()
        };
        for row in &table.rows {
            let is_pinned = row.number >= table.pinned_from;
            let Some(segment) = open_listed(&*disk, salt, row, is_pinned, newest)? else {
                continue;
            };
            // A file without any value that was synced may have a torn header.
            let has_values = row.live_bytes > 0 || row.needed_until.is_some();
            if has_values && !segment.has_header && segment.lost.is_none() {
                let damage = corrupt(&*disk, row.number, 0, "bad header");
                recovery.damage.push(damage);
            }
            let bytes = segment.bytes.load(Ordering::Relaxed);
            let later = bytes.saturating_sub(row.bytes);
            recovery.later_bytes = recovery.later_bytes.saturating_add(later);
            segments.insert(row.number, Arc::new(segment));
        }
        for number in found.range(table.next_number..).copied() {
            let opened = Segment::open(&*disk, number, salt, access_of(number, newest))?;
            if let Some(segment) = opened {
                let later = segment.bytes.load(Ordering::Relaxed);
                recovery.later_bytes = recovery.later_bytes.saturating_add(later);
                segments.insert(number, Arc::new(segment));
            }
        }
        let removed = found.range(..table.next_number).copied();
        let leftovers: Vec<_> = removed.filter(|it| !segments.contains_key(it)).collect();
        recovery.segments = segments.len();
        recovery.removed_segments = leftovers.len();
        let writer = Writer {
            is_settled: false,
            active: None,
            next_number: table.next_number.max(newest.saturating_add(1)),
            unsynced: Vec::new(),
            full: Vec::new(),
            has_new_names: false,
            leftovers,
        };
        let values = Self {
            disk,
            options,
            salt,
            segments: RwLock::new(Arc::new(segments)),
            writer: Mutex::new(writer),
            writing: RwLock::new(()),
            syncing: Mutex::new(()),
            written: AtomicU64::new(0),
            poison: Poison::new("values"),
            may_be_truncated: AtomicBool::new(false),
        };
        Ok((values, recovery))
    }

    /// Checks that no file is missing or too short to which reverts of the blocks from `kept_from`
    /// on refer.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] for the first such file.
    pub fn check_kept(&self, kept_from: BlockNumber) -> Result<(), StoreError> {
        for segment in self.segments().values() {
            let needed_until = segment.needs.lock().needed_until;
            if let (Some((from, why)), Some(until)) = (segment.lost, needed_until)
                && until >= kept_from
            {
                let what = format!("{why}, and reverts up to block {until} refer to it");
                return Err(corrupt(&*self.disk, segment.number, from, &what));
            }
        }
        Ok(())
    }

    /// Forgets the segments whose files are missing or too short. Call it after [`Values::check_kept`], which verifies
    /// that nothing needs them. Otherwise a later checkpoint, whose blocks may refer to an earlier segment than those
    /// of the one before, would count them as needed again.
    pub fn forget_lost(&self) {
        let mut writer = self.writer.lock();
        let segments = self.segments();
        let lost = segments.values().filter(|it| it.lost.is_some());
        let numbers: Vec<_> = lost.map(|segment| segment.number).collect();
        self.change_segments(|segments| segments.retain(|number, _| !numbers.contains(number)));
        // A file that is too short is removed.
        writer.leftovers.extend(numbers);
    }

    /// Appends the value of `key`, and returns its place, to be stored with the value's length. The
    /// value can be read at once. It is durable after [`Values::sync`].
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] if the value exceeds [`VALUE_BYTES_MAX`], [`StoreError::Disk`] if
    /// the write fails, which poisons the values, and [`StoreError::Poisoned`] after that.
    ///
    /// # Panics
    ///
    /// If the values are not settled.
    pub fn append(&self, key: &B256, value: &[u8]) -> Result<NonZeroU64, StoreError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(StoreError::TooLarge {
                what: "value",
                bytes: value.len() as u64,
                max: VALUE_BYTES_MAX as u64,
            });
        }
        let _writing = self.writing.read();
        let (segment, place) = self.take_place(value_bytes(value.len() as u32))?;
        let durable_to = Place {
            segment: place.segment,
            offset: segment.synced_bytes.load(Ordering::Acquire) as u32,
        };
        // Checksums and writes of several threads go on side by side.
        let record = encode_value(self.salt, place, durable_to, key, value);
        let write = || Ok(segment.open_file().write_at(&record, place.offset.into())?);
        self.poison.guard(write)?;
        self.written
            .fetch_add(record.len() as u64, Ordering::Relaxed);
        Ok(place.to_word())
    }

    /// Takes the place of the next record, of `size` bytes.
    fn take_place(&self, size: u64) -> Result<(Arc<Segment>, Place), StoreError> {
        let writer = &mut *self.writer.lock();
        assert!(
            writer.is_settled,
            "values must be settled before any is appended"
        );
        self.poison.guard(|| {
            let segment = self.segment_for(writer, size)?;
            let offset = end_of(&segment);
            segment.bytes.store(offset + size, Ordering::Release);
            let is_last = |last: &Arc<Segment>| last.number == segment.number;
            if !writer.unsynced.last().is_some_and(is_last) {
                writer.unsynced.push(Arc::clone(&segment));
            }
            let place = Place {
                segment: segment.number,
                offset: u32::try_from(offset).expect("the length of a segment is limited"),
            };
            Ok((segment, place))
        })
    }

    /// Returns the segment for the next `size` bytes: the active one, or a new one if that is full.
    fn segment_for(&self, writer: &mut Writer, size: u64) -> Result<Arc<Segment>, StoreError> {
        if let Some(active) = &writer.active {
            let offset = end_of(active);
            if offset + size <= self.options.segment_bytes_max || offset == HEADER_BYTES {
                return Ok(Arc::clone(active));
            }
        }
        let number = writer.next_number;
        let Some(next_number) = number.checked_add(1) else {
            return Err(StoreError::TooLarge {
                what: "number of a value segment",
                bytes: number.into(),
                max: u64::from(u32::MAX) - 1,
            });
        };
        let segment = Arc::new(Segment::create(&*self.disk, number, self.salt)?);
        self.written.fetch_add(HEADER_BYTES, Ordering::Relaxed);
        writer.next_number = next_number;
        writer.has_new_names = true;
        writer.full.extend(writer.active.take());
        writer.active = Some(Arc::clone(&segment));
        self.change_segments(|segments| _ = segments.insert(number, Arc::clone(&segment)));
        Ok(segment)
    }

    /// Makes all values appended so far durable. Waits for the device only if some are not.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the sync fails, which poisons the values and may lose all unsynced
    /// ones, and [`StoreError::Poisoned`] after that.
    pub fn sync(&self) -> Result<(), StoreError> {
        let _one = self.syncing.lock();
        let (unsynced, has_new_names) = self.take_unsynced()?;
        if unsynced.is_empty() {
            return Ok(());
        }
        self.poison.guard(|| {
            for (segment, _) in &unsynced {
                segment.open_file().sync()?;
            }
            if has_new_names {
                self.disk.sync_dir(DIR)?;
            }
            // A checkpoint that lists durable bytes relies on the name as well.
            for (segment, end) in &unsynced {
                segment.synced_bytes.store(*end, Ordering::Release);
            }
            Ok(())
        })?;
        self.seal_full();
        Ok(())
    }

    /// Waits for the writes that have begun. Then takes the segments to sync, and returns whether
    /// there are new names.
    fn take_unsynced(&self) -> Result<(Unsynced, bool), StoreError> {
        let _none_writes = self.writing.write();
        let mut writer = self.writer.lock();
        // A write that failed may be one of the writes to sync.
        self.poison.check()?;
        let unsynced = std::mem::take(&mut writer.unsynced);
        let has_new_names = std::mem::take(&mut writer.has_new_names);
        let with_end = |segment: Arc<Segment>| {
            let end = segment.bytes.load(Ordering::Acquire);
            (segment, end)
        };
        Ok((unsynced.into_iter().map(with_end).collect(), has_new_names))
    }

    /// Seals the full segments that are durable.
    fn seal_full(&self) {
        let mut writer = self.writer.lock();
        writer.full.retain(|segment| {
            let is_durable = segment.synced_bytes.load(Ordering::Acquire)
                == segment.bytes.load(Ordering::Acquire);
            if is_durable {
                segment.seal(&*self.disk);
            }
            !is_durable
        });
    }

    /// Returns the number of the first segment that may get values which are appended from now on.
    /// The values must be settled.
    pub fn newest(&self) -> u32 {
        let writer = self.writer.lock();
        writer
            .active
            .as_ref()
            .map_or(writer.next_number, |it| it.number)
    }

    /// Returns the number of the segment that holds the value at `place`.
    pub const fn segment_of(place: NonZeroU64) -> u32 {
        Place::from_word(place).segment
    }

    /// Returns the size in bytes that a value of `len` bytes takes in its segment.
    pub const fn stored_bytes(len: u32) -> u64 {
        value_bytes(len)
    }

    /// Returns the bytes written since the values were opened.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the current set of segments.
    pub(super) fn segments(&self) -> Arc<SegmentMap> {
        Arc::clone(&self.segments.read())
    }

    /// Changes the set of segments. The caller holds `writer`.
    pub(super) fn change_segments(&self, change: impl FnOnce(&mut SegmentMap)) {
        change(Arc::make_mut(&mut *self.segments.write()));
    }
}

/// Returns the offset of the next record in a segment.
fn end_of(segment: &Segment) -> u64 {
    let bytes = segment.bytes.load(Ordering::Acquire);
    bytes.next_multiple_of(RECORD_ALIGN_BYTES)
}

/// Only the newest segment is appended to.
pub(super) const fn access_of(number: u32, newest: u32) -> Access {
    match number == newest {
        true => Access::Cached,
        false => Access::Direct,
    }
}

/// Opens a segment that the table lists. Returns `None` if its file is missing, and nothing in it
/// was durable.
fn open_listed(
    disk: &dyn Disk,
    salt: u64,
    row: &Row,
    is_pinned: bool,
    newest: u32,
) -> Result<Option<Segment>, StoreError> {
    let number = row.number;
    let mut segment = match Segment::open(disk, number, salt, access_of(number, newest))? {
        Some(segment) => segment,
        None if row.bytes == 0 && row.live_bytes == 0 => return Ok(None),
        None => Segment::missing(number, row.bytes),
    };
    let needs = segment.needs.get_mut();
    (needs.live_bytes, needs.needed_until) = (row.live_bytes, row.needed_until);
    let bytes = segment.bytes.get_mut();
    if *bytes < row.bytes {
        let what = "the file is shorter than its checkpointed length";
        segment.lost = Some((*bytes, what));
        *bytes = row.bytes;
    }
    *segment.synced_bytes.get_mut() = row.bytes;
    let Some((from, why)) = segment.lost else {
        return Ok(Some(segment));
    };
    let who = match (row.live_bytes, is_pinned) {
        (0, false) => return Ok(Some(segment)),
        (0, true) => "blocks after the checkpoint may refer to it".to_owned(),
        (live, _) => format!("the state refers to {live} bytes of it"),
    };
    let what = format!("{why}, and {who}");
    Err(corrupt(disk, number, from, &what))
}

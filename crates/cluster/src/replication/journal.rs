//! A shard's own log of the records that it has applied.
//!
//! The stream is transport, never truth: a shard that restarts replays its own journal over its newest snapshot, and goes on in the
//! stream behind that. A replica with a hole asks for a block by hash, or for a record by position.
//!
//! It is a [`BlockLog`] (`cambium-store`), of segments of bounded size, with two additions: an index by hash and position in
//! memory, and damage that is cut out when the journal is opened. A record is durable once [`Journal::sync`] has returned.
//! What was not is cut off as a torn end. Damage to durable records is told from it, is named with file and
//! offset, and is cut out after its bytes were copied to `damaged-*`: what was there is to be had from a replica, by hash.
//!
//! ```text
//!   journal.id              magic, format, salt of the checksums, checksum
//!   log/00000001.log ...    segments; whole ones are removed once a snapshot holds their blocks
//!   damaged-00000001        bytes that were cut out
//! ```

use super::follower::{FollowerState, StateError, StreamPosition};
use alloy_primitives::{B256, Bytes, keccak256, map::HashMap};
use cambium_disk::{Disk, DiskError};
use cambium_metrics::{Count, LabelledMetrics};
use cambium_store::{BlockLog, LogDamageKind, LogOptions, LogPosition, StoreError};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

const ID: &str = "journal.id";
const ID_TEMPORARY: &str = "journal.tmp";
const MAGIC: &[u8; 8] = b"CambiJnl";
const FORMAT: u32 = 1;
/// Number of the format of each kind of file that a shard writes, by the name of the kind.
pub const FORMATS: [(&str, u32); 1] = [("shard journal", FORMAT)];
const ID_BYTES: usize = 52;
/// Kind of the records in the block log.
const KIND: u8 = 1;

// journal.id. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiJnl"
// 8       4     format: 1
// 12      8     salt of the checksums of the log
// 20      32    Keccak-256 of 0 .. 20
//
// Payload of a log record. Numbers are big-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     position of the record in the stream
// 8       32    hash of the block that it updates, or zeros
// 40      4     bytes of the follower's state
// 44            the follower's state after the record, as `FollowerState::encode`
// then          the record, as `Record::encode`
const HEAD_BYTES: usize = 44;

const SHORT: &str = "it is too short, or its state is too long";

/// Most bytes of an encoded state of a follower.
const STATE_BYTES_MAX: usize = 1 << 13;

/// Sizes of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Bytes at which a segment is complete and the next one begins. At most 2 GiB.
    pub segment_bytes: u32,
    /// Most bytes of all records. A record beyond it is refused until segments are removed.
    pub bytes_max: u64,
    /// Bytes by which a segment grows at a time, so that most syncs leave the file's length as it is. 0 turns this off.
    pub extend_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            bytes_max: 64 << 30,
            extend_bytes: 4 << 20,
        }
    }
}

/// A record that the shard has applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its position in the stream. A block that was filled in by hash has that of the record that needed it.
    pub position: StreamPosition,
    /// Hash of the block, if it is an update.
    pub block: Option<B256>,
    /// The follower's state after it.
    pub state: FollowerState,
    /// The encoded record.
    pub record: Bytes,
}

/// A part of the journal that was damaged, and was cut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDamage {
    /// The file.
    pub file: String,
    /// Offset of the damage in the file.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Position in the stream of the last record before it. `None` if there is none.
    pub after: Option<StreamPosition>,
    /// Position in the stream of the first record behind it. `None` if there is none.
    pub before: Option<StreamPosition>,
}

impl std::fmt::Display for JournalDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            file,
            offset,
            bytes,
            ..
        } = self;
        write!(f, "{file} is damaged at byte {offset} ({bytes} bytes)")?;
        match (self.after, self.before) {
            (None, None) => {}
            (Some(after), None) => write!(f, ", after record {after} of the stream")?,
            (None, Some(before)) => write!(f, ", before record {before} of the stream")?,
            (Some(after), Some(before)) => {
                write!(f, ", between records {after} and {before} of the stream")?;
            }
        }
        f.write_str("; the blocks that were there come from a replica, by hash")
    }
}

/// What opening a journal has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalRecovery {
    /// Damage that was cut out now.
    pub damage: Vec<JournalDamage>,
    /// Bytes of a torn end, which no sync had acknowledged, that were cut off.
    pub torn_bytes: u64,
    /// Number of records that are there.
    pub entries: usize,
    /// The follower's state after the last record.
    pub state: FollowerState,
}

/// A failed operation of a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk, or the log on it, fails.
    #[error("journal: {0}")]
    Store(Box<StoreError>),
    /// The file with the salt of all checksums is damaged or missing, so that no record can be verified.
    #[error(
        "{file} {what}: without it no record of the journal can be verified. Remove {file} and the folder log beside it, and the shard \
         goes on from its snapshot, and gets what is missing from the stream or a replica"
    )]
    Id {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A newer program has written the journal.
    #[error("{file} was written in format {found}, this program reads {FORMAT}: upgrade")]
    NewerFormat {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
    },
    /// A record has an intact checksum, and malformed content.
    #[error("the journal's record at byte {offset} of segment {segment} is malformed: {what}")]
    Malformed {
        /// Number of the segment.
        segment: u32,
        /// Offset in it.
        offset: u32,
        /// What is wrong.
        what: String,
    },
    /// There is no room for another record.
    #[error(
        "the journal has {bytes} bytes, of at most {max}, and blocks in it are not final, so that nothing can be removed: allow it more (cambium shard --journal-size), and see why no blocks become final"
    )]
    Full {
        /// Bytes of its records.
        bytes: u64,
        /// The most that is allowed.
        max: u64,
    },
}

impl From<StoreError> for JournalError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl From<DiskError> for JournalError {
    fn from(error: DiskError) -> Self {
        StoreError::from(error).into()
    }
}

/// What is where in the journal.
#[derive(Debug, Default)]
struct Index {
    blocks: HashMap<B256, LogPosition>,
    positions: BTreeMap<StreamPosition, LogPosition>,
    segments: BTreeMap<u32, Segment>,
}

#[derive(Debug, Default)]
struct Segment {
    /// Its highest position in the stream.
    highest: StreamPosition,
    /// Offset at which its records end.
    end: u64,
    entries: usize,
}

impl Index {
    fn add(&mut self, at: LogPosition, end: u64, head: &Head) {
        if head.is_own {
            self.positions.insert(head.position, at);
        }
        if let Some(hash) = head.block {
            self.blocks.insert(hash, at);
        }
        let segment = self.segments.entry(at.file).or_default();
        segment.highest = segment.highest.max(head.position);
        segment.end = segment.end.max(end);
        segment.entries += 1;
    }

    fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.end).sum()
    }

    fn entries(&self) -> usize {
        self.segments.values().map(|segment| segment.entries).sum()
    }

    fn remove(&mut self, segment: u32) {
        self.segments.remove(&segment);
        self.blocks.retain(|_, at| at.file > segment);
        self.positions.retain(|_, at| at.file > segment);
    }
}

/// The first bytes of a payload.
struct Head {
    position: StreamPosition,
    block: Option<B256>,
    state_bytes: usize,
    /// Whether the record itself is at this position of the stream.
    is_own: bool,
}

/// Highest bit of the length of the state: the record is not at this position, a record there needed it.
const FILLED_IN: u32 = 1 << 31;

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.position.0.to_be_bytes());
        bytes[8..40].copy_from_slice(&self.block.unwrap_or_default().0);
        let flag = if self.is_own { 0 } else { FILLED_IN };
        bytes[40..].copy_from_slice(&(self.state_bytes as u32 | flag).to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (position, rest) = bytes.split_first_chunk::<8>()?;
        let (block, rest) = rest.split_first_chunk::<32>()?;
        let (length, _) = rest.split_first_chunk::<4>()?;
        let (block, length) = (B256::from(*block), u32::from_be_bytes(*length));
        let state_bytes = (length & !FILLED_IN) as usize;
        (state_bytes <= STATE_BYTES_MAX).then_some(Self {
            position: StreamPosition(u64::from_be_bytes(*position)),
            block: (!block.is_zero()).then_some(block),
            state_bytes,
            is_own: length & FILLED_IN == 0,
        })
    }
}

/// A shard's own log. One thread appends, any number of threads read.
#[derive(Debug)]
pub struct Journal {
    log: BlockLog,
    options: JournalOptions,
    index: Mutex<Index>,
    /// As the index says, without its lock: that is held while a record is appended.
    shown: Shown,
}

/// Number of records, and bytes of all of them.
#[derive(Debug, Default)]
struct Shown {
    entries: Count,
    bytes: Count,
}

impl Shown {
    fn set(&self, index: &Index) {
        self.entries.set(index.entries() as u64);
        self.bytes.set(index.bytes());
    }
}

impl Journal {
    /// Opens the journal in the root of a disk, or makes a new one. Damage is cut out, and returned.
    ///
    /// # Errors
    ///
    /// If the disk fails, or if `journal.id` is damaged.
    ///
    /// # Panics
    ///
    /// If segments are to be longer than 2 GiB.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: JournalOptions,
    ) -> Result<(Self, JournalRecovery), JournalError> {
        let salt = read_or_make_id(&*disk)?;
        let log_options = LogOptions {
            file_bytes_max: options.segment_bytes,
            extend_bytes: options.extend_bytes,
            salt,
        };
        let start = LogPosition {
            file: first_segment(&*disk)?.unwrap_or(LogPosition::START.file),
            ..LogPosition::START
        };
        let mut found = Vec::new();
        let (log, recovered) = loop {
            let error = match BlockLog::open(Arc::clone(&disk), log_options.clone(), start) {
                Ok(opened) => break opened,
                Err(error) => error,
            };
            if !error.is_corruption() || !cut_out_damage(&*disk, salt, &mut found)? {
                return Err(error.into());
            }
        };
        log.set_start(start);
        log.settle()?;
        let mut index = Index::default();
        let mut places = Vec::new();
        for record in log.scan_heads(start, HEAD_BYTES) {
            let (at, record) = record?;
            let head = Head::decode(&record.payload).ok_or_else(|| malformed(at, SHORT))?;
            // Of a whole segment where it ends is not looked up.
            let end = match at.file == log.end().file {
                true => log.end().offset,
                false => options.segment_bytes,
            };
            index.add(at, end.into(), &head);
            places.push((at, head.position));
        }
        let shown = Shown::default();
        shown.set(&index);
        let journal = Self {
            log,
            options,
            index: Mutex::new(index),
            shown,
        };
        let state = match places.last() {
            Some((at, _)) => journal.read(*at)?.state,
            None => FollowerState::default(),
        };
        let damage = found.into_iter().map(|(at, damage)| {
            let behind = places.partition_point(|(place, _)| *place < at);
            let position = |(_, position): &(_, StreamPosition)| *position;
            JournalDamage {
                after: behind
                    .checked_sub(1)
                    .map(|before| position(&places[before])),
                before: places.get(behind).map(position),
                ..damage
            }
        });
        let recovery = JournalRecovery {
            damage: damage.collect(),
            torn_bytes: recovered.torn_tail.map_or(0, |torn| torn.bytes),
            entries: places.len(),
            state,
        };
        Ok((journal, recovery))
    }

    /// Appends an encoded record, with the follower's state after it, whose position is the record's. `block` is the block
    /// that it updates. It is durable after the next [`Journal::sync`].
    ///
    /// # Errors
    ///
    /// If the journal is full, or if the disk fails: nothing can be appended from then on.
    pub fn append(
        &self,
        state: &FollowerState,
        block: Option<B256>,
        record: &[u8],
    ) -> Result<(), JournalError> {
        self.put(state.position, true, state, block, record)
    }

    /// Appends a block that was filled in by hash, before the record at `position` that needed it.
    ///
    /// # Errors
    ///
    /// As [`Journal::append`].
    pub fn append_filled(
        &self,
        position: StreamPosition,
        state: &FollowerState,
        block: B256,
        record: &[u8],
    ) -> Result<(), JournalError> {
        self.put(position, false, state, Some(block), record)
    }

    fn put(
        &self,
        position: StreamPosition,
        is_own: bool,
        state: &FollowerState,
        block: Option<B256>,
        record: &[u8],
    ) -> Result<(), JournalError> {
        let mut index = self.index.lock();
        let state = state.encode();
        let head = Head {
            position,
            block,
            state_bytes: state.len(),
            is_own,
        };
        let more = (HEAD_BYTES + state.len() + record.len()) as u64;
        let (bytes, max) = (index.bytes(), self.options.bytes_max);
        if bytes + more > max {
            return Err(JournalError::Full { bytes, max });
        }
        let at = self.log.append(KIND, &[&head.encode(), &state, record])?;
        index.add(at, u64::from(at.offset) + more, &head);
        self.shown.set(&index);
        Ok(())
    }

    /// Makes all records that were appended durable.
    ///
    /// # Errors
    ///
    /// If the disk fails: nothing can be appended from then on.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.log.sync()?;
        Ok(())
    }

    /// The records in the order in which they were appended.
    pub fn entries(&self) -> JournalEntries<'_> {
        JournalEntries {
            records: self.log.scan(self.log.start()),
        }
    }

    /// The record with the update of a block.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn block(&self, hash: &B256) -> Result<Option<JournalEntry>, JournalError> {
        let at = self.index.lock().blocks.get(hash).copied();
        at.map(|at| self.read(at)).transpose()
    }

    /// The record at a position of the stream, if the shard has applied it.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub fn at(&self, position: StreamPosition) -> Result<Option<JournalEntry>, JournalError> {
        let at = self.index.lock().positions.get(&position).copied();
        at.map(|at| self.read(at)).transpose()
    }

    /// Number of records, and bytes of all of them.
    pub fn size(&self) -> (usize, u64) {
        let index = self.index.lock();
        (index.entries(), index.bytes())
    }

    /// Whether three quarters of its room are taken.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let bytes = self.shown.bytes.get();
        bytes / 3 >= self.options.bytes_max / 4
    }

    /// Passes its size to a collector.
    pub(crate) fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.gauges([
            (
                "journal_records",
                "Records in the journal.",
                self.shown.entries.get(),
            ),
            (
                "journal_bytes",
                "Bytes of records in the journal.",
                self.shown.bytes.get(),
            ),
            (
                "journal_bytes_max",
                "Most bytes of records that the journal may have.",
                self.options.bytes_max,
            ),
        ]);
    }

    /// Removes segments, from the oldest on, all of whose records are before a position of the stream: a snapshot has what they
    /// led to. Returns how many were removed.
    ///
    /// # Errors
    ///
    /// If a file can't be removed.
    pub fn remove_before(&self, position: StreamPosition) -> Result<usize, JournalError> {
        let mut removed = 0;
        let mut index = self.index.lock();
        while let Some((&segment, oldest)) = index.segments.first_key_value()
            // The newest segment is being written.
            && segment < self.log.end().file
            && oldest.highest < position
        {
            // One file after the other: a crash must not leave an old one behind a missing one.
            for file in self.log.start().file..=segment {
                self.log.remove_before(LogPosition {
                    file: file + 1,
                    ..LogPosition::START
                })?;
            }
            index.remove(segment);
            self.shown.set(&index);
            removed += 1;
        }
        Ok(removed)
    }

    fn read(&self, at: LogPosition) -> Result<JournalEntry, JournalError> {
        let record = self.log.read(at)?;
        entry_of(at, record.payload)
    }
}

/// The records of a journal, in order. It ends after the first error.
#[derive(Debug)]
pub struct JournalEntries<'a> {
    records: cambium_store::LogScan<'a>,
}

impl Iterator for JournalEntries<'_> {
    type Item = Result<JournalEntry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, record) = match self.records.next()? {
            Ok(record) => record,
            Err(error) => return Some(Err(error.into())),
        };
        Some(entry_of(at, record.payload))
    }
}

fn malformed(at: LogPosition, what: impl ToString) -> JournalError {
    JournalError::Malformed {
        segment: at.file,
        offset: at.offset,
        what: what.to_string(),
    }
}

fn entry_of(at: LogPosition, payload: Vec<u8>) -> Result<JournalEntry, JournalError> {
    let short = || malformed(at, SHORT);
    let head = Head::decode(&payload).ok_or_else(short)?;
    let end = HEAD_BYTES + head.state_bytes;
    let state = payload.get(HEAD_BYTES..end).ok_or_else(short)?;
    let state = FollowerState::decode(state).map_err(|error: StateError| malformed(at, error))?;
    Ok(JournalEntry {
        position: head.position,
        block: head.block,
        state,
        record: Bytes::from(payload).slice(end..),
    })
}

/// Reads the salt of the journal's checksums, or draws it for a new journal.
fn read_or_make_id(disk: &dyn Disk) -> Result<u64, JournalError> {
    let wrong = |what| {
        let file = disk.display_path(ID);
        JournalError::Id { file, what }
    };
    if !disk.exists(ID)? {
        // The id is durable before the first segment is made.
        if first_segment(disk)?.is_some() {
            return Err(wrong("is missing"));
        }
        let salt = disk.new_salt();
        let mut bytes = [0; ID_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..20].copy_from_slice(&salt.to_le_bytes());
        let sum = keccak256(&bytes[..20]);
        bytes[20..].copy_from_slice(&sum.0);
        if disk.exists(ID_TEMPORARY)? {
            disk.remove(ID_TEMPORARY)?;
        }
        let file = disk.create(ID_TEMPORARY)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        disk.rename(ID_TEMPORARY, ID)?;
        disk.sync_dir("")?;
        return Ok(salt);
    }
    let file = disk.open(ID)?;
    if file.len()? != ID_BYTES as u64 {
        return Err(wrong("has a wrong length"));
    }
    let mut bytes = [0; ID_BYTES];
    file.read_at(&mut bytes, 0)?;
    let (body, sum) = bytes.split_at(20);
    if keccak256(body).0 != *sum {
        return Err(wrong("is damaged"));
    }
    let word = |from: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&body[from..from + 8]);
        u64::from_le_bytes(word)
    };
    let found = word(8) as u32;
    if body[..8] != *MAGIC {
        return Err(wrong("is no journal's"));
    }
    if found != FORMAT {
        let file = disk.display_path(ID);
        return Err(JournalError::NewerFormat { file, found });
    }
    Ok(word(12))
}

/// Number of the oldest segment.
fn first_segment(disk: &dyn Disk) -> Result<Option<u32>, JournalError> {
    if !disk.exists("log")? {
        return Ok(None);
    }
    let number = |name: &String| name.strip_suffix(".log")?.parse().ok();
    Ok(disk.list("log")?.iter().filter_map(number).min())
}

/// Cuts out what is damaged of the log, after copying it. Returns whether anything was. Adds to `cut` where it was, but for end
/// records of segments, which hold nothing.
fn cut_out_damage(
    disk: &dyn Disk,
    salt: u64,
    cut: &mut Vec<(LogPosition, JournalDamage)>,
) -> Result<bool, JournalError> {
    let found = BlockLog::find_damage(disk, salt, None, &[])?;
    let copy = disk.create(&free_name(disk)?)?;
    for damage in &found.damage {
        BlockLog::cut_out(disk, salt, &[], damage, &*copy)?;
        let at = damage.position;
        if damage.kind != LogDamageKind::End {
            let damage = JournalDamage {
                file: damage.file.clone(),
                offset: at.offset.into(),
                bytes: damage.end.saturating_sub(at.offset).into(),
                after: None,
                before: None,
            };
            cut.push((at, damage));
        }
    }
    disk.sync_dir("")?;
    Ok(!found.damage.is_empty())
}

fn free_name(disk: &dyn Disk) -> Result<String, JournalError> {
    let mut number = 1_u32;
    loop {
        let name = format!("damaged-{number:08}");
        if !disk.exists(&name)? {
            return Ok(name);
        }
        number += 1;
    }
}

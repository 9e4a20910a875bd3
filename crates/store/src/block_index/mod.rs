//! The block index: canonical block number to log position.
//!
//! The index is a file of fixed-size records that are read one at a time, so its memory does not
//! grow with the chain. It can be rebuilt from the log if it is missing or damaged. So it is
//! written lazily and synced only at checkpoints. Opening changes nothing: the file is truncated
//! before the first write.

use crate::{LogPosition, StoreError, files::open_if_exists, poison::Poison};
use alloy_primitives::B256;
use cambium_disk::{Disk, DiskFile};
use parking_lot::RwLock;
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) const NAME: &str = "blocks.idx";

// Index. Numbers are little-endian.
//
// OFFSET        SIZE  MEANING
// 0             8     "CambiIdx"
// 8             4     format: 1
// 12            36    zeros
// 48 (1 + n)    48    record of block n; zeros if it has none
//
// Record
//
// 0             32    hash of the block's header
// 32            8     `LogPosition::to_u64` of its record in the log
// 40            8     xxh3-64, seeded with n, of 0 .. 40
const MAGIC: &[u8; 8] = b"CambiIdx";
pub(crate) const FORMAT: u32 = 1;
const RECORD_BYTES: usize = 48;

/// Number of buffered entries at which they are written to the file.
const DIRTY_MAX: usize = 4096;

/// Number of entries that a search reads at once.
const SEARCHED_AT_ONCE: u64 = 4096;

/// Entry of a block in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEntry {
    /// Hash of the block's header.
    pub hash: B256,
    /// Position of the block's record in the log.
    pub position: LogPosition,
}

/// State of the index when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// The index has all entries that were asked for.
    Ready,
    /// The index ends too early. The caller sets the missing entries.
    Short {
        /// One more than the highest number that has an entry.
        numbers: u64,
    },
    /// The index was missing or damaged, and is now empty. The caller scans the log and sets all
    /// entries.
    Rebuild {
        /// Description of the fault.
        reason: String,
    },
}

/// The block index: a file with one record for each number, and a buffer of unwritten entries.
#[derive(Debug)]
pub struct BlockIndex {
    disk: Arc<dyn Disk>,
    /// `None` until the first write, if the file is missing.
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    state: RwLock<State>,
    reads: AtomicU64,
    written: AtomicU64,
    poison: Poison,
    /// Block that the file must contain for its entries to be valid, if set: see
    /// [`BlockIndex::set_anchor`].
    anchor: RwLock<Option<(u64, B256)>>,
}

#[derive(Debug, Default)]
struct State {
    dirty: BTreeMap<u64, BlockEntry>,
    /// One more than the highest number that has an entry.
    numbers: u64,
    /// Number of records in the file that are valid.
    file_numbers: u64,
    /// How to truncate the file before the next write.
    cut: Option<Cut>,
    name_is_durable: bool,
    /// Whether the file has its header. A rebuilt index gets it only once all entries are durable,
    /// so that an incomplete one is never taken for complete.
    has_header: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    To(u64),
    All,
}

impl BlockIndex {
    /// Opens the index, which is expected to have all numbers below `numbers`. If `numbers` is 0 a
    /// new index begins. Higher numbers are dropped: replay of the log sets them again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be opened or read.
    pub fn open(disk: Arc<dyn Disk>, numbers: u64) -> Result<(Self, IndexState), StoreError> {
        let file = open_if_exists(&*disk, NAME)?;
        let index = Self {
            disk,
            file: RwLock::new(file),
            state: RwLock::new(State::default()),
            reads: AtomicU64::new(0),
            written: AtomicU64::new(0),
            poison: Poison::new("block index"),
            anchor: RwLock::new(None),
        };
        let found = match numbers {
            0 => Err(IndexState::Ready),
            _ => index.find(numbers)?,
        };
        let (numbers, state) = match found {
            Ok(there) if there == numbers => (there, IndexState::Ready),
            Ok(there) => (there, IndexState::Short { numbers: there }),
            Err(state) => {
                index.state.write().cut = Some(Cut::All);
                return Ok((index, state));
            }
        };
        *index.state.write() = State {
            numbers,
            file_numbers: numbers,
            cut: Some(Cut::To(numbers)),
            has_header: true,
            ..State::default()
        };
        Ok((index, state))
    }

    /// Makes all reads of entries check that the file has the block `number` with this hash. Meant
    /// for a reader, because another process may rewrite the file with another chain.
    pub fn set_anchor(&self, number: u64, hash: B256) {
        *self.anchor.write() = Some((number, hash));
    }

    /// Returns the entry of `number`, or `None` if it has none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the record is damaged (to recover, clear the index and set all
    /// entries from a scan of the log), [`StoreError::ReaderBehind`] if the anchor was removed, and
    /// [`StoreError::Disk`] if the record can't be read.
    pub fn get(&self, number: u64) -> Result<Option<BlockEntry>, StoreError> {
        let state = self.state.read();
        match state.dirty.get(&number) {
            Some(entry) => Ok(Some(*entry)),
            None if number < state.file_numbers => self.read(number),
            None => Ok(None),
        }
    }

    /// Returns the highest number in `numbers` whose entry has this hash. Reads the file in large pieces, from its end down: a hash
    /// that is not there costs 48 bytes for each number.
    ///
    /// # Errors
    ///
    /// As [`BlockIndex::get`]. Damage of entries with other hashes is not noticed.
    pub fn search(&self, hash: &B256, numbers: Range<u64>) -> Result<Option<u64>, StoreError> {
        let state = self.state.read();
        let mut buffered = state.dirty.range(numbers.clone()).rev();
        if let Some((number, _)) = buffered.find(|(_, entry)| entry.hash == *hash) {
            return Ok(Some(*number));
        }
        let mut piece = Vec::new();
        let mut end = numbers.end.min(state.file_numbers);
        while end > numbers.start {
            let first = numbers.start.max(end.saturating_sub(SEARCHED_AT_ONCE));
            piece.resize((end - first) as usize * RECORD_BYTES, 0);
            if self.read_piece(&mut piece, first)? {
                let hashes = piece.chunks_exact(RECORD_BYTES);
                let numbered = hashes.enumerate().rev();
                let mut numbered = numbered.map(|(at, record)| (first + at as u64, record));
                // An entry of the buffer replaces that of the file.
                let found = numbered.find(|(number, record)| {
                    record[..32] == hash[..] && !state.dirty.contains_key(number)
                });
                if let Some((number, _)) = found {
                    return Ok(self.read(number)?.map(|_| number));
                }
            }
            end = first;
        }
        self.check_anchor()?;
        Ok(None)
    }

    /// Returns the entry of `number`, which must exist.
    ///
    /// # Errors
    ///
    /// As [`BlockIndex::get`], and [`StoreError::Corrupt`] if there is no entry.
    pub fn expect(&self, number: u64) -> Result<BlockEntry, StoreError> {
        self.get(number)?
            .ok_or_else(|| self.corrupt(number, format!("block {number} is missing")))
    }

    /// Sets the entry of `number`. It is buffered and written later.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if writing buffered entries fails, which poisons the index, and
    /// [`StoreError::Poisoned`] after that.
    pub fn set(&self, number: u64, entry: BlockEntry) -> Result<(), StoreError> {
        let state = &mut *self.state.write();
        self.poison.guard(|| {
            state.dirty.insert(number, entry);
            state.numbers = state.numbers.max(number + 1);
            // Only readers have an anchor, and they never write.
            if state.dirty.len() >= DIRTY_MAX && self.anchor.read().is_none() {
                self.flush(state)
            } else {
                Ok(())
            }
        })
    }

    /// Removes all entries durably. Until the next [`BlockIndex::sync`], opening the index returns
    /// [`IndexState::Rebuild`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be truncated, which poisons the index, and
    /// [`StoreError::Poisoned`] after that.
    pub fn clear(&self) -> Result<(), StoreError> {
        let state = &mut *self.state.write();
        self.poison.guard(|| {
            *state = State {
                name_is_durable: state.name_is_durable,
                cut: Some(Cut::All),
                ..State::default()
            };
            self.make_cut(state)
        })
    }

    /// Removes the entries from `number` on, as [`BlockIndex::clear`] does. Those below are kept as
    /// they are, damaged or not, because their blocks may have left the log.
    ///
    /// # Errors
    ///
    /// As [`BlockIndex::clear`].
    pub fn restart(&self, number: u64) -> Result<(), StoreError> {
        if number == 0 {
            return self.clear();
        }
        let state = &mut *self.state.write();
        self.poison.guard(|| {
            let file = self.file()?;
            let len = file.len()?.min(offset_of(number));
            file.set_len(len)?;
            // Without a header, opening does not take the file for complete before the next sync.
            file.write_at(&[0; RECORD_BYTES], 0)?;
            file.sync()?;
            let numbers = (len / RECORD_BYTES as u64).saturating_sub(1);
            *state = State {
                name_is_durable: state.name_is_durable,
                numbers,
                file_numbers: numbers,
                ..State::default()
            };
            Ok(())
        })
    }

    /// Removes the entries of `number` and all above it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Poisoned`] after a failed write or sync.
    pub fn truncate(&self, number: u64) -> Result<(), StoreError> {
        let state = &mut *self.state.write();
        self.poison.check()?;
        state.dirty.split_off(&number);
        state.numbers = state.numbers.min(number);
        if state.file_numbers > number {
            state.file_numbers = number;
            state.cut = Some(match state.cut {
                Some(Cut::All) => Cut::All,
                _ => Cut::To(number),
            });
        }
        Ok(())
    }

    /// Returns one more than the highest number that has an entry.
    pub fn numbers(&self) -> u64 {
        self.state.read().numbers
    }

    /// Returns the number of entries read from the file since opening.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the bytes written since opening.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Writes the buffered entries and makes them durable.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a write or sync fails, which poisons the index, and
    /// [`StoreError::Poisoned`] after that.
    pub fn sync(&self) -> Result<(), StoreError> {
        let (name_is_durable, has_header) = {
            let state = &mut *self.state.write();
            self.poison.guard(|| self.flush(state))?;
            (state.name_is_durable, state.has_header)
        };
        let file = self.file()?;
        // Done without the state's lock, so that readers don't wait for the disk.
        self.poison.guard(|| {
            file.sync()?;
            if !has_header {
                file.write_at(&header(), 0)?;
                self.written
                    .fetch_add(RECORD_BYTES as u64, Ordering::Relaxed);
                file.sync()?;
            }
            if !name_is_durable {
                self.disk.sync_dir("")?;
            }
            Ok(())
        })?;
        let state = &mut *self.state.write();
        (state.name_is_durable, state.has_header) = (true, true);
        Ok(())
    }

    /// Returns the file, and creates it if necessary.
    fn file(&self) -> Result<Arc<dyn DiskFile>, StoreError> {
        let mut file = self.file.write();
        Ok(match &*file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(file.insert(self.disk.create(NAME)?)),
        })
    }

    /// Truncates the file as `state.cut` says. Removing everything is durable on return: old
    /// entries must not reappear among new ones after a crash.
    fn make_cut(&self, state: &mut State) -> Result<(), StoreError> {
        match state.cut {
            None => {}
            Some(Cut::To(numbers)) => {
                let (file, len) = (self.file()?, offset_of(numbers));
                if file.len()? > len {
                    file.set_len(len)?;
                }
            }
            Some(Cut::All) => {
                let file = self.file()?;
                if !file.is_empty()? {
                    file.set_len(0)?;
                    file.sync()?;
                }
            }
        }
        state.cut = None;
        Ok(())
    }

    /// Writes the buffered entries, adjacent ones together.
    fn flush(&self, state: &mut State) -> Result<(), StoreError> {
        self.make_cut(state)?;
        let (mut run, mut first) = (Vec::new(), 0);
        for (&number, entry) in &state.dirty {
            if first + (run.len() / RECORD_BYTES) as u64 != number {
                self.write_run(&run, first)?;
                run.clear();
                first = number;
            }
            run.extend(encode(number, entry));
        }
        self.write_run(&run, first)?;
        if let Some((&last, _)) = state.dirty.last_key_value() {
            state.file_numbers = state.file_numbers.max(last + 1);
        }
        state.dirty.clear();
        Ok(())
    }

    fn write_run(&self, run: &[u8], first: u64) -> Result<(), StoreError> {
        if run.is_empty() {
            return Ok(());
        }
        self.written.fetch_add(run.len() as u64, Ordering::Relaxed);
        Ok(self.file()?.write_at(run, offset_of(first))?)
    }

    /// Reads the entry of `number` from the file, and verifies that the anchor is still there.
    fn read(&self, number: u64) -> Result<Option<BlockEntry>, StoreError> {
        let entry = self.read_entry(number);
        // Checked after the read: the file is truncated from the end and rewritten upwards, so an
        // entry read before the anchor belongs to the anchor's chain.
        self.check_anchor()?;
        entry
    }

    /// Checks that the file still has the block of [`BlockIndex::set_anchor`].
    ///
    /// # Errors
    ///
    /// [`StoreError::ReaderBehind`] if not.
    pub fn check_anchor(&self) -> Result<(), StoreError> {
        let anchor = *self.anchor.read();
        if let Some((number, hash)) = anchor
            && !matches!(self.read_entry(number), Ok(Some(entry)) if entry.hash == hash)
        {
            let what = format!("the chain of its block {number} ({hash})");
            return Err(StoreError::ReaderBehind { what });
        }
        Ok(())
    }

    fn read_entry(&self, number: u64) -> Result<Option<BlockEntry>, StoreError> {
        let mut record = [0; RECORD_BYTES];
        self.reads.fetch_add(1, Ordering::Relaxed);
        let Some(file) = self.file.read().clone() else {
            return Ok(None);
        };
        match file.read_at(&mut record, offset_of(number)) {
            // Another process has truncated the file.
            Err(error) if error.is_end_of_file() => return Ok(None),
            read => read?,
        }
        if record == [0; RECORD_BYTES] {
            return Ok(None);
        }
        let what = || format!("the checksum of block {number} does not match");
        let entry = decode(number, &record);
        entry.map(Some).ok_or_else(|| self.corrupt(number, what()))
    }

    /// Reads the records from that of `first` on. False if the file ends before.
    fn read_piece(&self, piece: &mut [u8], first: u64) -> Result<bool, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let Some(file) = self.file.read().clone() else {
            return Ok(false);
        };
        match file.read_at(piece, offset_of(first)) {
            // Another process has truncated the file.
            Err(error) if error.is_end_of_file() => Ok(false),
            read => Ok(read.map(|()| true)?),
        }
    }

    fn corrupt(&self, number: u64, what: String) -> StoreError {
        StoreError::Corrupt {
            file: self.disk.display_path(NAME),
            offset: offset_of(number),
            what,
            advice: "`cambium db repair` rebuilds it from the log",
        }
    }

    /// Returns how many of the first `numbers` entries the file has, or that it must be rebuilt.
    /// `numbers` is not 0.
    fn find(&self, numbers: u64) -> Result<Result<u64, IndexState>, StoreError> {
        let rebuild = |reason: String| Ok(Err(IndexState::Rebuild { reason }));
        let file = self.file.read().clone();
        let len = file.as_ref().map_or(Ok(0), |file| file.len())?;
        let mut found = [0; RECORD_BYTES];
        if let Some(file) = file.filter(|_| len >= RECORD_BYTES as u64) {
            file.read_at(&mut found, 0)?;
        }
        if found != header() {
            let what = if len == 0 {
                "it is missing"
            } else {
                "bad header"
            };
            return rebuild(what.to_owned());
        }
        let there = (len / RECORD_BYTES as u64 - 1).min(numbers);
        if there < numbers {
            return Ok(Ok(there));
        }
        let last = numbers - 1;
        match self.read(last) {
            Ok(Some(_)) => Ok(Ok(there)),
            Ok(None) => rebuild(format!("it lacks block {last}")),
            Err(e) if e.is_corruption() => rebuild(format!("block {last} is damaged")),
            Err(e) => Err(e),
        }
    }
}

const fn offset_of(number: u64) -> u64 {
    RECORD_BYTES as u64 * (1 + number)
}

fn header() -> [u8; RECORD_BYTES] {
    let mut header = [0; RECORD_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header
}

fn encode(number: u64, entry: &BlockEntry) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..32].copy_from_slice(entry.hash.as_slice());
    record[32..40].copy_from_slice(&entry.position.to_u64().to_le_bytes());
    let sum = xxh3_64_with_seed(&record[..40], number);
    record[40..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn decode(number: u64, record: &[u8; RECORD_BYTES]) -> Option<BlockEntry> {
    let word = |at| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    (word(40) == xxh3_64_with_seed(&record[..40], number)).then(|| BlockEntry {
        hash: B256::from_slice(&record[..32]),
        position: LogPosition::from_u64(word(32)),
    })
}

#[cfg(test)]
mod tests;

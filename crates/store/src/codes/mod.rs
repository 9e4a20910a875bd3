//! Contract code by hash.
//!
//! One append-only file of records, and in memory where each code is. Codes are few and never
//! change, so nothing is ever removed. Opening reads the frames and hashes of what a checkpoint
//! vouches for, and all of what came later; a code's own bytes are checked whenever they are read.
//!
//! Where the file is damaged, the codes there can't be read, and all others can. What block records
//! of the log hold can be put again: [`Codes::restore`].

use crate::{
    StoreError,
    error::REPAIR,
    poison::Poison,
    record::{FRAME_BYTES, Found, RecordFile, put_record},
};
use alloy_primitives::B256;
use cambium_disk::{Disk, DiskFile};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) const NAME: &str = "codes.dat";
/// What a repair writes before it takes the place of the file.
const NEW_NAME: &str = "codes.dat.tmp";
/// Copied so many bytes at a time.
const COPY_BYTES: usize = 1 << 20;

// Codes. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiCod"
// 8       4     format: 1
// 12      4     zeros
// 16      8     xxh3-64, seeded with the salt, of 0 .. 16
// 24            records (see record.rs), whose positions are their offsets: of kind 0 with a
//               code, of kind 1 with zeros, where a repair found less than had been there
//
// Payload of a record of kind 0
//
// 0       32    hash
// 32      8     xxh3-64, seeded with the salt, of the hash: it is read without the code
// 40            code
const MAGIC: &[u8; 8] = b"CambiCod";
const FORMAT: u32 = 1;
const HEADER_BYTES: u64 = 24;
const KIND: u8 = 0;
/// Fills the place of codes that were lost.
const FILLER: u8 = 1;
/// Bytes of one filler: as many as a frame and a key take at least.
const FILLER_BYTES_MIN: u64 = (FRAME_BYTES + KEY_BYTES) as u64;
const FILLER_BYTES_MAX: u64 = 64 << 20;
const KEY_BYTES: usize = 40;

/// Far above what any fork allows.
const CODE_BYTES_MAX: u64 = 16 << 20;

/// What opening found.
#[derive(Debug, Default)]
pub struct CodesRecovery {
    /// How many codes there are.
    pub codes: usize,
    /// Bytes at the end that no sync had acknowledged. [`Codes::settle`] drops them.
    pub truncated_bytes: u64,
    /// What had been acknowledged and can't be read.
    pub damage: Vec<StoreError>,
}

/// All codes: one file of bytes, and in memory where each is.
#[derive(Debug)]
pub struct Codes {
    disk: Arc<dyn Disk>,
    name: &'static str,
    salt: u64,
    /// Offset of each code's record.
    offsets: RwLock<HashMap<B256, u64>>,
    /// `None` until codes are begun, and if the file is missing.
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    writer: Mutex<Writer>,
    /// What is missing of the file, so that nothing can be appended to it.
    lost: Option<&'static str>,
    written: AtomicU64,
    poison: Poison,
}

#[derive(Debug)]
struct Writer {
    end: u64,
    durable_to: u64,
    /// Whether what opening left to be done is done.
    is_settled: bool,
    buffer: Vec<u8>,
}

impl Codes {
    /// Opens the codes, of which `checkpointed_bytes` should be there, and changes nothing. What
    /// was put after that length and not synced may be gone: it is put again by replaying the log.
    /// `salt` as in [`LogOptions::salt`](crate::LogOptions::salt).
    pub fn open(
        disk: Arc<dyn Disk>,
        salt: u64,
        checkpointed_bytes: u64,
    ) -> Result<(Self, CodesRecovery), StoreError> {
        Self::open_named(disk, NAME, salt, checkpointed_bytes)
    }

    fn open_named(
        disk: Arc<dyn Disk>,
        name: &'static str,
        salt: u64,
        checkpointed_bytes: u64,
    ) -> Result<(Self, CodesRecovery), StoreError> {
        let file = match disk.exists(name)? {
            true => Some(disk.open(name)?),
            false => None,
        };
        let mut scan = Scan {
            disk: &*disk,
            offsets: HashMap::new(),
            durable_to: checkpointed_bytes,
            damage: Vec::new(),
        };
        let len = file.as_ref().map_or(Ok(0), |file| file.len())?;
        let mut lost = None;
        if len < checkpointed_bytes {
            let what = match file {
                Some(_) => "the file is shorter than its checkpointed length",
                None => "the file is missing",
            };
            lost = Some(what);
            scan.add(len, what);
        }
        let mut end = HEADER_BYTES;
        if let Some(file) = &file {
            let records = RecordFile {
                file: &**file,
                salt,
                base: 0,
                len,
            };
            let mut header = [0; HEADER_BYTES as usize];
            if len >= HEADER_BYTES {
                file.read_at(&mut header, 0)?;
            }
            if header != self::header(salt) && (len > HEADER_BYTES || checkpointed_bytes > 0) {
                scan.add(0, "bad header");
            }
            let checked = scan.checkpointed(records, checkpointed_bytes.min(len))?;
            end = scan.later(records, checked)?;
        }
        let recovery = CodesRecovery {
            codes: scan.offsets.len(),
            truncated_bytes: len.saturating_sub(end.max(HEADER_BYTES)),
            damage: scan.damage,
        };
        let writer = Writer {
            end: end.max(checkpointed_bytes),
            durable_to: scan.durable_to.min(end),
            is_settled: false,
            buffer: Vec::new(),
        };
        let codes = Self {
            offsets: RwLock::new(scan.offsets),
            disk,
            name,
            salt,
            file: RwLock::new(file),
            writer: Mutex::new(writer),
            lost,
            written: AtomicU64::new(0),
            poison: Poison::new("codes"),
        };
        Ok((codes, recovery))
    }

    /// Makes the file ready to be appended to: begins it, drops what came after its end, and makes
    /// durable what is before it. Done once, before the first code is put. Of a file that is not
    /// whole nothing is changed.
    pub fn settle(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        if writer.is_settled || self.lost.is_some() {
            return Ok(());
        }
        self.poison.guard(|| {
            let mut file = self.file.write();
            let found = match &*file {
                Some(file) => Arc::clone(file),
                None => Arc::clone(file.insert(self.disk.create(self.name)?)),
            };
            let len = found.len()?;
            if len <= HEADER_BYTES {
                found.write_at(&header(self.salt), 0)?;
            }
            if writer.end < len {
                found.set_len(writer.end)?;
            }
            let records = RecordFile {
                file: &*found,
                salt: self.salt,
                base: 0,
                len: writer.end,
            };
            // What a killed process left may still be in the system's cache alone.
            records.rewrite(writer.durable_to.max(HEADER_BYTES), writer.end)?;
            found.sync()?;
            self.disk.sync_dir("")?;
            writer.durable_to = writer.end;
            writer.is_settled = true;
            Ok(())
        })
    }

    /// Writes a file that is damaged anew, with what of it can be read: a repair, after which the
    /// codes that were lost can be put again. The old file, if there is one, is kept under the name
    /// `copy`. Returns how many codes there are.
    pub fn begin_anew(
        disk: &Arc<dyn Disk>,
        salt: u64,
        checkpointed_bytes: u64,
        copy: &str,
    ) -> Result<usize, StoreError> {
        let (old, _) = Self::open(disk.clone(), salt, checkpointed_bytes)?;
        if disk.exists(NEW_NAME)? {
            disk.remove(NEW_NAME)?;
        }
        let (new, _) = Self::open_named(disk.clone(), NEW_NAME, salt, 0)?;
        new.settle()?;
        let mut codes = 0;
        for hash in old.hashes() {
            match old.get(&hash) {
                Ok(Some(code)) => codes += usize::from(new.put(hash, &code)?),
                Ok(None) => {}
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        {
            // As long as it was, so that it counts as whole.
            let writer = &mut *new.writer.lock();
            while writer.end < checkpointed_bytes {
                let missing =
                    (checkpointed_bytes - writer.end).clamp(FILLER_BYTES_MIN, FILLER_BYTES_MAX);
                let payload = vec![0; missing as usize - FRAME_BYTES];
                new.append_record(writer, FILLER, &[&payload])?;
            }
        }
        new.file()?.sync()?;
        if let Some(old) = &*old.file.read() {
            let to = disk.create(copy)?;
            let (mut at, len) = (0, old.len()?);
            let mut piece = vec![0; COPY_BYTES];
            while at < len {
                let take = (len - at).min(COPY_BYTES as u64) as usize;
                old.read_at(&mut piece[..take], at)?;
                to.write_at(&piece[..take], at)?;
                at += take as u64;
            }
            to.sync()?;
            disk.sync_dir("")?;
        }
        disk.rename(NEW_NAME, NAME)?;
        disk.sync_dir("")?;
        Ok(codes)
    }

    /// Appends a record. Returns where it is.
    fn append_record(
        &self,
        writer: &mut Writer,
        kind: u8,
        parts: &[&[u8]],
    ) -> Result<u64, StoreError> {
        let offset = writer.end;
        writer.buffer.clear();
        let (buffer, durable_to) = (&mut writer.buffer, writer.durable_to);
        put_record(buffer, self.salt, kind, offset, durable_to, parts);
        self.file()?.write_at(&writer.buffer, offset)?;
        let bytes = writer.buffer.len() as u64;
        self.written.fetch_add(bytes, Ordering::Relaxed);
        writer.end += bytes;
        Ok(offset)
    }

    /// Adds `code`, whose hash is `hash`, unless it is there. True if it was added.
    ///
    /// # Panics
    ///
    /// If the codes are not settled.
    pub fn put(&self, hash: B256, code: &[u8]) -> Result<bool, StoreError> {
        self.append(hash, code, false)
    }

    /// An error if the file lacks what it had: no code can be added then.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.lost {
            Some(what) => Err(corrupt(&*self.disk, self.writer.lock().end, what)),
            None => Ok(()),
        }
    }

    /// Whether the code of `hash` is here, and durable.
    pub fn is_durable(&self, hash: &B256) -> bool {
        let durable_to = self.writer.lock().durable_to;
        self.offsets
            .read()
            .get(hash)
            .is_some_and(|at| *at < durable_to)
    }

    /// Adds `code` although there is one of its hash, which can't be read.
    pub fn restore(&self, hash: B256, code: &[u8]) -> Result<(), StoreError> {
        self.append(hash, code, true).map(drop)
    }

    fn append(&self, hash: B256, code: &[u8], is_again: bool) -> Result<bool, StoreError> {
        let bytes = code.len() as u64;
        if bytes > CODE_BYTES_MAX {
            return Err(StoreError::TooLarge {
                what: "code",
                bytes,
                max: CODE_BYTES_MAX,
            });
        }
        let writer = &mut *self.writer.lock();
        if !is_again && self.contains(&hash) {
            return Ok(false);
        }
        if let Some(what) = self.lost {
            return Err(corrupt(&*self.disk, writer.end, what));
        }
        assert!(writer.is_settled, "codes are settled before any is put");
        self.poison.guard(|| {
            let parts: [&[u8]; 3] = [hash.as_slice(), &hash_check(self.salt, &hash), code];
            let offset = self.append_record(writer, KIND, &parts)?;
            self.offsets.write().insert(hash, offset);
            Ok(true)
        })
    }

    /// The code of `hash`.
    pub fn get(&self, hash: &B256) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(offset) = self.offsets.read().get(hash).copied() else {
            return Ok(None);
        };
        let file = self.file()?;
        let records = RecordFile {
            file: &*file,
            salt: self.salt,
            base: 0,
            len: file.len()?,
        };
        let what = match records.record(offset)? {
            Found::Record(_, payload) if payload.starts_with(hash.as_slice()) => {
                return Ok(Some(payload[KEY_BYTES..].to_vec()));
            }
            Found::Record(..) => "it holds another code",
            Found::End => "a code is missing",
            Found::Damage(what) => what,
        };
        Err(corrupt(&*self.disk, offset, what))
    }

    fn file(&self) -> Result<Arc<dyn DiskFile>, StoreError> {
        let file = self.file.read().clone();
        file.ok_or_else(|| corrupt(&*self.disk, 0, "the file is missing"))
    }

    /// Memory that the places of all codes take.
    pub fn memory_bytes(&self) -> usize {
        // A table has room for a seventh more at least, and a byte for each.
        self.offsets.read().capacity() * 8 / 7 * (size_of::<(B256, u64)>() + 1)
    }

    /// Whether there is a code of `hash`.
    pub fn contains(&self, hash: &B256) -> bool {
        self.offsets.read().contains_key(hash)
    }

    /// Bytes written since the codes were opened.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.offsets.read().len()
    }

    /// All hashes, in the order of their codes in the file.
    pub fn hashes(&self) -> Vec<B256> {
        let offsets = self.offsets.read();
        let mut found: Vec<_> = offsets.iter().map(|(hash, at)| (*at, *hash)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, hash)| hash).collect()
    }

    /// Makes all codes put so far durable, and returns the length to keep in the checkpoint.
    pub fn sync(&self) -> Result<u64, StoreError> {
        let writer = &mut *self.writer.lock();
        self.poison.check()?;
        if writer.is_settled && writer.durable_to < writer.end {
            self.poison.guard(|| Ok(self.file()?.sync()?))?;
            writer.durable_to = writer.end;
        }
        Ok(writer.end)
    }
}

/// Finding where codes are.
struct Scan<'a> {
    disk: &'a dyn Disk,
    offsets: HashMap<B256, u64>,
    /// What the records found tell to be durable.
    durable_to: u64,
    damage: Vec<StoreError>,
}

impl Scan<'_> {
    fn add(&mut self, offset: u64, what: &str) {
        self.damage.push(corrupt(self.disk, offset, what));
    }

    /// Reads the keys of all records below `end`, each of which should be there. Returns where they
    /// end.
    fn checkpointed(&mut self, records: RecordFile<'_>, end: u64) -> Result<u64, StoreError> {
        let mut offset = HEADER_BYTES;
        while offset < end {
            let mut key = [0; KEY_BYTES];
            let frame = records.frame(offset, &mut key)?;
            match frame {
                Some(frame) if frame.kind == FILLER => offset += frame.size(),
                Some(frame) => {
                    match decode_key(records.salt, &key) {
                        Some(hash) => _ = self.offsets.insert(hash, offset),
                        None => self.add(offset, "the hash of a code can't be read"),
                    }
                    offset += frame.size();
                }
                None => {
                    self.add(offset, "there is no whole record");
                    let behind = records.witness(offset + 8, 0)?;
                    offset = behind.map_or(end, |behind| behind.min(end));
                }
            }
        }
        Ok(offset)
    }

    /// Reads all records from `offset` on, and raises `durable_to` to what they tell. Returns where
    /// those end that may have been acknowledged.
    fn later(&mut self, records: RecordFile<'_>, mut offset: u64) -> Result<u64, StoreError> {
        while offset < records.len {
            let found = match records.record(offset)? {
                Found::Record(frame, payload) => {
                    self.durable_to = frame.durable_to.max(self.durable_to);
                    offset += frame.size();
                    decode_key(records.salt, &payload).map(|hash| (hash, offset - frame.size()))
                }
                Found::End | Found::Damage(_) => {
                    if records.witness(offset, offset)?.is_none() {
                        return Ok(offset);
                    }
                    self.add(offset, "the checksum of a record does not match");
                    let behind = records.witness(offset + 8, 0)?;
                    offset = behind.unwrap_or(records.len);
                    None
                }
            };
            self.offsets.extend(found);
        }
        Ok(offset)
    }
}

fn decode_key(salt: u64, payload: &[u8]) -> Option<B256> {
    let (hash, check) = payload.get(..KEY_BYTES)?.split_at(32);
    let hash = B256::from_slice(hash);
    (check == hash_check(salt, &hash)).then_some(hash)
}

fn hash_check(salt: u64, hash: &B256) -> [u8; 8] {
    xxh3_64_with_seed(hash.as_slice(), salt).to_le_bytes()
}

fn header(salt: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let check = xxh3_64_with_seed(&header[..16], salt);
    header[16..].copy_from_slice(&check.to_le_bytes());
    header
}

fn corrupt(disk: &dyn Disk, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt {
        file: disk.display_path(NAME),
        offset,
        what: what.to_owned(),
        advice: REPAIR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{b256, keccak256};
    use cambium_disk::{Fault, FaultyDisk};
    use proptest::{collection::vec, prelude::*};

    const SALT: u64 = 0x5eed;

    fn code(n: u64) -> Vec<u8> {
        (0..n * 37 % 200).map(|at| (n + at) as u8).collect()
    }

    fn hash(n: u64) -> B256 {
        keccak256(n.to_be_bytes())
    }

    fn open(disk: &FaultyDisk, checkpointed: u64) -> Result<(Codes, CodesRecovery), StoreError> {
        let opened = Codes::open(Arc::new(disk.clone()), SALT, checkpointed)?;
        opened.0.settle()?;
        Ok(opened)
    }

    /// What opening told, of codes of which all is there.
    fn undamaged(opened: Result<(Codes, CodesRecovery), StoreError>) -> (Codes, u64) {
        let (codes, recovery) = opened.unwrap();
        assert!(recovery.damage.is_empty(), "{:?}", recovery.damage);
        assert_eq!(recovery.codes, codes.hashes().len());
        (codes, recovery.truncated_bytes)
    }

    /// `count` codes, each synced; the file's length after each.
    fn filled(disk: &FaultyDisk, count: u64) -> (Codes, Vec<u64>) {
        let (codes, _) = open(disk, 0).unwrap();
        let put = |n| {
            assert!(codes.put(hash(n), &code(n)).unwrap());
            codes.sync().unwrap()
        };
        let ends = (0..count).map(put).collect();
        (codes, ends)
    }

    fn assert_holds(codes: &Codes, count: u64) {
        for n in 0..count {
            assert_eq!(codes.get(&hash(n)).unwrap(), Some(code(n)), "code {n}");
        }
        assert_eq!(codes.hashes().len() as u64, count);
    }

    #[test]
    fn codes_are_read_back_and_kept_once() {
        let disk = FaultyDisk::new(1);
        let (codes, ends) = filled(&disk, 20);
        assert!(!codes.put(hash(3), &code(3)).unwrap());
        assert_eq!(codes.sync().unwrap(), ends[19]);
        assert_holds(&codes, 20);
        assert!(codes.contains(&hash(19)) && !codes.contains(&hash(20)));
        assert_eq!(codes.get(&hash(20)).unwrap(), None);
        let disk = disk.crash();
        for checkpointed in [0, ends[0], ends[10], ends[19]] {
            let (codes, truncated) = undamaged(open(&disk, checkpointed));
            assert_eq!(truncated, 0);
            assert_holds(&codes, 20);
        }
    }

    #[test]
    fn a_flipped_bit_is_told_and_costs_one_code_which_can_be_restored() {
        let disk = FaultyDisk::new(2);
        let (_, ends) = filled(&disk, 4);
        let good = disk.duplicate();
        for at in 0..ends[2] {
            for checkpointed in [0, ends[3]] {
                let disk = good.duplicate();
                disk.flip_bit(NAME, at, (at % 8) as u8);
                let (codes, recovery) = open(&disk, checkpointed).unwrap();
                let mut told: Vec<String> =
                    recovery.damage.iter().map(ToString::to_string).collect();
                let mut lost = Vec::new();
                for n in 0..4 {
                    match codes.get(&hash(n)) {
                        Ok(Some(found)) => assert_eq!(found, code(n), "byte {at}"),
                        Ok(None) => lost.push(n),
                        Err(error) => {
                            told.push(error.to_string());
                            lost.push(n);
                        }
                    }
                }
                // The header alone costs no code.
                assert_eq!(lost.len(), usize::from(at >= HEADER_BYTES), "byte {at}");
                assert_eq!(told.len(), 1, "byte {at}: {told:?}");
                let is_named = told[0].starts_with("codes.dat is damaged at byte");
                assert!(
                    is_named && told[0].contains("cambium db repair"),
                    "{told:?}"
                );
                for n in lost {
                    codes.restore(hash(n), &code(n)).unwrap();
                }
                codes.put(hash(4), &code(4)).unwrap();
                codes.sync().unwrap();
                let (codes, _) = open(&disk, checkpointed).unwrap();
                assert_holds(&codes, 5);
            }
        }
    }

    #[test]
    fn a_torn_end_is_dropped_and_what_is_put_next_is_kept() {
        let disk = FaultyDisk::new(3);
        let (_, ends) = filled(&disk, 5);
        let whole = disk.contents(NAME).unwrap();
        for len in ends[3] + 1..ends[4] {
            let file = disk.open(NAME).unwrap();
            file.set_len(len).unwrap();
            let (codes, truncated) = undamaged(open(&disk, ends[1]));
            assert_eq!((codes.hashes().len(), truncated), (4, len - ends[3]));
            assert!(codes.put(hash(4), &code(4)).unwrap());
            codes.sync().unwrap();
            assert_holds(&open(&disk, ends[1]).unwrap().0, 5);
            file.write_at(&whole, 0).unwrap();
        }
    }

    #[test]
    fn a_missing_or_short_file_is_told_and_begun_anew_by_a_repair_with_what_is_left() {
        for (len, left) in [(Some(3), 4), (None, 0)] {
            let disk = FaultyDisk::new(4);
            let (_, ends) = filled(&disk, 5);
            match len {
                Some(n) => disk.open(NAME).unwrap().set_len(ends[n] + 5).unwrap(),
                None => disk.remove(NAME).unwrap(),
            }
            let (codes, recovery) = open(&disk, ends[4]).unwrap();
            let told = recovery.damage[0].to_string();
            let expected = match len {
                Some(_) => "shorter than its checkpointed length",
                None => "codes.dat is damaged at byte 0: the file is missing",
            };
            assert!(told.contains(expected), "{told}");
            assert_holds(&codes, left);
            assert_eq!(codes.get(&hash(4)).unwrap(), None);
            // Nothing is put behind what is missing, and the next checkpoint forgets nothing.
            assert!(codes.put(hash(9), &code(9)).unwrap_err().is_corruption());
            assert_eq!(codes.sync().unwrap(), ends[4]);
            drop(codes);
            let arc: Arc<dyn Disk> = Arc::new(disk.clone());
            Codes::begin_anew(&arc, SALT, ends[4], "codes.dat.old").unwrap();
            assert_eq!(disk.contents("codes.dat.old").is_some(), len.is_some());
            let (codes, _) = undamaged(open(&disk.crash(), ends[4]));
            assert_holds(&codes, left);
            (left..6).for_each(|n| assert!(codes.put(hash(n), &code(n)).unwrap()));
            assert_holds(&codes, 6);
        }
        let disk = FaultyDisk::new(4);
        filled(&disk, 5);
        disk.remove(NAME).unwrap();
        assert!(undamaged(open(&disk, 0)).0.hashes().is_empty());
    }

    #[test]
    fn opening_changes_nothing_and_a_passing_error_is_no_damage() {
        let disk = FaultyDisk::new(9);
        let (_, ends) = filled(&disk, 3);
        disk.open(NAME).unwrap().set_len(ends[2] - 3).unwrap();
        let operations = disk.operations();
        let arc = || Arc::new(disk.clone());
        for fault in [Fault::FailedRead, Fault::FailedOpen] {
            disk.inject(fault, NAME, 1);
            let error = Codes::open(arc(), SALT, ends[1]).unwrap_err();
            assert!(matches!(error, StoreError::Disk(_)) && !error.is_corruption());
        }
        let (codes, recovery) = Codes::open(arc(), SALT, ends[1]).unwrap();
        assert_holds(&codes, 2);
        assert!(recovery.damage.is_empty() && recovery.truncated_bytes > 0);
        assert_eq!(disk.operations(), operations);
        codes.settle().unwrap();
        assert_eq!(disk.contents(NAME).unwrap().len() as u64, ends[1]);
    }

    #[test]
    fn a_failed_sync_or_a_full_disk_poisons_writing() {
        let disk = FaultyDisk::new(5);
        let (codes, _) = filled(&disk, 3);
        codes.put(hash(3), &code(3)).unwrap();
        disk.inject(Fault::FailedSync, NAME, 1);
        assert!(matches!(codes.sync(), Err(StoreError::Disk(_))));
        assert!(matches!(
            codes.sync(),
            Err(StoreError::Poisoned { part: "codes", .. })
        ));
        assert!(matches!(
            codes.put(hash(9), b""),
            Err(StoreError::Poisoned { .. })
        ));
        assert_eq!(codes.get(&hash(2)).unwrap(), Some(code(2)));
        let (codes, _) = open(&disk, 0).unwrap();
        disk.limit_space(Some(0));
        let error = codes.put(hash(9), &code(9)).unwrap_err();
        assert!(error.to_string().contains("disk full"), "{error}");
        assert!(matches!(
            codes.put(hash(9), b""),
            Err(StoreError::Poisoned { .. })
        ));
    }

    #[test]
    fn a_code_beyond_the_limit_is_refused() {
        let (codes, _) = filled(&FaultyDisk::new(6), 0);
        let error = codes
            .put(hash(0), &vec![0; CODE_BYTES_MAX as usize + 1])
            .unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }));
        assert!(
            codes
                .put(hash(0), &vec![0; CODE_BYTES_MAX as usize])
                .unwrap()
        );
    }

    #[test]
    fn the_format_is_what_it_was() {
        let disk = FaultyDisk::new(7);
        filled(&disk, 6);
        // Data directories in use hold one: another value here is another format number.
        assert_eq!(
            keccak256(disk.contents(NAME).unwrap()),
            b256!("14694536dae244a4f12cfe2f81fb18c1d94bdbe25ad16e4f1d730977980ea2b5")
        );
    }

    proptest! {
        #[test]
        fn random_bytes_in_the_file_never_panic(
            bytes in vec(any::<u8>(), 0..300),
            at in 0u64..600,
            checkpointed in 0usize..7,
        ) {
            let disk = FaultyDisk::new(8);
            let (_, ends) = filled(&disk, 6);
            disk.open(NAME).unwrap().write_at(&bytes, at).unwrap();
            let checkpointed = checkpointed.checked_sub(1).map_or(0, |n| ends[n]);
            if let Ok((codes, _)) = open(&disk, checkpointed) {
                for n in 0..6 {
                    if let Ok(Some(read)) = codes.get(&hash(n)) {
                        prop_assert_eq!(read, code(n));
                    }
                }
            }
        }
    }
}

//! Contract code by hash.
//!
//! One append-only file of records, and in memory where each code is. Codes are few and never
//! change, so nothing is ever removed. Opening reads the frames and hashes of what a checkpoint
//! vouches for, and all of what came later; a code's own bytes are checked whenever they are read.

use crate::{
    StoreError,
    poison::Poison,
    record::{Found, RecordFile, put_record},
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

const NAME: &str = "codes.dat";

// Codes. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     "CambiCod"
// 8       4     format: 1
// 12      4     zeros
// 16      8     xxh3-64, seeded with the salt, of 0 .. 16
// 24            records (see record.rs) of kind 0, whose positions are their offsets
//
// Payload of a record
//
// 0       32    hash
// 32      8     xxh3-64, seeded with the salt, of the hash: it is read without the code
// 40            code
const MAGIC: &[u8; 8] = b"CambiCod";
const FORMAT: u32 = 1;
const HEADER_BYTES: u64 = 24;
const KIND: u8 = 0;
const KEY_BYTES: usize = 40;

/// Far above what any fork allows.
const CODE_BYTES_MAX: u64 = 16 << 20;

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodesRecovery {
    /// How many codes there are.
    pub codes: usize,
    /// Bytes at the end that no sync had acknowledged, dropped.
    pub truncated_bytes: u64,
}

/// All codes: one file of bytes, and in memory where each is.
#[derive(Debug)]
pub struct Codes {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    salt: u64,
    /// Offset of each code's record.
    offsets: RwLock<HashMap<B256, u64>>,
    writer: Mutex<Writer>,
    written: AtomicU64,
    poison: Poison,
}

#[derive(Debug)]
struct Writer {
    end: u64,
    durable_to: u64,
    buffer: Vec<u8>,
}

impl Codes {
    /// Opens the codes, or begins them if `checkpointed_bytes` is 0. What was put after that
    /// length and not synced may be gone: it is put again by replaying the log. Damage to what had
    /// been synced is an error. `salt` as in [`LogOptions::salt`](crate::LogOptions::salt).
    pub fn open(
        disk: Arc<dyn Disk>,
        salt: u64,
        checkpointed_bytes: u64,
    ) -> Result<(Self, CodesRecovery), StoreError> {
        let file = match disk.exists(NAME)? {
            true => disk.open(NAME)?,
            false if checkpointed_bytes > 0 => {
                return Err(corrupt(&*disk, 0, "the file is missing"));
            }
            false => disk.create(NAME)?,
        };
        begin(&*disk, &*file, salt, checkpointed_bytes)?;
        let len = file.len()?;
        let records = RecordFile {
            file: &*file,
            salt,
            base: 0,
            len,
        };
        let mut offsets = HashMap::new();
        let checked = read_checkpointed(&*disk, records, checkpointed_bytes, &mut offsets)?;
        let mut durable_to = checkpointed_bytes;
        let end = read_later(&*disk, records, checked, &mut durable_to, &mut offsets)?;
        if end < len {
            file.set_len(end)?;
        }
        // What a killed process left may still be in the system's cache alone.
        records.rewrite(durable_to, end)?;
        file.sync()?;
        disk.sync_dir("")?;
        let recovery = CodesRecovery {
            codes: offsets.len(),
            truncated_bytes: len - end,
        };
        let writer = Writer {
            end,
            durable_to: end,
            buffer: Vec::new(),
        };
        let codes = Self {
            disk,
            file,
            salt,
            offsets: RwLock::new(offsets),
            writer: Mutex::new(writer),
            written: AtomicU64::new(0),
            poison: Poison::new("codes"),
        };
        Ok((codes, recovery))
    }

    /// Adds `code`, whose hash is `hash`, unless it is there. True if it was added.
    pub fn put(&self, hash: B256, code: &[u8]) -> Result<bool, StoreError> {
        let bytes = code.len() as u64;
        if bytes > CODE_BYTES_MAX {
            return Err(StoreError::TooLarge {
                what: "code",
                bytes,
                max: CODE_BYTES_MAX,
            });
        }
        let writer = &mut *self.writer.lock();
        if self.contains(&hash) {
            return Ok(false);
        }
        self.poison.guard(|| {
            let offset = writer.end;
            let parts: [&[u8]; 3] = [hash.as_slice(), &hash_check(self.salt, &hash), code];
            writer.buffer.clear();
            put_record(
                &mut writer.buffer,
                self.salt,
                KIND,
                offset,
                writer.durable_to,
                &parts,
            );
            self.file.write_at(&writer.buffer, offset)?;
            let bytes = writer.buffer.len() as u64;
            self.written.fetch_add(bytes, Ordering::Relaxed);
            writer.end += writer.buffer.len() as u64;
            self.offsets.write().insert(hash, offset);
            Ok(true)
        })
    }

    /// The code of `hash`.
    pub fn get(&self, hash: &B256) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(offset) = self.offsets.read().get(hash).copied() else {
            return Ok(None);
        };
        let records = RecordFile {
            file: &*self.file,
            salt: self.salt,
            base: 0,
            len: self.file.len()?,
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

    /// Whether there is a code of `hash`.
    pub fn contains(&self, hash: &B256) -> bool {
        self.offsets.read().contains_key(hash)
    }

    /// Bytes written since the codes were opened.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// All hashes, in no order.
    pub fn hashes(&self) -> Vec<B256> {
        self.offsets.read().keys().copied().collect()
    }

    /// Makes all codes put so far durable, and returns the length to keep in the checkpoint.
    pub fn sync(&self) -> Result<u64, StoreError> {
        let writer = &mut *self.writer.lock();
        self.poison.check()?;
        if writer.durable_to < writer.end {
            self.poison.guard(|| Ok(self.file.sync()?))?;
            writer.durable_to = writer.end;
        }
        Ok(writer.end)
    }
}

/// Sees to it that the file has its header, durably: a record in it is proof of that.
fn begin(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    salt: u64,
    checkpointed_bytes: u64,
) -> Result<(), StoreError> {
    let (len, expected) = (file.len()?, header(salt));
    if len < checkpointed_bytes {
        return Err(corrupt(
            disk,
            len,
            "the file is shorter than its checkpointed length",
        ));
    }
    let mut found = [0; HEADER_BYTES as usize];
    if len >= HEADER_BYTES {
        file.read_at(&mut found, 0)?;
    }
    if found == expected {
        return Ok(());
    }
    if len > HEADER_BYTES || checkpointed_bytes > 0 {
        return Err(corrupt(disk, 0, "bad header"));
    }
    file.write_at(&expected, 0)?;
    Ok(file.sync()?)
}

/// Reads the keys of all records below `end`, each of which must be there.
fn read_checkpointed(
    disk: &dyn Disk,
    records: RecordFile<'_>,
    end: u64,
    offsets: &mut HashMap<B256, u64>,
) -> Result<u64, StoreError> {
    let mut offset = HEADER_BYTES;
    while offset < end {
        let mut key = [0; KEY_BYTES];
        let frame = records.frame(offset, &mut key)?;
        match frame.zip(decode_key(records.salt, &key)) {
            Some((frame, hash)) if offset + frame.size() <= end => {
                offsets.insert(hash, offset);
                offset += frame.size();
            }
            _ => return Err(corrupt(disk, offset, "there is no whole record")),
        }
    }
    Ok(offset)
}

/// Reads all records from `offset` on, to the first that is not whole, and raises `durable_to` to
/// what they tell. Returns where they end.
fn read_later(
    disk: &dyn Disk,
    records: RecordFile<'_>,
    mut offset: u64,
    durable_to: &mut u64,
    offsets: &mut HashMap<B256, u64>,
) -> Result<u64, StoreError> {
    while offset < records.len {
        let hash = match records.record(offset)? {
            Found::Record(frame, payload) => {
                decode_key(records.salt, &payload).map(|hash| (hash, frame))
            }
            Found::End | Found::Damage(_) => None,
        };
        let Some((hash, frame)) = hash else {
            if records.witness(offset, offset)?.is_some() {
                return Err(corrupt(
                    disk,
                    offset,
                    "the checksum of a record does not match",
                ));
            }
            return Ok(offset);
        };
        offsets.insert(hash, offset);
        *durable_to = frame.durable_to.max(*durable_to);
        offset += frame.size();
    }
    Ok(offset)
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
    StoreError::corrupt(disk.display_path(NAME), offset, what)
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
        Codes::open(Arc::new(disk.clone()), SALT, checkpointed)
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
            let (codes, recovery) = open(&disk, checkpointed).unwrap();
            assert_eq!(
                recovery,
                CodesRecovery {
                    codes: 20,
                    truncated_bytes: 0
                }
            );
            assert_holds(&codes, 20);
        }
    }

    #[test]
    fn any_flipped_bit_is_detected_when_opening_or_reading() {
        let disk = FaultyDisk::new(2);
        let (_, ends) = filled(&disk, 4);
        for at in 0..ends[2] {
            disk.flip_bit(NAME, at, (at % 8) as u8);
            for checkpointed in [0, ends[3]] {
                let read = |(codes, _): (Codes, _)| {
                    (0..4).try_for_each(|n| codes.get(&hash(n)).map(|code| assert!(code.is_some())))
                };
                let error = open(&disk, checkpointed)
                    .and_then(read)
                    .unwrap_err()
                    .to_string();
                assert!(
                    error.starts_with("codes.dat is damaged at byte"),
                    "byte {at}: {error}"
                );
            }
            disk.flip_bit(NAME, at, (at % 8) as u8);
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
            let (codes, recovery) = open(&disk, ends[1]).unwrap();
            assert_eq!(
                recovery,
                CodesRecovery {
                    codes: 4,
                    truncated_bytes: len - ends[3]
                }
            );
            assert!(codes.put(hash(4), &code(4)).unwrap());
            codes.sync().unwrap();
            assert_holds(&open(&disk, ends[1]).unwrap().0, 5);
            file.write_at(&whole, 0).unwrap();
        }
    }

    #[test]
    fn a_missing_or_short_file_is_an_error_if_a_checkpoint_vouches_for_it() {
        let disk = FaultyDisk::new(4);
        let (_, ends) = filled(&disk, 5);
        disk.open(NAME).unwrap().set_len(ends[3]).unwrap();
        let error = open(&disk, ends[4]).unwrap_err().to_string();
        assert!(
            error.contains("shorter than its checkpointed length"),
            "{error}"
        );
        disk.remove(NAME).unwrap();
        let error = open(&disk, ends[4]).unwrap_err().to_string();
        assert!(
            error.contains("codes.dat is damaged at byte 0: the file is missing"),
            "{error}"
        );
        assert!(open(&disk, 0).is_ok());
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

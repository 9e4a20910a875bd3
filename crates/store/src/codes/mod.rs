//! Contract code by hash.
//!
//! One append-only file of records, and in memory where each code is. Codes are few and never
//! change, so nothing is ever removed. Opening reads the frames and hashes of what a checkpoint
//! vouches for, and all of what came later; a code's own bytes are checked whenever they are read.
//!
//! Where the file is damaged, the codes there can't be read, and all others can. What block records
//! of the log hold can be put again: [`Codes::restore`].

mod format;
mod scan;

pub(crate) use format::NAME;

use crate::{
    StoreError,
    files::{copy_range, open_if_exists, remove_if_exists},
    poison::Poison,
    record::{FRAME_BYTES, Found, RecordFile, put_record},
};
use alloy_primitives::B256;
use cambium_disk::{Disk, DiskFile};
use format::{
    FILLER, FILLER_BYTES_MAX, FILLER_BYTES_MIN, HEADER_BYTES, KEY_BYTES, KIND, corrupt, hash_check,
    header,
};
use parking_lot::{Mutex, RwLock};
use scan::Scan;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// What a repair writes before it takes the place of the file.
const NEW_NAME: &str = "codes.dat.tmp";

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
        let file = open_if_exists(&*disk, name)?;
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
            if header != format::header(salt) && (len > HEADER_BYTES || checkpointed_bytes > 0) {
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
        remove_if_exists(&**disk, NEW_NAME)?;
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
            copy_range(&**old, 0..old.len()?, &*to, 0, |_| ())?;
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

#[cfg(test)]
mod tests;

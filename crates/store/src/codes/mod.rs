//! Contract codes by hash.
//!
//! The codes are in one append-only file of records, with an index of their offsets in memory.
//! There are few codes and they never change, so none is ever removed. Opening reads only frames
//! and hashes up to the checkpointed length, and everything after it. Each code's bytes are
//! verified when they are read.
//!
//! If the file is damaged, only the codes in the damaged places are lost. Those that are still in
//! block records of the log can be added again with [`Codes::restore`].

mod format;
mod scan;

pub(crate) use format::FORMAT;
pub(crate) use format::NAME;

use crate::{
    StoreError,
    files::{open_if_exists, remove_if_exists},
    poison::Poison,
    record::{FRAME_BYTES, Found, KEY_BYTES, RecordFile, encode_key, put_record},
};
use alloy_primitives::B256;
use cambium_disk::{Disk, DiskFile, copy_range};
use format::{FILLER, FILLER_BYTES_MAX, FILLER_BYTES_MIN, HEADER_BYTES, KIND, corrupt, header};
use parking_lot::{Mutex, RwLock};
use scan::Scan;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Name of the new file during a repair.
const NEW_NAME: &str = "codes.dat.tmp";

/// Limit of a code's size in bytes, far above that of any fork.
const CODE_BYTES_MAX: u64 = 16 << 20;

/// Result of opening the codes.
#[derive(Debug, Default)]
pub struct CodesRecovery {
    /// Number of codes found.
    pub codes: usize,
    /// Number of unacknowledged bytes at the end, which [`Codes::settle`] drops.
    pub truncated_bytes: u64,
    /// Errors for acknowledged records that are damaged.
    pub damage: Vec<StoreError>,
}

/// All contract codes of a database.
#[derive(Debug)]
pub struct Codes {
    disk: Arc<dyn Disk>,
    name: &'static str,
    salt: u64,
    /// Offset of each code's record in the file.
    offsets: RwLock<HashMap<B256, u64>>,
    /// `None` if the file does not exist.
    file: RwLock<Option<Arc<dyn DiskFile>>>,
    writer: Mutex<Writer>,
    /// Why the file is incomplete, if it is. Nothing can be appended then.
    lost: Option<&'static str>,
    written: AtomicU64,
    poison: Poison,
}

#[derive(Debug)]
struct Writer {
    end: u64,
    durable_to: u64,
    /// Whether [`Codes::settle`] was called.
    is_settled: bool,
    buffer: Vec<u8>,
}

impl Codes {
    /// Opens the codes without changing the file. The first `checkpointed_bytes` are expected to be
    /// intact. Unsynced codes after them may be missing: replay of the log adds them again. `salt`
    /// is that of [`LogOptions::salt`](crate::LogOptions::salt). Damage is reported in
    /// [`CodesRecovery::damage`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the file can't be opened or read.
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
            let checked = scan.up_to_checkpoint(records, checkpointed_bytes.min(len))?;
            end = scan.after_checkpoint(records, checked)?;
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

    /// Prepares the file for appending: creates it, drops what follows its end, and makes the rest
    /// durable. Must be called once before the first code is added. Leaves an incomplete file as it
    /// is.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a write or sync fails, which poisons the codes, and
    /// [`StoreError::Poisoned`] after that.
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
            // Data of a killed process may exist in the page cache only.
            records.rewrite(writer.durable_to.max(HEADER_BYTES), writer.end)?;
            found.sync()?;
            self.disk.sync_dir("")?;
            writer.durable_to = writer.end;
            writer.is_settled = true;
            Ok(())
        })
    }

    /// Repairs a damaged file: writes a new one with all codes that can be read. Lost codes can be
    /// added again afterwards. The old file, if there is one, is copied to the name `copy`. Returns
    /// the number of codes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if a file can't be read or written.
    pub fn rebuild_from(
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
            // The file must be as long as before, so that it is not reported as too short.
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
            let copied = copy_range(&**old, 0..old.len()?, &*to, 0, |_| ())
                .and_then(|()| to.sync())
                .and_then(|()| disk.sync_dir(""));
            if copied.is_err() {
                // The old file is still there.
                let _ = disk.remove(copy);
            }
            copied?;
        }
        disk.rename(NEW_NAME, NAME)?;
        disk.sync_dir("")?;
        Ok(codes)
    }

    /// Appends a record, and returns its offset.
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

    /// Adds `code` with the hash `hash`, unless it exists. Returns whether it was added.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] if the code exceeds 16 MiB, [`StoreError::Corrupt`] if the file is
    /// incomplete, [`StoreError::Disk`] if the write fails, which poisons the codes, and
    /// [`StoreError::Poisoned`] after that.
    ///
    /// # Panics
    ///
    /// If the codes are not settled.
    pub fn put(&self, hash: B256, code: &[u8]) -> Result<bool, StoreError> {
        self.append(hash, code, false)
    }

    /// Checks that codes can be added.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the file is missing or shorter than checkpointed.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.lost {
            Some(what) => Err(corrupt(&*self.disk, self.writer.lock().end, what)),
            None => Ok(()),
        }
    }

    /// Returns whether the code with this hash exists and is durable.
    pub fn is_durable(&self, hash: &B256) -> bool {
        let durable_to = self.writer.lock().durable_to;
        self.offsets
            .read()
            .get(hash)
            .is_some_and(|at| *at < durable_to)
    }

    /// Adds `code` even if there is one with this hash, because that one can't be read.
    ///
    /// # Errors
    ///
    /// As [`Codes::put`].
    ///
    /// # Panics
    ///
    /// If the codes are not settled.
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
        assert!(
            writer.is_settled,
            "codes must be settled before any is added"
        );
        self.poison.guard(|| {
            let key = encode_key(self.salt, &hash);
            let offset = self.append_record(writer, KIND, &[&key, code])?;
            self.offsets.write().insert(hash, offset);
            Ok(true)
        })
    }

    /// Reads the code with this hash. Returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the code is damaged, and [`StoreError::Disk`] if it can't be
    /// read.
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

    /// Returns the memory used by the index of offsets, in bytes.
    pub fn memory_bytes(&self) -> usize {
        // A hash table is at most 7/8 full, and has one byte of metadata for each bucket.
        self.offsets.read().capacity() * 8 / 7 * (size_of::<(B256, u64)>() + 1)
    }

    /// Returns whether there is a code with this hash.
    pub fn contains(&self, hash: &B256) -> bool {
        self.offsets.read().contains_key(hash)
    }

    /// Returns the bytes written since the codes were opened.
    pub fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the number of codes.
    pub fn count(&self) -> usize {
        self.offsets.read().len()
    }

    /// Returns all hashes in the order of the codes in the file.
    pub fn hashes(&self) -> Vec<B256> {
        let offsets = self.offsets.read();
        let mut found: Vec<_> = offsets.iter().map(|(hash, at)| (*at, *hash)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, hash)| hash).collect()
    }

    /// Makes all codes added so far durable. Returns the length to store in the checkpoint.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the sync fails, which poisons the codes, and
    /// [`StoreError::Poisoned`] after that.
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

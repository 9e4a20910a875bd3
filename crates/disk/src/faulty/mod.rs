//! A seeded disk in memory that loses, tears and reorders unsynced changes, finishes queued reads
//! late and in any order, and injects faults.
//!
//! ```text
//!  create, rename, remove --> live names    write_at, punch_hole, set_len --> live bytes
//!                     \-> pending changes                           \-> pending changes
//!  sync_dir: pending -> durable names       sync: pending -> durable bytes
//!
//!  crash: durable + a random part of what is pending, in a random order  --> a new disk
//! ```
//!
//! All decisions follow from the seed, so a failing run can be repeated, if threads access the disk in the same order.

mod chance;
mod content;
mod faults;
mod image;
mod names;
mod state;
mod file;
mod queue;

pub use faults::Fault;

use crate::{
    Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, LockError, ReadQueue,
    ReadRequest, disk::random_salt, stats::Counters,
};
use chance::{Fate, Random};
use faults::Faults;
use file::FaultyFile;
use image::FileImage;
use names::Names;
use queue::FaultyQueue;
use state::{SharedState, State};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, MutexGuard},
};

/// A disk in memory with injected faults. Clones share the disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    state: SharedState,
    counters: Arc<Counters>,
}

impl FaultyDisk {
    /// Creates an empty disk. All its random decisions follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::from_state(State {
            random: Random(seed),
            names: Names::default(),
            files: BTreeMap::new(),
            locks: BTreeSet::new(),
            faults: Faults::default(),
            counted_salts: None,
            operations: 0,
            calls: 0,
            is_dead: false,
        })
    }

    fn from_state(state: State) -> Self {
        Self {
            state: SharedState::new(state),
            counters: Arc::default(),
        }
    }

    /// Simulates a power loss. Returns the disk after the restart: each unsynced change is kept,
    /// lost or torn independently, and pending faults and locks are gone. This disk and its open
    /// files fail from now on.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut state = self.state();
        state.is_dead = true;
        let mut random = Random(state.random.next());
        let fate = Fate::draw(&mut random);
        let names = state.names.crash(&fate, &mut random);
        let kept: BTreeSet<u64> = names.files().collect();
        let files = state
            .files
            .iter()
            .filter(|(inode, _)| kept.contains(inode))
            .map(|(&inode, image)| (inode, image.crash(&fate, &mut random)))
            .collect();
        Self::from_state(State {
            random,
            names,
            files,
            locks: BTreeSet::new(),
            faults: Faults::default(),
            counted_salts: state.counted_salts,
            operations: 0,
            calls: 0,
            is_dead: false,
        })
    }

    /// Loses power during the operation after `operations` more writes, syncs and changes of names.
    /// It and all later ones fail. [`FaultyDisk::crash`] then returns the disk after the restart.
    pub fn lose_power_after(&self, operations: u64) {
        let mut state = self.state();
        state.faults.power_lost_at = Some(state.operations + operations);
    }

    /// Returns whether power is lost, so that every operation fails.
    pub fn is_off(&self) -> bool {
        self.state().power().is_err()
    }

    /// Returns the number of writes, syncs and changes of names so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns the number of operations of any kind so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Makes the operation after `calls` more of any kind fail. A failing write writes a part of
    /// its bytes, and a failing sync may lose unsynced writes permanently.
    pub fn fail_call_after(&self, calls: u64) {
        let mut state = self.state();
        state.faults.failing_call = Some(state.calls + calls);
    }

    /// Makes the operation after `calls` more of any kind panic before it has any effect.
    pub fn panic_call_after(&self, calls: u64) {
        let mut state = self.state();
        state.faults.panicking_call = Some(state.calls + calls);
    }

    /// Like [`FaultyDisk::panic_call_after`], but counts only writes, syncs and changes of names,
    /// so that reads never panic.
    pub fn panic_operation_after(&self, operations: u64) {
        let mut state = self.state();
        state.faults.panicking_operation = Some(state.operations + operations);
    }

    /// Makes the disk full after `calls` more operations of any kind: no file can grow.
    pub fn fill_after(&self, calls: u64) {
        let mut state = self.state();
        state.faults.full_at_call = Some(state.calls + calls);
    }

    /// Limits the total size of files to `bytes`, or removes the limit. Writes beyond it fail as on
    /// a full disk, after writing as much as fits.
    pub fn limit_space(&self, bytes: Option<u64>) {
        let faults = &mut self.state().faults;
        (faults.space_bytes, faults.full_at_call) = (bytes, None);
    }

    /// Injects `fault` into the next `count` operations on files, and syncs of directories, whose
    /// name begins with `prefix`. `u32::MAX` affects all operations from now on, and 0 none.
    pub fn inject(&self, fault: Fault, prefix: &str, count: u32) {
        self.state().faults.inject(fault, prefix, count);
    }

    /// Removes all pending faults, including a full disk.
    pub fn clear_faults(&self) {
        self.state().faults = Faults::default();
    }

    /// Returns the faults that have occurred since the last call, each with its file or directory.
    pub fn take_hits(&self) -> Vec<(Fault, String)> {
        std::mem::take(&mut self.state().faults.hits)
    }

    /// Returns another disk with the same files, all of them durable, without faults and locks.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let mut state = self.state();
        let random = Random(state.random.next());
        let files = state.files.iter();
        let files = files.map(|(&inode, image)| (inode, image.duplicate()));
        Self::from_state(State {
            random,
            files: files.collect(),
            names: state.names.duplicate(),
            locks: BTreeSet::new(),
            faults: Faults::default(),
            counted_salts: state.counted_salts,
            operations: 0,
            calls: 0,
            is_dead: false,
        })
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset` permanently.
    ///
    /// # Panics
    ///
    /// Panics if there is no such file or byte.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) {
        let mut state = self.state();
        let inode = state.names.file(path).expect("a file to flip a bit of");
        state
            .files
            .get_mut(&inode)
            .expect("its image")
            .flip(offset as usize, 1 << bit);
    }

    /// Makes the blocks of a range of a file unreadable, as on a worn-out device, until they are
    /// overwritten.
    ///
    /// # Panics
    ///
    /// Panics if there is no such file.
    pub fn spoil(&self, path: &str, offset: u64, len: usize) {
        let mut state = self.state();
        let inode = state.names.file(path).expect("a file to spoil");
        let image = state.files.get_mut(&inode).expect("its image");
        image.spoil(offset, len);
    }

    /// Returns the current content of the file `path`, or `None` if there is no such file.
    pub fn contents(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.names.file(path)?;
        Some(state.files[&inode].live().to_vec())
    }

    /// Returns the names of all files.
    pub fn files(&self) -> Vec<String> {
        self.state().names.file_names()
    }

    /// Makes [`Disk::new_salt`] return 1, 2, 3 and so on, so that two disks on which the same was done have
    /// the same files to the byte.
    pub fn count_salts(&self) {
        self.state().counted_salts = Some(0);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn file(&self, inode: u64, path: &str, access: Access) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile {
            state: self.state.clone(),
            counters: Arc::clone(&self.counters),
            inode,
            access,
            path: path.to_owned(),
        })
    }
}

impl Disk for FaultyDisk {
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        let inode = self
            .state()
            .create(path)
            .map_err(|e| DiskError::new("create", path, e))?;
        Ok(self.file(inode, path, access))
    }

    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        let inode = self
            .state()
            .open(path)
            .map_err(|e| DiskError::new("open", path, e))?;
        Ok(self.file(inode, path, access))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        let mut state = self.state();
        let called = state.plain_call();
        called.map_err(|e| DiskError::new("look for", path, e))?;
        Ok(state.names.exists(path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let called = state.plain_call().and_then(|()| state.step());
        let renamed = called.and_then(|()| state.names.rename(from, to));
        renamed.map_err(|e| DiskError::new("rename", from, e))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let called = state.plain_call().and_then(|()| state.step());
        let removed = called.and_then(|()| state.names.remove(path));
        removed.map_err(|e| DiskError::new("remove", path, e))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let mut state = self.state();
        let names = state.plain_call().and_then(|()| state.names.list(dir));
        names.map_err(|e| DiskError::new("list", dir, e))
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let called = state.plain_call().and_then(|()| state.step());
        called.map_err(|e| DiskError::new("create directory", dir, e))?;
        state.names.create_dir(dir);
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.counters.add_sync();
        self.state()
            .sync_dir(dir)
            .map_err(|e| DiskError::new("sync directory", dir, e))
    }

    fn lock(&self, path: &str) -> Result<DiskLock, LockError> {
        let mut state = self.state();
        let called = state.plain_call();
        called.map_err(|e| DiskError::new("lock", path, e))?;
        if !state.names.exists(path) {
            let made = state.names.create(path);
            let inode = made.map_err(|e| DiskError::new("open", path, e))?;
            state.files.insert(inode, FileImage::default());
        }
        if !state.locks.insert(path.to_owned()) {
            let pid = Some(std::process::id());
            return Err(LockError::Held {
                path: path.to_owned(),
                pid,
            });
        }
        Ok(DiskLock::new(FaultyLock {
            disk: self.clone(),
            path: path.to_owned(),
        }))
    }

    fn new_salt(&self) -> u64 {
        match &mut self.state().counted_salts {
            Some(salt) => {
                *salt += 1;
                *salt
            }
            None => random_salt(),
        }
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let mut state = self.state();
        let called = state.plain_call();
        called.map_err(|e| DiskError::new("ask for free space of", "", e))?;
        Ok(state
            .faults
            .space_bytes
            .map_or(1 << 40, |s| s.saturating_sub(state.used_bytes())))
    }

    fn display_path(&self, path: &str) -> String {
        path.to_owned()
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.counters.add_batch();
        for request in requests {
            request.outcome = request.file.read_at(request.buf, request.offset);
        }
    }

    /// The queue finishes reads in a random order, and after a random number of polls. `depth` is
    /// ignored.
    fn read_queue(&self, _: usize) -> Box<dyn ReadQueue> {
        Box::new(FaultyQueue::new(Random(self.state().random.next())))
    }

    fn stats(&self) -> DiskStats {
        self.counters.snapshot()
    }

    fn describe(&self) -> DiskDescription {
        DiskDescription {
            batch_reads: "memory",
            no_uring_because: None,
            is_direct: false,
            not_direct_because: None,
        }
    }
}

#[derive(Debug)]
struct FaultyLock {
    disk: FaultyDisk,
    path: String,
}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.path);
    }
}

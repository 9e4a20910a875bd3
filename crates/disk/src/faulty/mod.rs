//! A seeded disk in memory that loses, tears and reorders whatever was not synced, and fails on
//! demand.
//!
//! ```text
//!  create, rename, remove --> live names    write_at, punch_hole, set_len --> live bytes
//!                     \-> pending changes                           \-> pending changes
//!  sync_dir: pending -> durable names       sync: pending -> durable bytes
//!
//!  crash: durable + a random part of what is pending, in a random order  --> a new disk
//! ```
//!
//! All is decided by the seed, so a failing run can be repeated. One disk is one machine: threads
//! racing on it repeat only as far as their order does.

mod faults;
mod file;
mod image;
mod names;

pub use faults::Fault;

use crate::{
    Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, LockError,
    ReadRequest, stats::Counters,
};
use faults::Faults;
use file::FaultyFile;
use image::FileImage;
use names::Names;
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A disk in memory with injected faults. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct State {
    random: Random,
    names: Names,
    files: BTreeMap<u64, FileImage>,
    locks: BTreeSet<String>,
    faults: Faults,
    /// Operations that changed or synced something.
    operations: u64,
    /// All operations: reads, openings and questions, too.
    calls: u64,
    /// Power was lost.
    is_dead: bool,
}

impl FaultyDisk {
    /// An empty disk whose accidents are decided by `seed`.
    pub fn new(seed: u64) -> Self {
        Self::from_state(State {
            random: Random(seed),
            names: Names::default(),
            files: BTreeMap::new(),
            locks: BTreeSet::new(),
            faults: Faults::default(),
            operations: 0,
            calls: 0,
            is_dead: false,
        })
    }

    fn from_state(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            counters: Arc::default(),
        }
    }

    /// Loses power, and gives the disk as the next start finds it. What was not synced is kept,
    /// lost or torn, each piece by itself. This disk and its open files fail from now on; faults
    /// asked for and locks are gone.
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
            operations: 0,
            calls: 0,
            is_dead: false,
        })
    }

    /// Loses power during the operation that comes after `operations` more writes, syncs and
    /// changes of names: it and all later ones fail. [`FaultyDisk::crash`] then gives the disk as
    /// the next start finds it.
    pub fn lose_power_after(&self, operations: u64) {
        let mut state = self.state();
        state.faults.power_lost_at = Some(state.operations + operations);
    }

    /// Whether power is lost: every operation fails.
    pub fn is_off(&self) -> bool {
        self.state().power().is_err()
    }

    /// How many writes, syncs and changes of names there were.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// How many operations there were of any kind: reads, openings and questions included.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Makes the operation fail that comes after `calls` more of any kind, and no other. A write
    /// that fails has written a part; a sync that fails may lose unsynced writes for good.
    pub fn fail_call_after(&self, calls: u64) {
        let mut state = self.state();
        state.faults.failing_call = Some(state.calls + calls);
    }

    /// Makes the operation panic that comes after `calls` more of any kind, before it has any
    /// effect: whoever calls the disk is stopped in the middle of what it does.
    pub fn panic_call_after(&self, calls: u64) {
        let mut state = self.state();
        state.faults.panicking_call = Some(state.calls + calls);
    }

    /// As [`FaultyDisk::panic_call_after`], counted in writes, syncs and changes of names: whoever
    /// only reads is never stopped.
    pub fn panic_operation_after(&self, operations: u64) {
        let mut state = self.state();
        state.faults.panicking_operation = Some(state.operations + operations);
    }

    /// Lets no file grow any more after `calls` more operations of any kind: the disk is full.
    pub fn fill_after(&self, calls: u64) {
        let mut state = self.state();
        state.faults.full_at_call = Some(state.calls + calls);
    }

    /// Lets files grow to `bytes` in all: what goes beyond fails as on a full disk, after as much
    /// as fits was written. `None` for no limit.
    pub fn limit_space(&self, bytes: Option<u64>) {
        let faults = &mut self.state().faults;
        (faults.space_bytes, faults.full_at_call) = (bytes, None);
    }

    /// Makes the next `count` operations go wrong in the way of `fault` on files (and, of syncs,
    /// directories) whose name begins with `prefix`. `u32::MAX` for all from now on, 0 for none.
    pub fn inject(&self, fault: Fault, prefix: &str, count: u32) {
        self.state().faults.inject(fault, prefix, count);
    }

    /// Takes back all faults that were asked for and have not come yet, a full disk included.
    pub fn clear_faults(&self) {
        self.state().faults = Faults::default();
    }

    /// The faults that have come, each with the file or directory that it hit, since the last time
    /// this was asked.
    pub fn take_hits(&self) -> Vec<(Fault, String)> {
        std::mem::take(&mut self.state().faults.hits)
    }

    /// Another disk with the same files, all of them durable. Faults and locks stay here.
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
            operations: 0,
            calls: 0,
            is_dead: false,
        })
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, for good. Panics if there is no such file
    /// or byte: that is a mistake of the test.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) {
        let mut state = self.state();
        let inode = state.names.file(path).expect("a file to flip a bit of");
        state
            .files
            .get_mut(&inode)
            .expect("its image")
            .flip(offset as usize, 1 << bit);
    }

    /// Makes the blocks that a range of a file touches unreadable, as on a worn-out device, until
    /// they are written again. Panics if there is no such file: that is a mistake of the test.
    pub fn spoil(&self, path: &str, offset: u64, len: usize) {
        let mut state = self.state();
        let inode = state.names.file(path).expect("a file to spoil");
        let image = state.files.get_mut(&inode).expect("its image");
        image.spoil(offset, len);
    }

    /// The bytes of the file `path` as they are read now. `None` if there is no such file.
    pub fn contents(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.names.file(path)?;
        Some(state.files[&inode].live().to_vec())
    }

    /// All files, by name.
    pub fn files(&self) -> Vec<String> {
        self.state().names.file_names()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, inode: u64, path: &str, access: Access) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile {
            disk: self.clone(),
            inode,
            access,
            path: path.to_owned(),
        })
    }
}

impl State {
    fn power(&self) -> io::Result<()> {
        if self.is_dead {
            Err(io::Error::other("power lost"))
        } else {
            Ok(())
        }
    }

    /// Counts an operation of any kind. True if it is to fail.
    fn call(&mut self) -> io::Result<bool> {
        self.power()?;
        let call = self.calls;
        self.calls += 1;
        let panics = self.faults.panicking_call.take_if(|at| *at == call);
        assert!(panics.is_none(), "a panic that was asked for");
        if self.faults.full_at_call.is_some_and(|at| call >= at) {
            self.faults.full_at_call = None;
            self.faults.space_bytes = Some(self.used_bytes());
        }
        Ok(self.faults.failing_call.take_if(|at| *at == call).is_some())
    }

    /// As [`Self::call`], of an operation that fails without any effect.
    fn plain_call(&mut self) -> io::Result<()> {
        match self.call()? {
            true => Err(Errno::IO.into()),
            false => Ok(()),
        }
    }

    /// Counts an operation that changes or syncs something. `Err` if it is the one during which
    /// power is lost, or a later one.
    fn step(&mut self) -> io::Result<()> {
        self.power()?;
        let operation = self.operations;
        let panics = self
            .faults
            .panicking_operation
            .take_if(|at| *at == operation);
        assert!(panics.is_none(), "a panic that was asked for");
        self.is_dead = self
            .faults
            .power_lost_at
            .is_some_and(|at| self.operations >= at);
        self.operations += 1;
        self.power()
    }

    fn used_bytes(&self) -> u64 {
        self.names
            .files()
            .map(|inode| self.files[&inode].used_bytes())
            .sum()
    }

    fn open(&mut self, path: &str) -> io::Result<u64> {
        self.plain_call()?;
        let inode = self.names.file(path).ok_or(io::ErrorKind::NotFound)?;
        match self.faults.hit(Fault::FailedOpen, path) {
            true => Err(Errno::MFILE.into()),
            false => Ok(inode),
        }
    }

    fn create(&mut self, path: &str) -> io::Result<u64> {
        self.plain_call()?;
        self.step()?;
        let inode = self.names.create(path)?;
        self.files.insert(inode, FileImage::default());
        Ok(inode)
    }

    fn read(&mut self, path: &str, inode: u64, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.plain_call()?;
        if self.faults.hit(Fault::FailedRead, path) {
            return Err(Errno::IO.into());
        }
        if !self.files[&inode].is_readable(offset, buf.len()) {
            return Err(Errno::IO.into());
        }
        let live = self.files[&inode].live();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = start
            .checked_add(buf.len())
            .and_then(|end| live.get(start..end));
        buf.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&mut self, inode: u64) -> io::Result<u64> {
        self.plain_call()?;
        Ok(self.files[&inode].live().len() as u64)
    }

    fn write(
        &mut self,
        path: &str,
        inode: u64,
        access: Access,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let fails = self.call()? || self.faults.hit(Fault::FailedWrite, path);
        let power = self.step();
        let used = self.used_bytes();
        let (is_lost, is_misdirected) = (
            self.faults.hit(Fault::LostWrite, path),
            self.faults.hit(Fault::MisdirectedWrite, path),
        );
        let image = image_of(&mut self.files, inode);
        if !image.is_writable(offset, bytes.len()) {
            return Err(Errno::IO.into());
        }
        let extension = (offset + bytes.len() as u64).saturating_sub(image.live().len() as u64);
        let filled = image.filled_bytes(bytes.len(), offset);
        let growth = extension + filled;
        let room = self
            .faults
            .space_bytes
            .map_or(u64::MAX, |space| space.saturating_sub(used));
        if growth > room {
            let fits = match filled {
                0 => (bytes.len() as u64).saturating_sub(growth - room),
                _ => 0,
            };
            image.write(&bytes[..fits as usize], offset);
            return Err(io::ErrorKind::StorageFull.into());
        }
        if fails {
            let written = self.random.below(bytes.len() as u64 + 1);
            image.write(&bytes[..written as usize], offset);
            return Err(Errno::IO.into());
        }
        if is_lost || is_misdirected {
            if is_misdirected {
                image.misdirect(bytes, offset, &mut self.random);
            }
            // What went through the system's cache is read from there until it starts again.
            image.lose(bytes, offset, access == Access::Cached);
            return power;
        }
        image.write(bytes, offset);
        power
    }

    fn punch_hole(&mut self, path: &str, inode: u64, offset: u64, len: u64) -> io::Result<()> {
        let fails = self.call()? || self.faults.hit(Fault::FailedWrite, path);
        let power = self.step();
        if fails {
            return Err(Errno::IO.into());
        }
        image_of(&mut self.files, inode).punch_hole(offset, len);
        power
    }

    fn set_len(&mut self, inode: u64, len: u64) -> io::Result<()> {
        self.plain_call()?;
        let power = self.step();
        let used = self.used_bytes();
        let image = image_of(&mut self.files, inode);
        let growth = len.saturating_sub(image.live().len() as u64);
        if self
            .faults
            .space_bytes
            .is_some_and(|space| growth > 0 && used + growth > space)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        image.set_len(len as usize);
        power
    }

    fn sync(&mut self, path: &str, inode: u64) -> io::Result<()> {
        let fails = self.call()?;
        self.step()?;
        let image = image_of(&mut self.files, inode);
        if fails || self.faults.hit(Fault::FailedSync, path) {
            image.fail_sync(&mut self.random);
            return Err(Errno::IO.into());
        }
        image.sync();
        Ok(())
    }

    fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        let fails = self.call()?;
        self.step()?;
        if fails || self.faults.hit(Fault::FailedSync, dir) {
            return Err(Errno::IO.into());
        }
        self.names.sync(dir)
    }
}

fn image_of(files: &mut BTreeMap<u64, FileImage>, inode: u64) -> &mut FileImage {
    files.get_mut(&inode).expect("images outlive their handles")
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

/// How hard one crash hits.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    AllKept,
    AllLost,
    Mixed,
}

impl Fate {
    fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::AllKept,
            1 => Self::AllLost,
            _ => Self::Mixed,
        }
    }

    /// Whether one pending change of a name survives.
    fn keeps(&self, random: &mut Random) -> bool {
        match self {
            Self::AllKept => true,
            Self::AllLost => false,
            Self::Mixed => random.below(2) == 0,
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to choose accidents.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

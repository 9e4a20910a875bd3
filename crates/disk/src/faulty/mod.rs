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

mod file;
mod image;
mod names;

use crate::{
    Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, LockError,
    ReadRequest, stats::Counters,
};
use file::FaultyFile;
use image::FileImage;
use names::Names;
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
    /// Power was lost.
    is_dead: bool,
}

#[derive(Debug, Default)]
struct Faults {
    space_bytes: Option<u64>,
    unreadable: BTreeSet<String>,
    failing_syncs: BTreeMap<String, u32>,
    failing_writes: BTreeMap<String, u32>,
    power_lost_at: Option<u64>,
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

    /// Lets files grow to `bytes` in all: what goes beyond fails as on a full disk, after as much
    /// as fits was written. `None` for no limit.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.state().faults.space_bytes = bytes;
    }

    /// Makes the next `count` syncs fail of files and directories whose name begins with
    /// `prefix`. Each failing sync may lose unsynced writes for good.
    pub fn fail_syncs(&self, prefix: &str, count: u32) {
        self.state()
            .faults
            .failing_syncs
            .insert(prefix.to_owned(), count);
    }

    /// Makes the next `count` writes fail of files whose name begins with `prefix`, after a part
    /// of the bytes was written.
    pub fn fail_writes(&self, prefix: &str, count: u32) {
        self.state()
            .faults
            .failing_writes
            .insert(prefix.to_owned(), count);
    }

    /// Makes every read of the file `path` fail, or work again.
    pub fn fail_reads(&self, path: &str, fail: bool) {
        let unreadable = &mut self.state().faults.unreadable;
        if fail {
            unreadable.insert(path.to_owned());
        } else {
            unreadable.remove(path);
        }
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

    /// Counts an operation. `Err` if it is the one during which power is lost, or a later one.
    fn step(&mut self) -> io::Result<()> {
        self.power()?;
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

    fn lookup(&self, path: &str) -> io::Result<u64> {
        self.power()?;
        self.names
            .file(path)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&mut self, path: &str) -> io::Result<u64> {
        self.step()?;
        let inode = self.names.create(path)?;
        self.files.insert(inode, FileImage::default());
        Ok(inode)
    }

    fn read(&self, path: &str, inode: u64, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.power()?;
        if self.faults.unreadable.contains(path) {
            return Err(rustix::io::Errno::IO.into());
        }
        let live = self.files[&inode].live();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = start
            .checked_add(buf.len())
            .and_then(|end| live.get(start..end));
        buf.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&mut self, path: &str, inode: u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.power()?;
        let power = self.step();
        let used = self.used_bytes();
        let image = self
            .files
            .get_mut(&inode)
            .expect("images outlive their handles");
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
        if take_one(&mut self.faults.failing_writes, path) {
            let written = self.random.below(bytes.len() as u64 + 1);
            image.write(&bytes[..written as usize], offset);
            return Err(rustix::io::Errno::IO.into());
        }
        image.write(bytes, offset);
        power
    }

    fn punch_hole(&mut self, path: &str, inode: u64, offset: u64, len: u64) -> io::Result<()> {
        self.power()?;
        let power = self.step();
        let image = self
            .files
            .get_mut(&inode)
            .expect("images outlive their handles");
        if take_one(&mut self.faults.failing_writes, path) {
            return Err(rustix::io::Errno::IO.into());
        }
        image.punch_hole(offset, len);
        power
    }

    fn set_len(&mut self, inode: u64, len: u64) -> io::Result<()> {
        self.power()?;
        let power = self.step();
        let used = self.used_bytes();
        let image = self
            .files
            .get_mut(&inode)
            .expect("images outlive their handles");
        let growth = len.saturating_sub(image.live().len() as u64);
        if self
            .faults
            .space_bytes
            .is_some_and(|space| used + growth > space)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        image.set_len(len as usize);
        power
    }

    fn sync(&mut self, path: &str, inode: u64) -> io::Result<()> {
        self.step()?;
        let image = self
            .files
            .get_mut(&inode)
            .expect("images outlive their handles");
        if take_one(&mut self.faults.failing_syncs, path) {
            image.fail_sync(&mut self.random);
            return Err(rustix::io::Errno::IO.into());
        }
        image.sync();
        Ok(())
    }

    fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.step()?;
        if take_one(&mut self.faults.failing_syncs, dir) {
            return Err(rustix::io::Errno::IO.into());
        }
        self.names.sync(dir)
    }
}

/// Uses up one of the failures that wait for a name like `path`.
fn take_one(failures: &mut BTreeMap<String, u32>, path: &str) -> bool {
    let found = failures
        .iter_mut()
        .find(|(prefix, left)| **left > 0 && path.starts_with(*prefix));
    found.map(|(_, left)| *left -= 1).is_some()
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
            .lookup(path)
            .map_err(|e| DiskError::new("open", path, e))?;
        Ok(self.file(inode, path, access))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        let state = self.state();
        state
            .power()
            .map_err(|e| DiskError::new("look for", path, e))?;
        Ok(state.names.exists(path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let renamed = state.step().and_then(|()| state.names.rename(from, to));
        renamed.map_err(|e| DiskError::new("rename", from, e))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let removed = state.step().and_then(|()| state.names.remove(path));
        removed.map_err(|e| DiskError::new("remove", path, e))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let state = self.state();
        let names = state.power().and_then(|()| state.names.list(dir));
        names.map_err(|e| DiskError::new("list", dir, e))
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        state
            .step()
            .map_err(|e| DiskError::new("create directory", dir, e))?;
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
        state.power().map_err(|e| DiskError::new("lock", path, e))?;
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
        let state = self.state();
        state
            .power()
            .map_err(|e| DiskError::new("ask for free space of", "", e))?;
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

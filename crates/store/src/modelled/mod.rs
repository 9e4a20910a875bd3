//! Support for model tests of threads: a disk on which every operation may switch threads, and
//! random schedules.

pub(crate) mod sync;

use cambium_disk::{
    Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, FaultyDisk, LockError,
    ReadRequest,
};
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    thread::yield_now,
};
use std::sync::Arc;
use sync::in_model;

/// Stack size of a model's threads in bytes. Tests are not optimised, and need more.
const STACK_BYTES: usize = 512 << 10;
/// Number of context switches that the second scheduler chooses.
const DEPTH: usize = 3;

/// Runs a model under many schedules. The first half picks a thread at random for each step. The
/// second has few context switches, at places chosen in advance, which finds bugs that need a
/// thread to stall for long.
pub(crate) fn run(model: impl Fn() + Send + Sync + 'static) {
    let orders = if cambium_seeds::is_long() {
        100_000
    } else {
        1000
    };
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    let model = Arc::new(model);
    let again = model.clone();
    let random = RandomScheduler::new_from_seed(1, orders);
    Runner::new(random, config.clone()).run(move || in_model(|| model()));
    let few_changes = PctScheduler::new_from_seed(2, DEPTH, orders);
    Runner::new(few_changes, config).run(move || in_model(|| again()));
}

/// A disk whose operations let other threads run.
#[derive(Debug)]
pub(crate) struct YieldingDisk(pub(crate) FaultyDisk);

#[derive(Debug)]
struct YieldingFile(Arc<dyn DiskFile>);

impl Disk for YieldingDisk {
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        yield_now();
        let file = self.0.create_with(path, access)?;
        Ok(Arc::new(YieldingFile(file)))
    }

    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        yield_now();
        let file = self.0.open_with(path, access)?;
        Ok(Arc::new(YieldingFile(file)))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        yield_now();
        self.0.exists(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        yield_now();
        self.0.rename(from, to)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        yield_now();
        self.0.remove(path)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        yield_now();
        self.0.list(dir)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        yield_now();
        self.0.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        yield_now();
        self.0.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<DiskLock, LockError> {
        self.0.lock(path)
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.0.free_bytes()
    }

    fn display_path(&self, path: &str) -> String {
        self.0.display_path(path)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.outcome = request.file.read_at(request.buf, request.offset);
        }
    }

    fn stats(&self) -> DiskStats {
        self.0.stats()
    }

    fn describe(&self) -> DiskDescription {
        self.0.describe()
    }
}

impl DiskFile for YieldingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        yield_now();
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        yield_now();
        self.0.write_at(bytes, offset)?;
        yield_now();
        Ok(())
    }

    fn names(&self) -> Result<u64, DiskError> {
        yield_now();
        self.0.names()
    }

    fn len(&self) -> Result<u64, DiskError> {
        yield_now();
        self.0.len()
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        yield_now();
        self.0.set_len(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        yield_now();
        self.0.punch_hole(offset, len)
    }

    fn sync(&self) -> Result<(), DiskError> {
        yield_now();
        self.0.sync()
    }
}

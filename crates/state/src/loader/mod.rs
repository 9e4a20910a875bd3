//! Making a database: the state of its first block, of any size, straight into pages.
//!
//! ```text
//!  accounts, slots     in any order                                   Loader
//!    -> 256 buckets    by first byte of the path, spilled when large  entries.rs
//!    -> sorted         bucket by bucket, on all cores                 sort.rs
//!    -> pages, root    a part of a shard at a time                    build.rs
//! ```
//!
//! Memory stays within [`Options::memory_bytes`], whatever the number of accounts and of an
//! account's slots. What does not fit is spilled to the database's own disk: about 45 bytes an
//! account and a slot, twice as much for those of an account that alone exceeds the memory.

mod build;
mod entries;
mod leftovers;
mod loaded;
mod sort;

pub(crate) use entries::{Piece, Spill, remove_spilled};
pub(crate) use leftovers::refuse_lost_checkpoints;
pub use loaded::Loaded;

use crate::{
    assemble,
    counters::Counters,
    db::Db,
    error::StateError,
    index::{IndexWriter, PartCache},
    options::Options,
    pages::Pages,
};
use alloy_primitives::{B256, U256, keccak256};
use build::ShardBuilder;
use cambium_disk::Disk;
use cambium_primitives::{Account, Path};
use cambium_store::{Codes, DataDirLock, Manifest, Segments, StoreError, lock_data_dir};
use cambium_trie::{PartialTrie, SHARDS, crown};
use entries::Entries;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

/// What a leaf of a trie under construction takes, branches above it included.
const TRIE_LEAF_BYTES: usize = 192;
/// More memory than this, in bytes, is needed for each thread beyond the second.
const THREAD_BYTES_MIN: u64 = 64 << 20;

/// How far the building of a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Accounts and slots that are in the trie.
    pub done: u64,
    /// Accounts and slots that there are.
    pub of: u64,
}

/// How memory is shared out.
struct Shares {
    /// A bucket is spilled when it has so many bytes.
    bucket_bytes: usize,
    threads: usize,
    /// For a thread's sorting.
    sort_bytes: usize,
    /// Leaves in a thread's trie.
    leaves: usize,
}

impl Shares {
    fn of(memory_bytes: u64) -> Self {
        let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min((memory_bytes / THREAD_BYTES_MIN).max(2) as usize);
        // Half of it for the threads, a quarter for the buckets, and the rest for the index.
        let thread_bytes = memory / 2 / threads;
        Self {
            bucket_bytes: (memory / 4 / SHARDS).clamp(4 << 10, 64 << 20),
            threads,
            sort_bytes: (thread_bytes / 2).clamp(64 << 10, 4 << 30),
            leaves: (thread_bytes / 2 / TRIE_LEAF_BYTES).max(1024),
        }
    }
}

/// Accounts and slots by the first byte of their paths.
struct Buckets {
    buckets: Vec<Entries>,
    spill: Spill,
    shares: Shares,
    accounts: u64,
}

impl Buckets {
    fn new(disk: Arc<dyn Disk>, memory_bytes: u64) -> Self {
        let shares = Shares::of(memory_bytes);
        let bucket = |_| Entries::new(shares.bucket_bytes);
        Self {
            buckets: (0..SHARDS).map(bucket).collect(),
            spill: Spill::new(disk),
            shares,
            accounts: 0,
        }
    }

    fn account(
        &mut self,
        path: &B256,
        account: &Account,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.accounts += 1;
        let bucket = &mut self.buckets[usize::from(path[0])];
        bucket.account(path, account, &self.spill)?;
        self.slots(path, slots)
    }

    fn slots(
        &mut self,
        account: &B256,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        let bucket = &mut self.buckets[usize::from(account[0])];
        for (slot, value) in slots {
            if !value.is_zero() {
                bucket.slot(account, &slot, value, &self.spill)?;
            }
        }
        Ok(())
    }

    /// Builds all shards, and makes the state root. With somewhere to put them, their pages are
    /// made too, and their index. With `codes`, each account's must be among these.
    fn build(
        mut self,
        to: Option<(&Pages, &IndexWriter)>,
        codes: Option<&Codes>,
        counters: &Counters,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<B256, StateError> {
        if self.spill.bytes() > 0 {
            // What is left of the buckets would take memory that the threads are to have.
            for bucket in &mut self.buckets {
                bucket.spill(&self.spill)?;
                bucket.bytes = Vec::new();
            }
        }
        let of = self.buckets.iter().map(|bucket| bucket.leaves).sum();
        let (spill, shares) = (&self.spill, &self.shares);
        let todo: VecDeque<_> = self.buckets.into_iter().enumerate().collect();
        let todo = Mutex::new(todo);
        let failed = AtomicBool::new(false);
        let (tell, told) = mpsc::channel();
        let work = |tell: mpsc::Sender<usize>| {
            let mut built = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let Some((shard, entries)) = todo.lock().pop_front() else {
                    break;
                };
                let mut progress = |leaves| {
                    // Nobody listens only if the other end panicked.
                    let _ = tell.send(leaves);
                };
                let pages = to.map(|(pages, _)| pages);
                let mut builder =
                    ShardBuilder::new(shard, pages, counters, shares.leaves, &mut progress)
                        .with_codes(codes);
                let sorted = sort::sorted(entries, spill, shares.sort_bytes, &mut builder);
                let finished = sorted.and_then(|()| {
                    let (root, merged) = builder.finish()?;
                    if let Some((_, checkpoint)) = to {
                        checkpoint.put(shard, merged.index, merged.named)?;
                    }
                    Ok(root)
                });
                match finished {
                    Ok(root) => built.push(root),
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            Ok(built)
        };
        let mut built = Vec::with_capacity(SHARDS);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..shares.threads)
                .map(|_| {
                    let tell = tell.clone();
                    scope.spawn(|| work(tell))
                })
                .collect();
            drop(tell);
            let mut done = 0;
            for leaves in told {
                done += leaves as u64;
                progress(LoadProgress { done, of });
            }
            for thread in threads {
                let shards = thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                built.extend(shards?);
            }
            Ok::<_, StateError>(())
        })?;
        built.sort_unstable_by_key(|root: &PartialTrie| *root.base());
        let broken = StateError::Broken {
            path: Path::EMPTY,
            what: "a hashed root",
        };
        let crown = crown(&built.iter().collect::<Vec<_>>()).ok();
        crown.and_then(|crown| crown.state_root()).ok_or(broken)
    }
}

/// Collects the accounts of a database's first block, in any order, and makes its state.
///
/// ```
/// use alloy_primitives::{B256, U256};
/// use cambium_primitives::Account;
/// use cambium_state::{FaultyDisk, Loader, Options};
/// use std::sync::Arc;
///
/// let mut loader = Loader::new(Arc::new(FaultyDisk::new(1)), Options::default())?;
/// let slots = [(B256::repeat_byte(2), U256::from(3))];
/// loader.account(B256::repeat_byte(1), &Account::default(), slots)?;
/// let loaded = loader.finish(&mut |progress| println!("{progress:?}"))?;
/// println!("{}", loaded.root());
/// # Ok::<(), cambium_state::StateError>(())
/// ```
pub struct Loader {
    disk: Arc<dyn Disk>,
    lock: DataDirLock,
    options: Options,
    buckets: Buckets,
    /// Opened for the first code.
    codes: Option<Codes>,
    salt: u64,
}

impl Loader {
    /// Begins a database on `disk`, which must hold none. What an attempt that was cut short left
    /// there is removed. It is none until [`Loaded::create`] names its block.
    pub fn new(disk: Arc<dyn Disk>, options: Options) -> Result<Self, StateError> {
        options.check()?;
        disk.create_dir("").map_err(StoreError::from)?;
        let lock = lock_data_dir(&*disk)?;
        leftovers::refuse_database(&disk)?;
        leftovers::remove_unfinished(&*disk).map_err(StoreError::from)?;
        Ok(Self {
            buckets: Buckets::new(disk.clone(), options.memory_bytes),
            disk,
            lock,
            options,
            codes: None,
            salt: Manifest::new_salt(),
        })
    }

    /// Number of accounts taken.
    pub const fn accounts(&self) -> u64 {
        self.buckets.accounts
    }

    /// Takes an account by keccak(address), with slots by keccak(slot), in any order. Slots of
    /// zero are left out. Whatever is given twice, [`Self::finish`] finds.
    pub fn account(
        &mut self,
        path: B256,
        account: &Account,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.buckets.account(&path, account, slots)
    }

    /// Takes more slots of an account, which itself may come before or after.
    pub fn slots(
        &mut self,
        account: B256,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.buckets.slots(&account, slots)
    }

    /// Takes the code of an account. Refused if it has another hash.
    pub fn code(&mut self, hash: B256, code: &[u8]) -> Result<(), StateError> {
        let codes = match self.codes.take() {
            Some(codes) => codes,
            None => new_codes(&self.disk, self.salt)?,
        };
        let codes = self.codes.insert(codes);
        let got = keccak256(code);
        if got != hash {
            let expected = hash;
            return Err(StateError::WrongCode { expected, got });
        }
        codes.put(hash, code)?;
        Ok(())
    }

    /// Builds the state on the disk. Refused if an account's code was not given.
    pub fn finish(self, progress: &mut dyn FnMut(LoadProgress)) -> Result<Loaded, StateError> {
        let disk = self.disk;
        let codes = match self.codes {
            Some(codes) => codes,
            None => new_codes(&disk, self.salt)?,
        };
        let counters = Arc::new(Counters::default());
        let sizes = self.options.files.segments();
        let (segments, _) = Segments::open(disk.clone(), sizes, self.salt, None, &[])?;
        segments.settle()?;
        let pages = assemble::pages(segments, &self.options, &counters);
        let parts = PartCache::new(self.options.index_bytes_max(), counters.clone());
        let parts = Arc::new(parts);
        let index = IndexWriter::whole(disk.clone(), Arc::default(), parts.clone(), None, false)?;
        let to = Some((&*pages, &index));
        let root = self.buckets.build(to, Some(&codes), &counters, progress)?;
        Ok(Loaded {
            disk,
            lock: self.lock,
            options: self.options,
            counters,
            pages,
            parts,
            index: index.finish()?,
            codes,
            salt: self.salt,
            root,
        })
    }
}

fn new_codes(disk: &Arc<dyn Disk>, salt: u64) -> Result<Codes, StateError> {
    let (codes, _) = Codes::open(disk.clone(), salt, 0)?;
    codes.settle()?;
    Ok(codes)
}

/// Collects accounts for the sake of their state root alone.
pub struct RootLoader(Buckets);

impl RootLoader {
    /// Accounts take at most about `memory_bytes`; what does not fit is spilled to `disk`, which
    /// is in its old state afterwards.
    pub fn new(disk: Arc<dyn Disk>, memory_bytes: u64) -> Self {
        Self(Buckets::new(disk, memory_bytes))
    }

    /// As [`Loader::account`].
    pub fn account(
        &mut self,
        path: B256,
        account: &Account,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.0.account(&path, account, slots)
    }

    /// As [`Loader::slots`].
    pub fn slots(
        &mut self,
        account: B256,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.0.slots(&account, slots)
    }

    /// The state root.
    pub fn finish(self, progress: &mut dyn FnMut(LoadProgress)) -> Result<B256, StateError> {
        self.0.build(None, None, &Counters::default(), progress)
    }
}

impl Db {
    /// Collects accounts to compare them with a state of this database, which they do not change.
    /// They take up to a quarter of the memory budget, besides what the database takes.
    pub fn root_loader(&self) -> RootLoader {
        let memory_bytes = self.inner.options.memory_bytes / 4;
        RootLoader::new(self.inner.disk.clone(), memory_bytes)
    }
}

//! Accounts and slots in any order, in buckets by shard: sorted, and made a state.

use super::{
    build::ShardBuilder,
    leaf_bucket::{LeafBucket, SpillFile},
    sort,
};
use crate::{
    base::{counters::Counters, error::StateError},
    index::IndexWriter,
    pages::Pages,
};
use alloy_primitives::{B256, U256};
use cambium_disk::Disk;
use cambium_primitives::{Account, Path};
use cambium_store::Codes;
use cambium_trie::{PartialTrie, SHARDS, crown};
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
struct MemoryShares {
    /// A bucket is spilled when it has so many bytes.
    bucket_bytes: usize,
    threads: usize,
    /// For a thread's sorting.
    sort_bytes: usize,
    /// Leaves in a thread's trie.
    leaves: usize,
}

impl MemoryShares {
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
pub struct Buckets {
    buckets: Vec<LeafBucket>,
    spill: SpillFile,
    shares: MemoryShares,
    /// Number of accounts taken.
    pub accounts: u64,
}

impl Buckets {
    /// None yet, in so much memory; what does not fit is spilled to `disk`.
    pub fn new(disk: Arc<dyn Disk>, memory_bytes: u64) -> Self {
        let shares = MemoryShares::of(memory_bytes);
        let bucket = |_| LeafBucket::new(shares.bucket_bytes);
        Self {
            buckets: (0..SHARDS).map(bucket).collect(),
            spill: SpillFile::new(disk),
            shares,
            accounts: 0,
        }
    }

    /// Takes an account by keccak(address), with slots by keccak(slot).
    pub fn account(
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

    /// Takes slots of an account.
    pub fn slots(
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
    pub fn build(
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
        let (sender, receiver) = mpsc::channel();
        let work = |sender: mpsc::Sender<usize>| {
            let mut built = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let Some((shard, bucket)) = todo.lock().pop_front() else {
                    break;
                };
                let mut progress = |leaves| {
                    // Nobody listens only if the other end panicked.
                    let _ = sender.send(leaves);
                };
                let pages = to.map(|(pages, _)| pages);
                let mut builder =
                    ShardBuilder::new(shard, pages, counters, shares.leaves, &mut progress)
                        .with_codes(codes);
                let sorted = sort::sort_into(bucket, spill, shares.sort_bytes, &mut builder);
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
                    let sender = sender.clone();
                    scope.spawn(|| work(sender))
                })
                .collect();
            drop(sender);
            let mut done = 0;
            for leaves in receiver {
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
        root_of(built)
    }
}

/// The state root over the roots of all shards.
fn root_of(mut shards: Vec<PartialTrie>) -> Result<B256, StateError> {
    shards.sort_unstable_by_key(|root| *root.base());
    let broken = StateError::Broken {
        path: Path::EMPTY,
        what: "a hashed root",
    };
    let crown = crown(&shards.iter().collect::<Vec<_>>()).ok();
    crown.and_then(|crown| crown.state_root()).ok_or(broken)
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

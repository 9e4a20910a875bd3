//! The loader's front: distributes accounts and slots over one bucket for each shard, and then
//! sorts and builds the shards in parallel.

use super::{
    build::ShardBuilder,
    leaf_bucket::{LeafBucket, SpillFile},
    partial::PartialSink,
    sort,
};
use crate::{
    base::{
        counters::Counters,
        error::StateError,
        kept_storage::{KeptStorage, leaf_of, reserved, wrong},
    },
    index::IndexWriter,
    merge::PageSizes,
    pages::Pages,
};
use alloy_primitives::{B256, U256};
use cambium_disk::Disk;
use cambium_primitives::{Account, EntryValue, Path, STORAGE_ROOT_KEY};
use cambium_store::Codes;
use cambium_trie::{Commitment, PartialTrie, SHARDS, top_levels};
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

/// Memory of a leaf in a trie under construction, including the branches above it, in bytes.
const TRIE_LEAF_BYTES: usize = 192;
/// Memory required for each thread beyond the second, in bytes.
const THREAD_BYTES_MIN: u64 = 64 << 20;

/// Progress of building a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Number of accounts and slots that are in the trie.
    pub done: u64,
    /// Total number of accounts and slots.
    pub of: u64,
}

/// Division of the loader's memory.
struct MemoryShares {
    /// Size at which a bucket is spilled, in bytes.
    bucket_bytes: usize,
    /// Number of threads that sort and build.
    threads: usize,
    /// Memory of each thread for sorting, in bytes.
    sort_bytes: usize,
    /// Maximum number of leaves in each thread's trie.
    leaves: usize,
}

impl MemoryShares {
    fn of(memory_bytes: u64) -> Self {
        let memory = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min((memory_bytes / THREAD_BYTES_MIN).max(2) as usize);
        // Half for the threads, a quarter for the buckets, and the rest for the index.
        let thread_bytes = memory / 2 / threads;
        Self {
            bucket_bytes: (memory / 4 / SHARDS).clamp(4 << 10, 64 << 20),
            threads,
            sort_bytes: (thread_bytes / 2).clamp(64 << 10, 4 << 30),
            leaves: (thread_bytes / 2 / TRIE_LEAF_BYTES).max(1024),
        }
    }
}

/// Collects accounts and slots in any order, by the first byte of their paths, and builds a state
/// from them.
pub struct LeafBuckets {
    buckets: Vec<LeafBucket>,
    spill: SpillFile,
    shares: MemoryShares,
    commitment: Commitment,
    /// The contracts whose slots are kept, if the database is partial.
    kept: Option<KeptStorage>,
    /// Number of accounts added.
    pub accounts: u64,
}

impl LeafBuckets {
    /// Creates empty buckets that use about `memory_bytes` bytes, and spill the rest to `disk`. The
    /// nodes of the trie are hashed by `commitment`.
    pub fn new(disk: Arc<dyn Disk>, memory_bytes: u64, commitment: Commitment) -> Self {
        let shares = MemoryShares::of(memory_bytes);
        let bucket = |_| LeafBucket::new(shares.bucket_bytes);
        Self {
            buckets: (0..SHARDS).map(bucket).collect(),
            spill: SpillFile::new(disk),
            shares,
            commitment,
            kept: None,
            accounts: 0,
        }
    }

    /// Keeps the slots of these contracts alone, and of others the storage roots, which are computed from their slots.
    #[must_use]
    pub fn keeping(self, kept: KeptStorage) -> Self {
        let (commitment, kept) = (Commitment::PartialMpt, Some(kept));
        Self {
            commitment,
            kept,
            ..self
        }
    }

    /// Adds an account by keccak(address), with slots by keccak(slot). Slots with the value zero
    /// are ignored.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if spilling fails. Duplicates are found by [`LeafBuckets::build`].
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

    /// Adds an entry of a key-value database.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if spilling fails. Duplicates are found by [`LeafBuckets::build`].
    pub fn entry(&mut self, key: &B256, value: &EntryValue) -> Result<(), StateError> {
        self.buckets[usize::from(key[0])].entry(key, value, &self.spill)
    }

    /// Adds slots of an account. The account itself may be added before or later.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if spilling fails, and [`StateError::StorageRoot`] for a slot of a partial database with the key that is
    /// reserved for storage roots.
    pub fn slots(
        &mut self,
        account: &B256,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        let bucket = &mut self.buckets[usize::from(account[0])];
        for (slot, value) in slots {
            if slot == STORAGE_ROOT_KEY && self.kept.is_some() {
                return Err(reserved(*account));
            }
            if !value.is_zero() {
                bucket.slot(account, &slot, value, &self.spill)?;
            }
        }
        Ok(())
    }

    /// Adds the storage root of an account whose slots are not kept, in place of its slots.
    ///
    /// # Errors
    ///
    /// [`StateError::StorageRoot`] if its slots are kept or the root is zero, and [`StateError::Store`] if spilling fails.
    pub fn storage_root(&mut self, account: &B256, root: B256) -> Result<(), StateError> {
        if root.is_zero() || self.kept.as_ref().is_none_or(|kept| kept.keeps(account)) {
            let what = "its storage root is given as zero, or its slots are kept";
            return Err(wrong(*account, what));
        }
        let (key, value) = leaf_of(root);
        let bucket = &mut self.buckets[usize::from(account[0])];
        match value.is_zero() {
            true => Ok(()),
            false => bucket.slot(account, &key, value, &self.spill),
        }
    }

    /// Builds all shards and returns the state root. If `to` is given, writes their pages and index
    /// there. If `codes` is given, requires that it contains the code of each account. `progress`
    /// is called as leaves enter the tries.
    ///
    /// # Errors
    ///
    /// [`StateError::Trie`] for an account or slot that was added twice, or slots without their
    /// account; [`StateError::UnknownCode`] for an account whose code is not in `codes`;
    /// [`StateError::Store`] if reading or writing fails.
    pub fn build(
        mut self,
        to: Option<(&Pages, &IndexWriter)>,
        codes: Option<&Codes>,
        counters: &Counters,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<B256, StateError> {
        if self.spill.bytes() > 0 {
            // The rest of the buckets would take memory that the threads need.
            for bucket in &mut self.buckets {
                bucket.spill(&self.spill)?;
                bucket.bytes = Vec::new();
            }
        }
        let of = self.buckets.iter().map(|bucket| bucket.leaves).sum();
        let leaf_bytes = self.buckets.iter().map(|bucket| bucket.leaf_bytes).sum();
        let pages =
            to.map(|(pages, index)| (pages, PageSizes::of_load(leaf_bytes, index.bytes_max())));
        let (spill, shares, commitment) = (&self.spill, &self.shares, self.commitment);
        let kept = self.kept.as_ref();
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
                let progress = |leaves| {
                    // The receiver is gone only if its thread panicked.
                    let _ = sender.send(leaves);
                };
                let leaves = shares.leaves;
                let mut builder =
                    ShardBuilder::new(shard, commitment, pages, counters, leaves, &progress)
                        .with_codes(codes);
                let sort_bytes = shares.sort_bytes;
                let sorted = match kept {
                    None => sort::sort_into(bucket, spill, sort_bytes, &mut builder),
                    Some(kept) => {
                        let storage =
                            || ShardBuilder::of_storage(shard, counters, leaves, &progress);
                        let mut sink = PartialSink::new(&mut builder, kept, &storage);
                        sort::sort_into(bucket, spill, sort_bytes, &mut sink)
                            .and_then(|()| sink.end())
                    }
                };
                let finished = sorted.and_then(|()| {
                    let (root, merged) = builder.finish()?;
                    if let Some((_, checkpoint)) = to {
                        checkpoint.put(shard, &merged.index, merged.named)?;
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

/// Computes the state root from the roots of all shards.
fn root_of(mut shards: Vec<PartialTrie>) -> Result<B256, StateError> {
    shards.sort_unstable_by_key(|root| *root.base());
    let broken = StateError::Broken {
        path: Path::EMPTY,
        what: "a hashed root",
    };
    let top_levels = top_levels(&shards.iter().collect::<Vec<_>>()).ok();
    top_levels
        .and_then(|top_levels| top_levels.state_root())
        .ok_or(broken)
}

/// Computes the state root of accounts and slots that are added in any order, without storing them.
pub struct RootLoader(LeafBuckets);

impl RootLoader {
    /// Creates a loader that uses about `memory_bytes` bytes, and spills the rest to a temporary
    /// file on `disk`.
    pub fn new(disk: Arc<dyn Disk>, memory_bytes: u64) -> Self {
        Self(LeafBuckets::new(disk, memory_bytes, Commitment::Mpt))
    }

    /// Adds an account by keccak(address), with slots by keccak(slot). Slots with the value zero
    /// are ignored.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if spilling fails.
    pub fn account(
        &mut self,
        path: B256,
        account: &Account,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.0.account(&path, account, slots)
    }

    /// Adds slots of an account, given by keccak(address). The account itself may be added before
    /// or later.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if spilling fails.
    pub fn slots(
        &mut self,
        account: B256,
        slots: impl IntoIterator<Item = (B256, U256)>,
    ) -> Result<(), StateError> {
        self.0.slots(&account, slots)
    }

    /// Computes the state root. `progress` is called as leaves enter the tries.
    ///
    /// # Errors
    ///
    /// [`StateError::Trie`] for an account or slot that was added twice, or slots without their
    /// account; [`StateError::Store`] if the spill file can't be read.
    pub fn finish(self, progress: &mut dyn FnMut(LoadProgress)) -> Result<B256, StateError> {
        self.0.build(None, None, &Counters::default(), progress)
    }
}

//! QMDB in commonware-storage: a log of operations with a Merkle tree over it, and an index in
//! memory from each key to its newest operation. It is not a trie by key: it can prove the value of
//! a key but, in the variant used here, not the absence of a key.
//!
//! It runs in an asynchronous runtime on a thread of its own, which serves requests.

use super::{Committed, Failure, Setup, Store, Write};
use crate::{state::workload::Workload, system::cores};
use alloy_primitives::{B256, U256};
use cambium_primitives::Account;
use commonware_cryptography::Sha256;
use commonware_parallel::Rayon;
use commonware_runtime::{
    BLOB_PAGE_SIZE, Runner as _, Strategizer, Supervisor as _,
    buffer::paged::{CacheRef, page_size},
    tokio::{Config as RuntimeConfig, Context, Runner},
};
use commonware_storage::{
    journal::contiguous::fixed::Config as LogConfig,
    merkle::{full::Config as MerkleConfig, mmr::Family},
    qmdb::{
        any::batch::Slot,
        current::{FixedConfig, unordered::fixed::partitioned::Db as PartitionedDb},
        floor::Proportional,
    },
    translator::EightCap,
};
use commonware_utils::{NZU64, NZUsize, channel::mpsc as requests, sequence::FixedBytes};
use std::{
    num::NonZeroUsize,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

type Key = FixedBytes<32>;
/// Nonce and balance, big-endian.
type Value = FixedBytes<24>;
/// Bytes of activity bits that share a leaf of the tree.
const CHUNK_BYTES: usize = 32;
/// Bytes of a key that select a part of the index.
const PARTITION_BYTES: usize = 2;
type Db = PartitionedDb<
    Family,
    Context,
    Key,
    Value,
    Sha256,
    EightCap,
    PARTITION_BYTES,
    CHUNK_BYTES,
    Rayon,
>;

/// Number of accounts per batch while loading.
const LOAD_CHUNK: u64 = 1 << 17;
/// Number of threads for files.
const IO_THREADS: usize = 64;
const ITEMS_PER_FILE: std::num::NonZeroU64 = NZU64!(1_000_000);
const BUFFER_BYTES: NonZeroUsize = NZUsize!(2 << 20);
/// Percentage of the process's memory for its own page cache. The rest is for the index and the
/// system's page cache.
const CACHE_PERCENT: u64 = 20;
/// Number of batches after which obsolete operations are dropped.
const PRUNE_EVERY: u64 = 16;

/// Returns the number of threads for hashing, and for tasks: one per core.
fn threads() -> NonZeroUsize {
    NonZeroUsize::new(cores()).unwrap_or(NonZeroUsize::MIN)
}

/// A request to the runtime's thread.
enum Request {
    Read(Vec<Key>),
    /// New values of the keys of the last read, in their order.
    Commit(Vec<Value>),
    Load(Vec<(Key, Value)>),
    Settle,
}

/// A reply of the runtime's thread.
enum Reply {
    Values(Vec<Option<Value>>),
    Root(B256, Duration),
    Done,
}

fn cache_pages(setup: &Setup) -> NonZeroUsize {
    let pages = setup.memory_bytes / 100 * CACHE_PERCENT / u64::from(BLOB_PAGE_SIZE);
    NonZeroUsize::new(pages as usize).unwrap_or(NonZeroUsize::MIN)
}

fn config(context: &Context, setup: &Setup) -> FixedConfig<EightCap, Rayon, NonZeroUsize> {
    let page_cache = CacheRef::new(page_size(BLOB_PAGE_SIZE), cache_pages(setup));
    FixedConfig {
        merkle_config: MerkleConfig {
            journal_partition: "journal-accounts".to_owned(),
            metadata_partition: "metadata-accounts".to_owned(),
            items_per_blob: ITEMS_PER_FILE,
            write_buffer: BUFFER_BYTES,
            replay_buffer: BUFFER_BYTES,
            strategy: context.strategy(threads()),
            page_cache: page_cache.clone(),
        },
        journal_config: LogConfig {
            partition: "log-accounts".to_owned(),
            items_per_blob: ITEMS_PER_FILE,
            page_cache,
            write_buffer: BUFFER_BYTES,
            replay_buffer: BUFFER_BYTES,
        },
        grafted_metadata_partition: "grafted-accounts".to_owned(),
        translator: EightCap,
        init_cache: Some(NZUsize!(1 << 18)),
        init_buffer: BUFFER_BYTES,
        init_concurrency: threads(),
    }
}

/// Serves requests until the channel closes or one fails.
async fn serve(
    context: Context,
    setup: Setup,
    mut asked: requests::UnboundedReceiver<Request>,
    answers: mpsc::Sender<Result<Reply, String>>,
) {
    let answer = |reply| answers.send(reply).is_ok();
    let config = config(&context, &setup);
    let mut db = match Db::init(context.child("storage"), config, None).await {
        Ok(db) => db,
        Err(error) => {
            answer(Err(error.to_string()));
            return;
        }
    };
    answer(Ok(Reply::Done));
    let mut staged = None;
    let mut batches = 0;
    while let Some(request) = asked.recv().await {
        let outcome = async {
            match request {
                Request::Read(keys) => {
                    let keys: Vec<_> = keys.iter().collect();
                    let (values, batch) = db.new_batch().stage(&keys, &db).await?;
                    staged = Some(batch);
                    Ok((db, Reply::Values(values)))
                }
                Request::Commit(values) => {
                    let start = Instant::now();
                    let slots: Vec<_> = values.into_iter().map(Slot::Put).collect();
                    let batch = staged.take().expect("a read comes before a commit");
                    let batch = batch
                        .merkleize(slots, Vec::new(), None, &db, &mut Proportional)
                        .await?;
                    let root = B256::from_slice(batch.root().as_ref());
                    let root_time = start.elapsed();
                    db = db.apply_batch(batch).await?.commit().await?;
                    batches += 1;
                    if batches % PRUNE_EVERY == 0 {
                        let boundary = db.sync_boundary();
                        db = db.prune(boundary).await?;
                    }
                    Ok((db, Reply::Root(root, root_time)))
                }
                Request::Load(pairs) => {
                    let mut batch = db.new_batch();
                    for (key, value) in pairs {
                        batch = batch.write(key, Some(value));
                    }
                    let batch = batch.merkleize(&db, None, &mut Proportional).await?;
                    let db = db.apply_batch(batch).await?.commit().await?;
                    Ok((db, Reply::Done))
                }
                Request::Settle => {
                    let boundary = db.sync_boundary();
                    let db = db.prune(boundary).await?.sync().await?;
                    Ok((db, Reply::Done))
                }
            }
        };
        let outcome: Result<_, commonware_storage::qmdb::Error<Family>> = outcome.await;
        match outcome {
            Ok((kept, reply)) => {
                db = kept;
                answer(Ok(reply));
            }
            Err(error) => {
                answer(Err(error.to_string()));
                return;
            }
        }
    }
}

/// An open QMDB database.
pub(super) struct QmdbStore {
    /// Dropped before the thread is joined, which ends the thread.
    asking: Option<requests::UnboundedSender<Request>>,
    answers: mpsc::Receiver<Result<Reply, String>>,
    thread: Option<thread::JoinHandle<()>>,
    cache_mib: u64,
}

impl QmdbStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        let (asking, asked) = requests::unbounded_channel();
        let (answer, answers) = mpsc::channel();
        let cache_mib = (setup.memory_bytes / 100 * CACHE_PERCENT) >> 20;
        let setup = setup.clone();
        let runtime = RuntimeConfig::new()
            .with_worker_threads(threads().get())
            .with_max_blocking_threads(IO_THREADS)
            .with_storage_directory(&setup.dir);
        let thread = thread::spawn(move || {
            Runner::new(runtime).start(|context| serve(context, setup, asked, answer));
        });
        let store = Self {
            asking: Some(asking),
            answers,
            thread: Some(thread),
            cache_mib,
        };
        store.answer()?;
        Ok(store)
    }

    fn answer(&self) -> Result<Reply, Failure> {
        let gone = |_| "the runtime ended";
        Ok(self.answers.recv().map_err(gone)??)
    }

    fn ask(&self, request: Request) -> Result<Reply, Failure> {
        let gone = |_| "the runtime ended";
        let asking = self.asking.as_ref().ok_or("closed")?;
        asking.send(request).map_err(gone)?;
        self.answer()
    }
}

impl Drop for QmdbStore {
    fn drop(&mut self) {
        self.asking = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported as a missing reply.
            let _ = thread.join();
        }
    }
}

fn encode(account: &Account) -> Value {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&account.nonce.to_be_bytes());
    bytes[8..].copy_from_slice(&account.balance.to_be_bytes::<32>()[16..]);
    Value::new(bytes)
}

fn decode(value: &Value) -> Account {
    let (nonce, balance) = value.as_ref().split_at(8);
    Account {
        nonce: nonce
            .iter()
            .fold(0, |nonce, byte| nonce << 8 | u64::from(*byte)),
        balance: U256::from_be_slice(balance),
        ..Account::default()
    }
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let store = QmdbStore::open(setup)?;
    let accounts = setup.workload.accounts;
    for start in (0..accounts).step_by(LOAD_CHUNK as usize) {
        let keys = setup.workload.keys(start..accounts.min(start + LOAD_CHUNK));
        let pair = |key: B256| (Key::new(key.0), encode(&Workload::first_state(&key)));
        store.ask(Request::Load(keys.into_iter().map(pair).collect()))?;
    }
    store.ask(Request::Settle)?;
    Ok(())
}

impl Store for QmdbStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        let keys = keys.iter().map(|key| Key::new(key.0)).collect();
        match self.ask(Request::Read(keys))? {
            Reply::Values(values) => Ok(values
                .iter()
                .map(|value| value.as_ref().map(decode))
                .collect()),
            Reply::Root(..) | Reply::Done => Err("not what was asked".into()),
        }
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let values = write.new.iter().map(encode).collect();
        match self.ask(Request::Commit(values))? {
            Reply::Root(root, time) => Ok(Committed {
                root: Some(root),
                root_time: Some(time),
                witness: None,
            }),
            Reply::Values(_) | Reply::Done => Err("not what was asked".into()),
        }
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.ask(Request::Settle)?;
        Ok(())
    }

    fn configuration(&self) -> String {
        format!(
            "commonware-storage 2026.10.0, qmdb::current::unordered::fixed, index in 2^16 parts, \
             MMR, SHA-256; staged batches, proportional floor, commit for each batch, pruned every \
             {PRUNE_EVERY}; tokio runtime of {} workers and up to {IO_THREADS} I/O threads; \
             page cache of {} MiB beside the system's",
            threads(),
            self.cache_mib
        )
    }
}

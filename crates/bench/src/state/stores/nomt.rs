//! NOMT: a binary Merkle trie in pages, beside a B-tree of values.

use super::{
    Committed, Failure, Setup, Store, WitnessMade, Write,
    bytes::{decode, encode, read_each_on_threads, read_threads},
};
use crate::{state::workload::Workload, system::cores};
use alloy_primitives::B256;
use cambium_primitives::Account;
use nomt::{
    KeyReadWrite, Nomt, Options, Session, SessionParams, Witness, WitnessMode, hasher::Blake3Hasher,
};
use serde_json::{Map, Value, json};
use std::time::Instant;

type Hasher = Blake3Hasher;

/// Number of accounts per commit while loading.
const LOAD_CHUNK: u64 = 1 << 19;
/// Most threads that update the trie, by its own limit.
const COMMIT_THREADS_MAX: usize = 64;
/// Number of io_uring rings.
const IO_WORKERS: usize = 3;
/// Percentage of the process's memory for each of its two caches. The rest is for changed pages
/// during a commit, and the B-tree's inner nodes.
const CACHE_PERCENT: u64 = 25;
/// Minimum number of leaves below a page of the trie that is stored.
const STORED_PAGE_LEAVES: u32 = 20;
/// Percentage of the hash table's buckets that are filled. The table can't grow while it is open.
const FILL_PERCENT: f64 = 40.0;
const BUCKETS_MIN: u32 = 64_000;

/// Estimates the number of stored pages in a trie of random keys: at every sixth level, the
/// subtries with enough leaves, whose number is nearly Poisson distributed.
fn stored_pages(accounts: f64) -> f64 {
    let level = |depth: i32| {
        let subtries = 2f64.powi(6 * depth);
        let mean = accounts / subtries;
        let mut term = (-mean).exp();
        let mut fewer = 0.0;
        for leaves in 0..STORED_PAGE_LEAVES {
            fewer += term;
            term *= mean / f64::from(leaves + 1);
        }
        subtries * (1.0 - fewer)
    };
    (0..7).map(level).sum()
}

fn buckets(accounts: u64) -> u32 {
    // New accounts let the state grow by up to a half before it is loaded again.
    let pages = stored_pages(accounts as f64).max(stored_pages(1.5 * accounts as f64));
    ((pages * 100.0 / FILL_PERCENT) as u32).max(BUCKETS_MIN)
}

fn options(setup: &Setup) -> Options {
    let cache_mib = (setup.memory_bytes / 100 * CACHE_PERCENT) >> 20;
    let mut options = Options::new();
    options.path(&setup.dir);
    options.commit_concurrency(commit_threads());
    options.io_workers(IO_WORKERS);
    options.hashtable_buckets(buckets(setup.workload.accounts));
    options.page_cache_size(cache_mib as usize);
    options.leaf_cache_size(cache_mib as usize);
    options.prepopulate_page_cache(true);
    options
}

/// Returns the number of threads that update the trie: one per core, which is fastest.
fn commit_threads() -> usize {
    cores().min(COMMIT_THREADS_MAX)
}

fn failure(error: impl std::fmt::Display) -> Failure {
    format!("{error:#}").into()
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let nomt = Nomt::<Hasher>::open(options(setup)).map_err(failure)?;
    let accounts = setup.workload.accounts;
    for start in (0..accounts).step_by(LOAD_CHUNK as usize) {
        let keys = setup.workload.keys(start..accounts.min(start + LOAD_CHUNK));
        let write = |key: B256| {
            let value = encode(&Workload::first_state(&key));
            (key.0, KeyReadWrite::Write(Some(value)))
        };
        let mut writes: Vec<_> = keys.into_iter().map(write).collect();
        writes.sort_unstable_by_key(|(key, _)| *key);
        let session = nomt.begin_session(SessionParams::default());
        let finished = session.finish(writes).map_err(failure)?;
        finished.commit(&nomt).map_err(failure)?;
    }
    Ok(())
}

/// An open NOMT database.
pub(super) struct NomtStore {
    nomt: Nomt<Hasher>,
    /// The session that read the batch, for its commit.
    session: Option<Session<Hasher>>,
    /// Values that the session has read, in the order of the batch's keys.
    read: Vec<Option<Vec<u8>>>,
    cache_mib: u64,
    buckets: u32,
}

impl NomtStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        Ok(Self {
            nomt: Nomt::open(options(setup)).map_err(failure)?,
            session: None,
            read: Vec::new(),
            cache_mib: (setup.memory_bytes / 100 * CACHE_PERCENT) >> 20,
            buckets: buckets(setup.workload.accounts),
        })
    }
}

impl Store for NomtStore {
    fn read(&mut self, keys: &[B256], witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        let mode = match witness {
            true => WitnessMode::read_write(),
            false => WitnessMode::disabled(),
        };
        // An unfinished session must end before the next one begins.
        self.session = None;
        let session = self
            .nomt
            .begin_session(SessionParams::default().witness_mode(mode));
        self.read = read_each_on_threads(keys, |key| {
            session.warm_up(key.0);
            session.read(key.0).map_err(failure)
        })?;
        self.session = Some(session);
        let account = |value: &Option<Vec<u8>>| Ok(value.as_deref().map(decode).transpose()?);
        self.read.iter().map(account).collect()
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let session = self.session.take().ok_or("no session")?;
        let read = self.read.drain(..);
        let accounts = write.keys.iter().zip(read).zip(write.new);
        let access = |((key, old), new): ((&B256, _), _)| {
            (key.0, KeyReadWrite::ReadThenWrite(old, Some(encode(new))))
        };
        let mut accesses: Vec<_> = accounts.map(access).collect();
        accesses.sort_unstable_by_key(|(key, _)| *key);
        let start = Instant::now();
        let mut finished = session.finish(accesses).map_err(failure)?;
        let root_time = start.elapsed();
        let root = B256::from(finished.root().into_inner());
        let witness = finished.take_witness().map(|witness| WitnessMade {
            // Included in the time of the root, since one walk computes both.
            time: None,
            bytes: witness_bytes(&witness),
        });
        finished.commit(&self.nomt).map_err(failure)?;
        Ok(Committed {
            root: Some(root),
            root_time: Some(root_time),
            witness,
        })
    }

    fn settle(&mut self) -> Result<(), Failure> {
        // NOMT defers no work.
        Ok(())
    }

    fn configuration(&self) -> String {
        format!(
            "NOMT 1.0.5, Blake3; {commits} commit threads, {IO_WORKERS} I/O workers, \
             {readers} reading threads that also warm up; page cache and leaf cache of {} MiB \
             each, upper levels prepopulated; {} hash table buckets; direct I/O",
            self.cache_mib,
            self.buckets,
            readers = read_threads(),
            commits = commit_threads()
        )
    }

    fn figures(&mut self) -> Result<Map<String, Value>, Failure> {
        let used = self.nomt.hash_table_utilization();
        let rate = json!(used.occupancy_rate());
        Ok(Map::from_iter([("hash_table_occupancy".to_owned(), rate)]))
    }
}

/// Returns the size of a witness: keys, value hashes, and the siblings of each path.
fn witness_bytes(witness: &Witness) -> u64 {
    let paths = witness.path_proofs.iter();
    let siblings: usize = paths.map(|path| path.inner.siblings.len()).sum();
    let leaves = witness.path_proofs.len();
    let operations = witness.operations.reads.len() + witness.operations.writes.len();
    (32 * siblings + 64 * leaves + 64 * operations) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_pages_follow_the_mean_number_of_leaves() {
        // 64 leaves below each of 2^18 subtries: all of them, and all above.
        let full = f64::from((1 << 18) + (1 << 12) + (1 << 6) + 1);
        assert!((stored_pages(f64::from(1 << 24)) - full).abs() < 10.0);
        // 4 leaves below each of 2^18: none of them.
        let upper = f64::from((1 << 12) + (1 << 6) + 1);
        assert!((stored_pages(f64::from(1 << 20)) - upper).abs() < 10.0);
    }
}

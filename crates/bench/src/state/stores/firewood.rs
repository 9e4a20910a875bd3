//! firewood with Ethereum's hashes: a trie that is its own index, updated in place. For
//! measurement only: its licence allows no other use.
//!
//! A commit returns before anything is written, and nothing is ever synced. So its figures are not
//! those of durable commits.

use super::{
    Committed, Failure, Setup, Store, Write,
    bytes::{read_each_on_threads, read_threads},
};
use crate::state::workload::Workload;
use alloy_primitives::B256;
use alloy_trie::TrieAccount;
use cambium_primitives::Account;
use firewood::{
    api::{Db as _, DbView as _, Proposal as _},
    db::{BatchOp, Db, DbConfig},
    manager::{CacheReadStrategy, RevisionManagerConfig},
};
use firewood_storage::NodeHashAlgorithm;
use std::{num::NonZeroUsize, time::Instant};

/// Number of accounts per proposal while loading.
const LOAD_CHUNK: u64 = 1 << 18;
/// Percentage of the process's memory for its cache of nodes. The rest is for the page cache.
const CACHE_PERCENT: u64 = 40;
/// Number of revisions that it keeps, the minimum.
const REVISIONS: usize = 2;

fn failure(error: impl std::fmt::Display) -> Failure {
    error.to_string().into()
}

fn cache_bytes(setup: &Setup) -> usize {
    (setup.memory_bytes / 100 * CACHE_PERCENT) as usize
}

fn open(setup: &Setup) -> Result<Db, Failure> {
    let cache = NonZeroUsize::new(cache_bytes(setup)).unwrap_or(NonZeroUsize::MIN);
    let manager = RevisionManagerConfig::builder()
        .max_revisions(REVISIONS)
        .node_cache_memory_limit(cache)
        .cache_read_strategy(CacheReadStrategy::All)
        .build();
    let config = DbConfig::builder()
        .node_hash_algorithm(NodeHashAlgorithm::Ethereum)
        .manager(manager)
        .build();
    Db::new(&setup.dir, config).map_err(failure)
}

fn encode(account: &Account) -> Vec<u8> {
    alloy_rlp::encode(TrieAccount {
        nonce: account.nonce,
        balance: account.balance,
        code_hash: account.code_hash,
        ..TrieAccount::default()
    })
}

fn decode(bytes: &[u8]) -> Result<Account, Failure> {
    let account: TrieAccount = alloy_rlp::decode_exact(bytes)?;
    Ok(Account {
        nonce: account.nonce,
        balance: account.balance,
        code_hash: account.code_hash,
    })
}

fn put(key: &B256, account: &Account) -> BatchOp<B256, Vec<u8>> {
    BatchOp::Put {
        key: *key,
        value: encode(account),
    }
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let db = open(setup)?;
    let accounts = setup.workload.accounts;
    for start in (0..accounts).step_by(LOAD_CHUNK as usize) {
        let mut keys = setup.workload.keys(start..accounts.min(start + LOAD_CHUNK));
        keys.sort_unstable();
        let batch: Vec<_> = keys
            .iter()
            .map(|key| put(key, &Workload::first_state(key)))
            .collect();
        db.propose(batch)
            .map_err(failure)?
            .commit()
            .map_err(failure)?;
    }
    db.close().map_err(failure)
}

/// An open firewood database.
pub(super) struct FirewoodStore {
    /// Taken on closing, which writes the newest commits.
    db: Option<Db>,
    cache_mib: usize,
}

impl FirewoodStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        Ok(Self {
            db: Some(open(setup)?),
            cache_mib: cache_bytes(setup) >> 20,
        })
    }

    fn db(&self) -> Result<&Db, Failure> {
        self.db.as_ref().ok_or_else(|| "closed".into())
    }
}

impl Drop for FirewoodStore {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.db.take().map(Db::close) {
            eprintln!("closing firewood: {error}");
        }
    }
}

impl Store for FirewoodStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        let db = self.db()?;
        let root = db.root_hash().ok_or("no root")?;
        let revision = db.revision(root).map_err(failure)?;
        read_each_on_threads(keys, |key| {
            let value = revision.val(key).map_err(failure)?;
            value.map(|value| decode(&value)).transpose()
        })
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let mut pairs: Vec<_> = write.keys.iter().zip(write.new).collect();
        pairs.sort_unstable_by_key(|(key, _)| **key);
        let batch: Vec<_> = pairs
            .into_iter()
            .map(|(key, account)| put(key, account))
            .collect();
        let start = Instant::now();
        let proposal = self.db()?.propose(batch).map_err(failure)?;
        let root = proposal.root_hash().ok_or("no root")?;
        let root_time = start.elapsed();
        proposal.commit().map_err(failure)?;
        Ok(Committed {
            root: Some(B256::from_slice(root.as_ref())),
            root_time: Some(root_time),
            witness: None,
        })
    }

    fn settle(&mut self) -> Result<(), Failure> {
        // Commits are written in the background, and the last ones on closing.
        Ok(())
    }

    fn configuration(&self) -> String {
        format!(
            "firewood 0.3.1 with ethhash; NOT durable: it never syncs; node cache of {} MiB for reads \
             and writes, the rest is page cache; {REVISIONS} revisions; {readers} reading threads",
            self.cache_mib,
            readers = read_threads()
        )
    }
}

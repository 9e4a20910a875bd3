//! fjall: a log-structured merge tree without a trie.

use super::{
    Committed, Failure, Setup, Store, Write,
    bytes::{self, read_each_on_threads, read_threads},
};
use crate::{state::workload::Workload, system::cores};
use alloy_primitives::B256;
use cambium_primitives::Account;
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    config::CompressionPolicy,
};
use std::{thread, time::Duration};

/// Percentage of the process's memory for the block cache. The rest is for the page cache, through
/// which files are read.
const CACHE_PERCENT: u64 = 25;

fn cache_bytes(setup: &Setup) -> u64 {
    setup.memory_bytes / 100 * CACHE_PERCENT
}

fn open(setup: &Setup) -> Result<(Database, Keyspace), Failure> {
    let builder = Database::builder(&setup.dir);
    let builder = builder.cache_size(cache_bytes(setup));
    let db = builder.worker_threads(cores()).open()?;
    // Random keys and balances can't be compressed.
    let options = || {
        let none = CompressionPolicy::all(CompressionType::None);
        KeyspaceCreateOptions::default().data_block_compression_policy(none)
    };
    let accounts = db.keyspace("accounts", options)?;
    Ok((db, accounts))
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let (db, accounts) = open(setup)?;
    // Ingestion requires sorted keys.
    let mut ingestion = accounts.start_ingestion()?;
    for key in bytes::sorted_keys(&setup.workload) {
        ingestion.write(key.as_slice(), bytes::encode(&Workload::first_state(&key)))?;
    }
    ingestion.finish()?;
    Ok(db.persist(PersistMode::SyncAll)?)
}

/// An open fjall database.
pub(super) struct FjallStore {
    db: Database,
    accounts: Keyspace,
    cache_mib: u64,
}

impl FjallStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        let (db, accounts) = open(setup)?;
        Ok(Self {
            db,
            accounts,
            cache_mib: cache_bytes(setup) >> 20,
        })
    }
}

impl Store for FjallStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        read_each_on_threads(keys, |key| {
            let value = self.accounts.get(key)?;
            Ok(value.map(|value| bytes::decode(&value)).transpose()?)
        })
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in write.keys.iter().zip(write.new) {
            batch.insert(&self.accounts, key.as_slice(), bytes::encode(value));
        }
        batch.commit()?;
        Ok(Committed::default())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.accounts.rotate_memtable_and_wait()?;
        while self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0 {
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn configuration(&self) -> String {
        format!(
            "fjall 3.1.13, no trie; journal synced for each batch; {workers} workers; block cache \
             of {} MiB, the rest is page cache; no compression; {readers} reading threads",
            self.cache_mib,
            readers = read_threads(),
            workers = cores()
        )
    }
}

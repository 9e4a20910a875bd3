//! MDBX: a B-tree in a memory map, without a trie.

use super::{
    Committed, Failure, Setup, Store, Write,
    bytes::{self, read_on_threads, read_threads},
};
use crate::state::workload::Workload;
use alloy_primitives::B256;
use cambium_primitives::Account;
use signet_libmdbx::{
    DatabaseFlags, Environment, EnvironmentFlags, Geometry, Mode, SyncMode, WriteFlags,
    sys::PageSize,
};
use std::{borrow::Cow, path::Path};

/// Number of accounts per transaction while loading.
const LOAD_CHUNK: usize = 1 << 20;
const MAP_BYTES_MAX: usize = 1 << 40;
const GROWTH_BYTES: isize = 256 << 20;

/// Opens the database in `dir`, or creates it.
pub(crate) fn open(dir: &Path) -> Result<Environment, Failure> {
    open_with_tables(dir, 0)
}

/// As [`open`], with at most `tables` tables besides the one without a name.
pub(crate) fn open_with_tables(dir: &Path, tables: usize) -> Result<Environment, Failure> {
    let mut builder = Environment::builder();
    builder.set_max_dbs(tables);
    builder.set_geometry(Geometry {
        size: Some(0..MAP_BYTES_MAX),
        growth_step: Some(GROWTH_BYTES),
        shrink_threshold: None,
        page_size: Some(PageSize::Set(4096)),
    });
    builder.set_flags(EnvironmentFlags {
        mode: Mode::ReadWrite {
            sync_mode: SyncMode::Durable,
        },
        // The kernel's read-ahead is useless for random reads.
        no_rdahead: true,
        coalesce: true,
        ..EnvironmentFlags::default()
    });
    Ok(builder.open(dir)?)
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let env = open(&setup.dir)?;
    // Keys are appended in order, so pages are full.
    for keys in bytes::sorted_keys(&setup.workload).chunks(LOAD_CHUNK) {
        let txn = env.begin_rw_sync()?;
        let db = txn.create_db(None, DatabaseFlags::empty())?;
        for key in keys {
            txn.append(db, key, bytes::encode(&Workload::first_state(key)))?;
        }
        txn.commit()?;
    }
    Ok(())
}

/// An open MDBX database.
pub(super) struct MdbxStore {
    env: Environment,
}

impl MdbxStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        Ok(Self {
            env: open(&setup.dir)?,
        })
    }
}

impl Store for MdbxStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        // Each thread has a transaction of its own, which is faster than sharing one.
        read_on_threads(keys, |keys| {
            let txn = self.env.begin_ro_unsync()?;
            let db = txn.open_db(None)?;
            let get = |key: &B256| -> Result<Option<Account>, Failure> {
                let value: Option<Cow<'_, [u8]>> = txn.get(db.dbi(), key.as_slice())?;
                Ok(value.map(|value| bytes::decode(&value)).transpose()?)
            };
            keys.iter().map(get).collect()
        })
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let txn = self.env.begin_rw_unsync()?;
        let db = txn.open_db(None)?;
        // Sorted, so that consecutive keys share hot pages.
        for (key, value) in bytes::sorted(write) {
            txn.put(db, key, value, WriteFlags::empty())?;
        }
        txn.commit()?;
        Ok(Committed::default())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        // MDBX defers no work.
        Ok(())
    }

    fn configuration(&self) -> String {
        format!(
            "MDBX (signet-libmdbx 0.8.3), no trie; durable commits; no read-ahead; pages of 4096 \
             bytes; {readers} reading threads",
            readers = read_threads()
        )
    }
}

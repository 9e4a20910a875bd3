//! Cambium's engine as a key-value store: entries under a binary trie, as NOMT has them.

use super::{
    CambiumStore, Committed, Failure, Setup, Store, WitnessMade, Write,
    bytes::{decode, encode},
    cambium::{disk, meta, options},
};
use crate::state::workload::Workload;
use alloy_primitives::B256;
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, EntryValue};
use cambium_state::{LeafKind, Loader, Options, Session};
use cambium_trie::{Blake3, Commitment};
use serde_json::{Map, Value};
use std::time::Instant;

/// Number of keys that are hashed at once while loading.
const LOAD_CHUNK: u64 = 1 << 16;
const COMMITMENT: Commitment = Commitment::Binary(&Blake3);

fn entry_options(setup: &Setup) -> Options {
    Options {
        commitment: COMMITMENT,
        leaves: LeafKind::Entries,
        ..options(setup)
    }
}

fn value(account: &Account) -> EntryValue {
    EntryValue::Inline(encode(account).into())
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let mut loader = Loader::new(disk(setup), entry_options(setup))?;
    let accounts = setup.workload.accounts;
    for start in (0..accounts).step_by(LOAD_CHUNK as usize) {
        for key in setup.workload.keys(start..accounts.min(start + LOAD_CHUNK)) {
            loader.entry(key, &value(&Workload::first_state(&key)))?;
        }
    }
    let loaded = loader.finish(&mut |_| {})?;
    let meta = meta(0, loaded.root());
    loaded.create(meta, Vec::new())?;
    Ok(())
}

/// An open database of entries.
pub(super) struct EntryStore {
    store: CambiumStore,
    /// The session that read the batch, for its commit.
    session: Option<Session>,
}

impl EntryStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        Ok(Self {
            store: CambiumStore::open(setup)?,
            session: None,
        })
    }
}

impl Store for EntryStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        let session = self.store.view().clone().session();
        let values = session.entries(keys)?;
        self.session = Some(session);
        let account = |value: Option<_>| value.map(|bytes: alloy_primitives::Bytes| decode(&bytes));
        let accounts = values.into_iter().map(|value| account(value).transpose());
        Ok(accounts.collect::<Result<_, _>>()?)
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let put = |(key, account): (&B256, &Account)| AccountDiff {
            path: *key,
            account: AccountUpdate::Entry(value(account)),
            wipe: false,
            slots: Vec::new(),
        };
        let changes = Changes::new(write.keys.iter().zip(write.new).map(put).collect());
        let session = self.session.take();
        let session = session.unwrap_or_else(|| self.store.view().clone().session());
        let witness = write.witness.then(Instant::now);
        let witness = witness
            .map(|start| {
                let proof = session.prove_entry_update(write.keys, &changes)?;
                let bytes = proof.encode().len() as u64;
                let time = Some(start.elapsed());
                Ok::<_, Failure>(WitnessMade { time, bytes })
            })
            .transpose()?;
        self.store.commit_session(session, changes, witness)
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.store.settle()
    }

    fn configuration(&self) -> String {
        format!("{}; {}", COMMITMENT.name(), self.store.configuration())
    }

    fn device_reads(&self) -> Option<u64> {
        self.store.device_reads()
    }

    fn figures(&mut self) -> Result<Map<String, Value>, Failure> {
        self.store.figures()
    }
}

//! Shared by the tests of the store: keys, small stores, and a seeded generator.
#![allow(dead_code)] // Each test uses a part of it.

pub(crate) mod checker;

use alloy_primitives::{B256, Bytes};
use cambium_disk::FaultyDisk;
use cambium_keccak::Batch;
use cambium_kv::{
    Blake3, Commit, CommitWitness, Commitment, FileSizes, KvError, KvOptions, ProvedUpdate, Sha256,
    StateError, Store, Transaction, VerifyError, verify_commit, verify_layered_commit,
};
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};
use cambium_state::StoreError;
use cambium_trie::{Alone, NoResolve, PartialTrie, UpperTrie, commit, layered_root};
use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

/// A key by a number. Keys of consecutive numbers are far apart, and in their order.
pub(crate) fn key(number: u8) -> B256 {
    let mut key = B256::repeat_byte(0x5a);
    key[0] = number;
    key
}

pub(crate) fn value(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn options() -> KvOptions {
    KvOptions {
        memory_bytes: 64 << 20,
        ..KvOptions::default()
    }
}

/// Files that are begun, cleaned and removed often.
pub(crate) fn tiny_files() -> FileSizes {
    FileSizes {
        segment_bytes_max: 64 << 10,
        segment_buffer_bytes: 16 << 10,
        segments_max: 512,
        log_file_bytes_max: 64 << 10,
        log_extend_bytes: 16 << 10,
        log_reference_leaves: 0,
        log_spare_blocks: 4,
        value_segment_bytes_max: 64 << 10,
    }
}

pub(crate) fn commitments() -> [Commitment; 4] {
    [
        Commitment::Mpt,
        Commitment::Layered,
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
    ]
}

/// The interval of stores under `layered`, where a test needs no other.
const INTERVAL: u64 = 2;

/// Options of a small store with that commitment.
pub(crate) fn options_of(commitment: Commitment) -> KvOptions {
    KvOptions {
        commitment,
        merge_interval_commits: (commitment == Commitment::Layered).then_some(INTERVAL),
        ..options()
    }
}

/// Options of small stores with each commitment, and with several intervals.
pub(crate) fn all_options() -> Vec<KvOptions> {
    let intervals = [1, 4].map(|interval| KvOptions {
        merge_interval_commits: Some(interval),
        ..options_of(Commitment::Layered)
    });
    let mut all = commitments().map(options_of).to_vec();
    all.extend(intervals);
    all
}

/// Opens a store that was just dropped: it is closed once its merges and roots in the background have ended.
pub(crate) fn open(disk: &Arc<FaultyDisk>, options: KvOptions) -> Store {
    loop {
        match Store::open(disk.clone(), options) {
            Err(KvError::State(StateError::Store(StoreError::InUse { .. }))) => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.expect("a sound store"),
        }
    }
}

/// Verifies the witness of the commit after `before`.
pub(crate) fn verify_witness(
    store: &Store,
    before: Commit,
    witness: &CommitWitness,
) -> Result<ProvedUpdate, VerifyError> {
    let Some(interval) = store.merge_interval() else {
        return verify_commit(before.root, store.commitment(), witness);
    };
    let number = before.number() + 1;
    let update = verify_layered_commit(before.root, number, interval, witness)?;
    Ok(ProvedUpdate {
        values: update.values,
        root: update.root,
    })
}

/// The root of a store after the last of `states`, which are those of all commits.
pub(crate) fn root_after(
    commitment: Commitment,
    interval: Option<u64>,
    states: &[&BTreeMap<B256, Bytes>],
) -> B256 {
    let n = states.len() - 1;
    let Some(interval) = interval else {
        return root_of(commitment, states[n]);
    };
    let interval = interval as usize;
    let start = n.saturating_sub(1) / interval * interval;
    let below = start.saturating_sub(interval);
    // Changes of several commits, one after the other, compared state by state.
    let upper = |from: usize, to: usize| {
        let mut trie = UpperTrie::of_entries();
        for n in from + 1..=to {
            let (before, after) = (states[n - 1], states[n]);
            let mut keys: Vec<_> = before.keys().chain(after.keys()).collect();
            keys.sort();
            keys.dedup();
            keys.retain(|key| before.get(*key) != after.get(*key));
            let change = |key: &B256| match after.get(key) {
                Some(value) => AccountUpdate::Entry(EntryValue::Inline(value.clone())),
                None => AccountUpdate::Delete,
            };
            let net = keys.into_iter().map(|key| AccountDiff {
                path: *key,
                account: change(key),
                wipe: false,
                slots: vec![],
            });
            trie.apply(&net.collect::<Vec<_>>()).expect("sorted keys");
        }
        trie.hash(&Alone)
    };
    let snapshot = root_of(Commitment::Mpt, states[below]);
    layered_root(upper(start, n), upper(below, start), snapshot)
}

/// The root of a trie that is built from scratch.
pub(crate) fn root_of(commitment: Commitment, entries: &BTreeMap<B256, Bytes>) -> B256 {
    let put = |(key, value): (&B256, &Bytes)| AccountDiff {
        path: *key,
        account: AccountUpdate::Entry(EntryValue::Inline(value.clone())),
        wipe: false,
        slots: vec![],
    };
    let puts: Vec<_> = entries.iter().map(put).collect();
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    trie.apply(&puts, &mut NoResolve).expect("all is in memory");
    commit(&mut [&mut trie], &mut Batch::new());
    trie.state_root().expect("a root")
}

pub(crate) fn store() -> Store {
    store_with(options())
}

pub(crate) fn store_with(options: KvOptions) -> Store {
    Store::create(Arc::new(FaultyDisk::new(1)), options).expect("a new store")
}

/// A store with a text at each of these keys.
pub(crate) fn store_of(entries: &[(u8, &str)]) -> Store {
    let store = store();
    let mut first = store.begin().expect("a transaction");
    for (number, text) in entries {
        first.put(key(*number), value(text)).expect("a small value");
    }
    first.commit().expect("a commit");
    store
}

/// All entries that a transaction sees.
pub(crate) fn all(transaction: &Transaction) -> Vec<(B256, Bytes)> {
    transaction
        .range(..)
        .collect::<Result<_, _>>()
        .expect("the entries")
}

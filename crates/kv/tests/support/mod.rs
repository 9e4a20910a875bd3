//! What the tests of the store share: keys, small stores, and a seeded generator.
#![allow(dead_code)] // Each test uses a part of it.

pub(crate) mod checker;

use alloy_primitives::{B256, Bytes};
use cambium_disk::FaultyDisk;
use cambium_keccak::Batch;
use cambium_kv::{Blake3, Commitment, FileSizes, KvOptions, Sha256, Store, Transaction};
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};
use cambium_trie::{NoResolve, PartialTrie, commit};
use std::{collections::BTreeMap, sync::Arc};

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
        log_spare_blocks: 4,
        value_segment_bytes_max: 64 << 10,
    }
}

pub(crate) fn commitments() -> [Commitment; 3] {
    [
        Commitment::Mpt,
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
    ]
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

/// A seeded generator (SplitMix64).
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Whether an event of this percentage happens.
    pub(crate) fn percent(&mut self, percentage: u64) -> bool {
        self.below(100) < percentage
    }
}

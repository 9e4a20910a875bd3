//! The table of the value cache, and its handle for one generation. The rules are in [`super`].

use super::bucket::{self, AlignedBucket, BUCKET_BYTES, Bucket};
use crate::base::{
    counters::Counters,
    key::{CacheKey, EntryKey, Key, MergedChange},
    sync::{AtomicU32, Mutex},
};
use alloy_primitives::{B256, map::B256Set};
use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, atomic::Ordering},
};

/// The value cache (accounts and slots), as the views of one snapshot use it.
#[derive(Clone)]
pub struct ValueCache {
    table: Arc<Table>,
    /// Generation of that snapshot: the number of merges since the database was opened.
    pub(super) generation: u32,
    pub(super) counters: Arc<Counters>,
}

impl ValueCache {
    /// Creates an empty cache of `bytes` bytes, but at least one bucket, for the first snapshot.
    pub fn new(bytes: u64, counters: Arc<Counters>) -> Self {
        let random = RandomState::new();
        let seeds = [random.hash_one(0), random.hash_one(1)];
        Self::with_seeds(bytes, seeds, counters)
    }

    pub(super) fn with_seeds(bytes: u64, seeds: [u64; 2], counters: Arc<Counters>) -> Self {
        let buckets = (bytes as usize / BUCKET_BYTES).max(1);
        let table = Table {
            seeds,
            newest: AtomicU32::new(0),
            buckets: (0..buckets).map(|_| AlignedBucket::default()).collect(),
        };
        Self {
            table: Arc::new(table),
            generation: 0,
            counters,
        }
    }

    /// Memory of the table, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.table.buckets)
    }

    /// Returns the snapshot's value of `key`, if it is cached. Counts a hit or a miss.
    pub fn get<K: Key>(&self, key: &K) -> Option<K::Value> {
        let value = self.find(key);
        let counter = match value {
            Some(_) => &self.counters.value_cache_hits,
            None => &self.counters.value_cache_misses,
        };
        counter.add(1);
        value
    }

    fn find<K: Key>(&self, key: &K) -> Option<K::Value> {
        let key = key.entry();
        let (bucket, tag) = self.table.locate(&key);
        let mut bucket = bucket.try_lock()?;
        if bucket.generation > self.generation {
            return None;
        }
        K::from_entry(bucket.get(&key, tag)?).ok()
    }

    /// Inserts the snapshot's value of `key`. Does nothing if the bucket is locked, or if a merge
    /// has made a newer snapshot.
    pub fn put<K: Key>(&self, key: &K, value: &K::Value) {
        let key = key.entry();
        let (bucket, tag) = self.table.locate(&key);
        let value = K::to_entry(value);
        let Some(mut bucket) = bucket.try_lock() else {
            return;
        };
        if self.table.newest.load(Ordering::Relaxed) == self.generation {
            bucket.generation = self.generation;
            bucket.put(&key, tag, &value);
        }
    }

    /// Advances the cache to the next generation, and returns its handle for the snapshot that a
    /// merge makes from this one. Views of that snapshot must use no other handle. `changes` is
    /// called once, and must call its argument for every change of the merge, in any order.
    ///
    /// # Panics
    ///
    /// If this is not the newest generation.
    pub fn after(&self, changes: impl FnOnce(&mut dyn FnMut(MergedChange))) -> Self {
        let generation = self.generation + 1;
        let before = self.table.newest.swap(generation, Ordering::Relaxed);
        assert_eq!(before, self.generation, "a snapshot is merged into once");
        let mut wiped = B256Set::default();
        changes(&mut |written| match written {
            MergedChange::Account(path, account) => self.table.replace(&path, &account, generation),
            MergedChange::Slot(account, slot, value) => {
                self.table.replace(&(account, slot), &value, generation);
            }
            MergedChange::Entry(key, value) => {
                self.table.replace(&EntryKey(key), &value, generation);
            }
            MergedChange::Wipe(account) => _ = wiped.insert(account),
        });
        if !wiped.is_empty() {
            for bucket in &self.table.buckets {
                bucket.0.lock().remove_slots_of(&wiped);
            }
        }
        Self {
            generation,
            ..self.clone()
        }
    }
}

struct Table {
    /// Random keys of the hash.
    seeds: [u64; 2],
    /// Newest generation.
    newest: AtomicU32,
    buckets: Box<[AlignedBucket]>,
}

impl Table {
    /// Returns the bucket of a key, and the key's tag there.
    fn locate(&self, key: &CacheKey<'_>) -> (&Mutex<Bucket>, u8) {
        let [first, second, ..] = words(key.account);
        let second = key.slot.map_or(second, |slot| words(slot)[0]);
        let mixed = |word: u64, seed: u64| u128::from(word ^ seed);
        let product = mixed(first, self.seeds[0]) * mixed(second, self.seeds[1]);
        let hash = product as u64 ^ (product >> 64) as u64;
        let bucket = (u128::from(hash) * self.buckets.len() as u128) >> 64;
        (&self.buckets[bucket as usize].0, bucket::tag(key, hash))
    }

    /// Replaces the value of `key`, if it is cached, by that of a new generation.
    fn replace<K: Key>(&self, key: &K, value: &K::Value, generation: u32) {
        let key = key.entry();
        let (bucket, tag) = self.locate(&key);
        let mut bucket = bucket.lock();
        if bucket.replace(&key, tag, &K::to_entry(value)) {
            bucket.generation = generation;
        }
    }
}

pub(super) fn words(path: &B256) -> [u64; 4] {
    let (words, _) = path.as_chunks();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

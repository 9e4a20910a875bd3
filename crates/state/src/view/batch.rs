//! Reading many keys at once: every page that they need is in flight together.
//!
//! Keys are taken in chunks. Of each chunk, what memory has is answered at once, be it a page or
//! the value cache that single reads are answered from as well; the pages that the rest needs
//! are read in one batch, in the order in which they lie on disk, each once.

use crate::view::state::View;
use alloy_primitives::{B256, U256};
use cambium_primitives::Account;
use cambium_snapshot::{CHUNK_KEYS, Key, PARALLEL_KEYS_MIN, StateError, pool};
use rayon::prelude::*;

/// A key that layers above the snapshot may have.
pub(crate) trait LayeredKey: Key {
    /// What `view` has above the snapshot; `None` if the snapshot must be asked.
    fn above(&self, view: &View) -> Option<Self::Value>;
}

impl LayeredKey for B256 {
    fn above(&self, view: &View) -> Option<Self::Value> {
        view.account_above(self)
    }
}

impl LayeredKey for (B256, B256) {
    fn above(&self, view: &View) -> Option<Self::Value> {
        view.slot_above(&self.0, &self.1)
    }
}

/// What reading many keys asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueCacheUse {
    /// The cache of entries, which is then given what it had not.
    ReadAndFill,
    /// The pages, so that they are in memory afterwards.
    Bypass,
}

impl View {
    /// Reads many accounts, by keccak(address), with all device reads in flight at once. Values
    /// are in the order of `paths`.
    pub fn accounts(&self, paths: &[B256]) -> Result<Vec<Option<Account>>, StateError> {
        self.read_all(paths, ValueCacheUse::ReadAndFill)
    }

    /// Reads many slots, each by keccak(address) and keccak(slot), with all device reads in
    /// flight at once. Values are in the order of `slots`; zero where there is none.
    pub fn storage(&self, slots: &[(B256, B256)]) -> Result<Vec<U256>, StateError> {
        self.read_all(slots, ValueCacheUse::ReadAndFill)
    }

    /// Brings what these keys need into memory, with all device reads in flight at once: reads
    /// of them, and the update of what they lead to, then wait for nothing.
    pub fn prefetch(&self, accounts: &[B256], slots: &[(B256, B256)]) -> Result<(), StateError> {
        self.read_all(accounts, ValueCacheUse::Bypass)?;
        self.read_all(slots, ValueCacheUse::Bypass)?;
        Ok(())
    }

    /// Reads one key.
    pub(crate) fn read<K: LayeredKey>(&self, key: &K) -> Result<K::Value, StateError> {
        let counters = &self.inner.store.counters;
        counters.reads.add(1);
        match key.above(self) {
            Some(value) => {
                counters.overlay_hits.add(1);
                Ok(value)
            }
            None => self.base.snapshot.read(key),
        }
    }

    pub(crate) fn read_all<K: LayeredKey>(
        &self,
        keys: &[K],
        cache: ValueCacheUse,
    ) -> Result<Vec<K::Value>, StateError> {
        let chunk = |keys: &[K]| self.read_chunk(keys, cache);
        if keys.len() < PARALLEL_KEYS_MIN {
            return chunk(keys);
        }
        // Every thread has something to do even if there are few chunks.
        let size = CHUNK_KEYS.min(keys.len().div_ceil(pool::threads()));
        let chunks: Vec<_> =
            pool::install(|| keys.par_chunks(size).map(chunk).collect::<Result<_, _>>())?;
        Ok(chunks.into_iter().flatten().collect())
    }

    fn read_chunk<K: LayeredKey>(
        &self,
        keys: &[K],
        cache: ValueCacheUse,
    ) -> Result<Vec<K::Value>, StateError> {
        self.inner.store.counters.reads.add(keys.len() as u64);
        let mut values = Vec::with_capacity(keys.len());
        let mut below = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let above = key.above(self);
            if above.is_none() {
                below.push((at, *key));
            }
            values.push(above);
        }
        let hits = keys.len() - below.len();
        self.inner.store.counters.overlay_hits.add(hits as u64);
        let snapshot = &self.base.snapshot;
        if cache == ValueCacheUse::ReadAndFill {
            below.retain(|(at, key)| {
                values[*at] = snapshot.entries.get(key);
                values[*at].is_none()
            });
        }
        snapshot.read_into(&below, &mut values)?;
        if cache == ValueCacheUse::ReadAndFill {
            for (at, key) in &below {
                if let Some(value) = &values[*at] {
                    snapshot.entries.put(key, value);
                }
            }
        }
        Ok(values.into_iter().flatten().collect())
    }
}

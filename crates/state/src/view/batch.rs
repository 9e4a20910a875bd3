//! Reads of batches. The pages that a batch needs are read from the device together.
//!
//! A batch is read in chunks of keys. Values in the layers, in the value cache and in cached pages
//! are found first. The pages for the rest are read in one batch, in the order of their places on
//! disk, each once.

use crate::view::{read::LayeredKey, state::View};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, EntryValue};
use cambium_snapshot::{
    CHUNK_KEYS, EntryKey, PORTION_KEYS_MIN, StateError,
    pool::{self, Workers},
};

/// Whether a batch read uses the value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueCacheUse {
    /// Looks in the value cache first, and puts values from pages into it.
    ReadAndFill,
    /// Goes to the pages, so that these are in memory afterwards.
    Bypass,
}

impl View {
    /// Reads many accounts by keccak(address), with all device reads in flight at once. The result
    /// is in the order of `paths`, with `None` for accounts that don't exist.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails, and an error that names the file if a page or a part of
    /// the index is damaged.
    pub fn accounts(&self, paths: &[B256]) -> Result<Vec<Option<Account>>, StateError> {
        self.read_all(paths, ValueCacheUse::ReadAndFill)
    }

    /// Reads many slots by keccak(address) and keccak(slot), with all device reads in flight at
    /// once. The result is in the order of `slots`, with zero for slots that are not set.
    ///
    /// # Errors
    ///
    /// As [`View::accounts`], and [`StateError::StorageNotKept`] for a contract whose storage a partial database does not keep.
    pub fn storage(&self, slots: &[(B256, B256)]) -> Result<Vec<U256>, StateError> {
        self.check_slots(slots)?;
        self.read_all(slots, ValueCacheUse::ReadAndFill)
    }

    /// Fails unless the storage of the account of each of these slots is kept.
    pub(crate) fn check_slots(&self, slots: &[(B256, B256)]) -> Result<(), StateError> {
        match &self.inner.kept_storage {
            None => Ok(()),
            Some(kept) => {
                let mut accounts = slots.iter().map(|(account, _)| account);
                accounts.try_for_each(|account| kept.check(account))
            }
        }
    }

    /// Reads the values of many entries as their leaves have them, with all device reads in flight at
    /// once.
    pub(crate) fn entry_values(
        &self,
        keys: &[EntryKey],
    ) -> Result<Vec<Option<EntryValue>>, StateError> {
        self.read_all(keys, ValueCacheUse::ReadAndFill)
    }

    /// Loads the pages of these keys into memory, with all device reads in flight at once. Later
    /// reads of the keys, and the computation of a root after they change, then need no device
    /// reads.
    ///
    /// # Errors
    ///
    /// As [`View::accounts`].
    pub fn prefetch(&self, accounts: &[B256], slots: &[(B256, B256)]) -> Result<(), StateError> {
        self.read_all(accounts, ValueCacheUse::Bypass)?;
        self.read_all(slots, ValueCacheUse::Bypass)?;
        Ok(())
    }

    /// Reads many keys. The result is in the order of `keys`.
    pub(crate) fn read_all<K: LayeredKey>(
        &self,
        keys: &[K],
        cache: ValueCacheUse,
    ) -> Result<Vec<K::Value>, StateError> {
        let chunk = |keys: &[K]| self.read_chunk(keys, cache);
        // One thread reads pages for fewer in one batch, and values in memory before others wake.
        if keys.len() < 4 * PORTION_KEYS_MIN {
            return chunk(keys);
        }
        // Small chunks if there are few keys, so that every thread has work.
        let size = keys.len().div_ceil(2 * pool::threads());
        let size = size.clamp(PORTION_KEYS_MIN, CHUNK_KEYS);
        let chunks = pool::on_threads(Workers::Computing, keys.chunks(size).collect(), chunk)?;
        Ok(chunks.into_iter().flatten().collect())
    }

    /// Reads the keys of one chunk.
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
                values[*at] = snapshot.value_cache.get(key);
                values[*at].is_none()
            });
        }
        snapshot.read_into(&below, &mut values, self.pin.as_deref())?;
        if cache == ValueCacheUse::ReadAndFill {
            for (at, key) in &below {
                if let Some(value) = &values[*at] {
                    snapshot.value_cache.put(key, value);
                }
            }
        }
        Ok(values.into_iter().flatten().collect())
    }
}

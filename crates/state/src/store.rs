//! The files below the layers: pages, parts of the index, contract codes, long values, and what may
//! be reclaimed.

use crate::{health::Health, values::LongValues};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{B256, Bytes, keccak256, map::HashSet};
use cambium_disk::Disk;
use cambium_primitives::{Account, AccountUpdate, Changes, EntryValue, StoredValue};
use cambium_snapshot::{CodeCache, Counters, Pages, PartCache, Reclaimer, StateError};
use cambium_store::{Codes, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;

/// The files of the state, and the caches over them.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pages: Arc<Pages>,
    /// Cached parts of an index that is on disk.
    pub(crate) parts: Arc<PartCache>,
    pub(crate) codes: Codes,
    pub(crate) code_cache: CodeCache,
    /// Values that are too long for their leaves; `None` if the leaves are accounts.
    pub(crate) values: Option<LongValues>,
    /// Retired pages and lent files. While it is locked, only locks of `pages` are taken.
    pub(crate) reclaim: Mutex<Reclaimer>,
}

impl Store {
    /// The stored values of the database, of which `stored` is said to be one.
    pub(crate) fn values_with(&self, stored: &StoredValue) -> Result<&LongValues, StateError> {
        self.values.as_ref().ok_or(StateError::MissingValue {
            hash: stored.hash,
            place: stored.place.get(),
        })
    }

    /// Returns the bytes of the value at `key`, read from where it is stored if it is not in its
    /// leaf.
    pub(crate) fn whole_value(&self, key: &B256, value: EntryValue) -> Result<Bytes, StateError> {
        match value {
            EntryValue::Inline(bytes) => Ok(bytes),
            EntryValue::Stored(stored) => self.values_with(&stored)?.read(key, &stored),
        }
    }

    /// Does the same as [`Store::whole_value`] for many keys, with all reads in flight at once.
    pub(crate) fn whole_values(
        &self,
        keys: &[B256],
        values: Vec<Option<EntryValue>>,
    ) -> Result<Vec<Option<Bytes>>, StateError> {
        let stored = keys
            .iter()
            .zip(&values)
            .filter_map(|(key, value)| match value {
                Some(EntryValue::Stored(stored)) => Some((*key, *stored)),
                _ => None,
            });
        let stored: Vec<_> = stored.collect();
        let read = match stored.first() {
            Some((_, first)) => self.values_with(first)?.read_batch(&stored),
            None => Vec::new(),
        };
        let mut read = read.into_iter();
        let whole = |value: Option<EntryValue>| match value {
            None => Ok(None),
            Some(EntryValue::Inline(bytes)) => Ok(Some(bytes)),
            Some(EntryValue::Stored(_)) => read.next().transpose(),
        };
        values.into_iter().map(whole).collect()
    }

    /// Stores a block's code. A failed write poisons the engine.
    pub(crate) fn put_code(
        &self,
        health: &Health,
        hash: B256,
        code: &[u8],
    ) -> Result<(), StateError> {
        match self.codes.put(hash, code) {
            Err(error @ (StoreError::Disk(_) | StoreError::Poisoned { .. })) => {
                health.poison(Err(error))
            }
            put => Ok(put.map(drop)?),
        }
    }

    /// Codes that accounts of this block name, and that only uncommitted blocks have brought into
    /// the database: this block's record must hold them too, since those blocks may never be
    /// committed.
    pub(crate) fn borrowed_codes(
        &self,
        changes: &Changes,
        reverts: &Changes,
        given: &[(B256, Bytes)],
    ) -> Result<Vec<(B256, Bytes)>, StateError> {
        let mut borrowed: Vec<(B256, Bytes)> = Vec::new();
        let before = |path: &B256| {
            let accounts = reverts.accounts();
            let at = accounts.binary_search_by(|change| change.path.cmp(path));
            match &accounts[at.ok()?].account {
                AccountUpdate::Put(account) => Some(account.code_hash),
                _ => None,
            }
        };
        for change in changes.accounts() {
            let AccountUpdate::Put(Account { code_hash, .. }) = &change.account else {
                continue;
            };
            let code_hash = *code_hash;
            let is_known = code_hash == KECCAK256_EMPTY
                || before(&change.path) == Some(code_hash)
                || given.iter().any(|(hash, _)| *hash == code_hash)
                || borrowed.iter().any(|(hash, _)| *hash == code_hash)
                || self.codes.is_durable(&code_hash);
            if !is_known && let Some(code) = self.codes.get(&code_hash)? {
                borrowed.push((code_hash, code.into()));
            }
        }
        Ok(borrowed)
    }

    /// Checks that given codes have their hashes, and that every code that a changed account names
    /// is either given or in the database.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongCode`] and [`StateError::UnknownCode`].
    pub(crate) fn check_codes(
        &self,
        changes: &Changes,
        codes: &[(B256, Bytes)],
    ) -> Result<(), StateError> {
        for (expected, code) in codes {
            let (expected, got) = (*expected, keccak256(code));
            if got != expected {
                return Err(StateError::WrongCode { expected, got });
            }
        }
        let given: HashSet<B256> = codes.iter().map(|(hash, _)| *hash).collect();
        for change in changes.accounts() {
            let AccountUpdate::Put(Account { code_hash, .. }) = &change.account else {
                continue;
            };
            let code_hash = *code_hash;
            let is_given = given.contains(&code_hash);
            if code_hash != KECCAK256_EMPTY && !is_given && !self.codes.contains(&code_hash) {
                let account = change.path;
                return Err(StateError::UnknownCode { account, code_hash });
            }
        }
        Ok(())
    }
}

//! Reads of single keys: the layers above the snapshot first, then the snapshot.

use crate::view::state::View;
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, EntryValue};
use cambium_snapshot::{EntryKey, Key, StateError};

/// A key of the state, whose value may be in a layer above the snapshot.
pub(crate) trait LayeredKey: Key {
    /// The value in the layers above the snapshot; `None` if only the snapshot can have it.
    fn above(&self, view: &View) -> Option<Self::Value>;
}

impl LayeredKey for B256 {
    fn above(&self, view: &View) -> Option<Self::Value> {
        view.account_above(self)
    }
}

impl LayeredKey for EntryKey {
    fn above(&self, view: &View) -> Option<Self::Value> {
        view.entry_above(&self.0)
    }
}

impl LayeredKey for (B256, B256) {
    fn above(&self, view: &View) -> Option<Self::Value> {
        view.slot_above(&self.0, &self.1)
    }
}

impl View {
    /// Reads the account at keccak(address); `None` if it doesn't exist.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails, and an error that names the file if a page or a part of
    /// the index is damaged.
    pub fn account(&self, path: &B256) -> Result<Option<Account>, StateError> {
        self.read(path)
    }

    /// Reads the slot at keccak(slot) of the account at keccak(address); zero if it is not set.
    ///
    /// # Errors
    ///
    /// As [`View::account`], and [`StateError::StorageNotKept`] for a contract whose storage a partial database does not keep.
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, StateError> {
        self.inner.check_storage_kept(account)?;
        self.read(&(*account, *slot))
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
            None => self.base.snapshot.read(key, self.pin.as_deref()),
        }
    }

    /// The account in the layers above the snapshot: `None` if none of them wrote it, and
    /// `Some(None)` if it was deleted.
    pub(crate) fn account_above(&self, path: &B256) -> Option<Option<Account>> {
        self.overlay
            .account(path, &self.layer.ancestors)
            .or_else(|| {
                let middle = self.base.intermediate.as_ref()?;
                middle.overlay.account(path, &middle.ancestors)
            })
    }

    /// The value of an entry in the layers above the snapshot, as [`View::account_above`].
    pub(crate) fn entry_above(&self, key: &B256) -> Option<Option<EntryValue>> {
        self.overlay.entry(key, &self.layer.ancestors).or_else(|| {
            let middle = self.base.intermediate.as_ref()?;
            middle.overlay.entry(key, &middle.ancestors)
        })
    }

    /// The slot in the layers above the snapshot; `None` if none of them wrote it.
    pub(crate) fn slot_above(&self, account: &B256, slot: &B256) -> Option<U256> {
        self.overlay
            .slot(account, slot, &self.layer.ancestors)
            .or_else(|| {
                let middle = self.base.intermediate.as_ref()?;
                middle.overlay.slot(account, slot, &middle.ancestors)
            })
    }
}

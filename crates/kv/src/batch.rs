//! Writes of one transaction: puts and deletions, at most one for each key.

use crate::{error::KvError, range::KeyRange};
use alloy_primitives::{B256, Bytes};
use std::collections::BTreeMap;

/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = cambium_primitives::VALUE_BYTES_MAX;

/// Puts and deletions that are written together. Of several for one key the last counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    writes: BTreeMap<B256, Option<Bytes>>,
}

impl WriteBatch {
    /// A batch without writes.
    pub const fn new() -> Self {
        Self {
            writes: BTreeMap::new(),
        }
    }

    /// Sets the value at `key`. The empty value is a value.
    ///
    /// # Errors
    ///
    /// [`KvError::ValueTooLarge`] above [`VALUE_BYTES_MAX`].
    pub fn put(&mut self, key: B256, value: impl Into<Bytes>) -> Result<&mut Self, KvError> {
        let value = value.into();
        check_value(&key, &value)?;
        self.writes.insert(key, Some(value));
        Ok(self)
    }

    /// Removes the entry at `key`, if there is one.
    pub fn delete(&mut self, key: B256) -> &mut Self {
        self.writes.insert(key, None);
        self
    }

    /// Number of keys that are written.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The write of `key`: `None` if there is none, `Some(None)` for a deletion.
    pub(crate) fn get(&self, key: &B256) -> Option<&Option<Bytes>> {
        self.writes.get(key)
    }

    /// The writes within a range, in the order of their keys.
    pub(crate) fn range(&self, range: KeyRange) -> impl Iterator<Item = (&B256, &Option<Bytes>)> {
        self.writes.range(range.from()..=range.through())
    }

    /// Adds the writes of a later transaction.
    pub(crate) fn append(&mut self, mut later: Self) {
        match self.is_empty() {
            true => *self = later,
            false => self.writes.append(&mut later.writes),
        }
    }

    /// The written keys, in order.
    pub(crate) fn keys(&self) -> Vec<B256> {
        self.writes.keys().copied().collect()
    }
}

/// Fails with [`KvError::ValueTooLarge`] for a value that no store takes.
pub(crate) fn check_value(key: &B256, value: &Bytes) -> Result<(), KvError> {
    let (key, len, max) = (*key, value.len(), VALUE_BYTES_MAX);
    match len > max {
        true => Err(KvError::ValueTooLarge { key, len, max }),
        false => Ok(()),
    }
}

impl IntoIterator for WriteBatch {
    type Item = (B256, Option<Bytes>);
    type IntoIter = std::collections::btree_map::IntoIter<B256, Option<Bytes>>;

    /// The writes in the order of their keys.
    fn into_iter(self) -> Self::IntoIter {
        self.writes.into_iter()
    }
}

//! Entries of a key-value database, read from a view: single ones, batches, and in order.

use crate::{
    layers::overlay::Overlay,
    view::{merged::Source, state::View},
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::EntryValue;
use cambium_snapshot::{EntryKey, StateError, TopLeaves};
use std::ops::ControlFlow;

impl View {
    /// Reads the value of the entry at `key`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn entry(&self, key: &B256) -> Result<Option<Bytes>, StateError> {
        let value = self.read(&EntryKey(*key))?;
        let whole = |value| self.inner.store.whole_value(key, value);
        value.map(whole).transpose()
    }

    /// Reads the values of many entries, with all device reads in flight at once. The result is in the
    /// order of `keys`.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn entries(&self, keys: &[B256]) -> Result<Vec<Option<Bytes>>, StateError> {
        let read: Vec<_> = keys.iter().copied().map(EntryKey).collect();
        let values = self.entry_values(&read)?;
        self.inner.store.whole_values(keys, values)
    }

    /// Visits the entries from key `from` on, in the order of their keys, until `visit` breaks.
    /// One page is in memory at a time, and up to a thousand keys of those that newer layers wrote.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn each_entry(
        &self,
        from: &B256,
        mut visit: impl FnMut(B256, Bytes) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        self.each_value(from, |key, value| {
            let value = self.inner.store.whole_value(&key, value)?;
            Ok(visit(key, value))
        })
    }

    /// Visits entries as [`View::each_entry`] does, without reading the values that are stored apart
    /// from their leaves.
    pub(crate) fn each_value(
        &self,
        from: &B256,
        mut visit: impl FnMut(B256, EntryValue) -> Result<ControlFlow<()>, StateError>,
    ) -> Result<(), StateError> {
        let mut entries = self.merged(*from, Overlay::entries_from, TopLeaves::next_entry);
        while let Some((key, value)) = entries.next()? {
            if let Some(value) = value
                && visit(key, value)?.is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

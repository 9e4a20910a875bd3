//! Entries of a key-value database, read from a view: single ones, batches, and in order.

use crate::{
    layers::overlay::{AncestorSet, EntryAbove, Overlay},
    view::{
        merged::{Merged, Source},
        state::View,
    },
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::EntryValue;
use cambium_snapshot::{Entries, EntryKey, StateError};
use std::{
    ops::{Bound, ControlFlow},
    vec,
};

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
        let newest = EntriesAbove::new(&self.overlay, &self.layer.ancestors, *from);
        let middle = self.base.intermediate.as_ref();
        let middle = middle.map(|one| EntriesAbove::new(&one.overlay, &one.ancestors, *from));
        let below = self.base.snapshot.entries(from)?;
        let mut entries = Merged::new(newest, Merged::new(middle, below));
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

/// Numbers of keys that are read from an overlay at once: few at first, for short scans.
const KEYS_FIRST: usize = 16;
const KEYS_MAX: usize = 1_024;

/// The entries that visible layers wrote, from a key on; deleted ones are `None`.
struct EntriesAbove<'a> {
    overlay: &'a Overlay,
    seen: &'a AncestorSet,
    read: vec::IntoIter<EntryAbove>,
    /// Where the next keys begin, if there may be further ones.
    rest: Option<Bound<B256>>,
    count: usize,
}

impl<'a> EntriesAbove<'a> {
    fn new(overlay: &'a Overlay, seen: &'a AncestorSet, from: B256) -> Self {
        Self {
            overlay,
            seen,
            read: Vec::new().into_iter(),
            rest: Some(Bound::Included(from)),
            count: KEYS_FIRST,
        }
    }
}

impl Source for EntriesAbove<'_> {
    type Value = Option<EntryValue>;

    fn next(&mut self) -> Result<Option<EntryAbove>, StateError> {
        loop {
            if let Some(entry) = self.read.next() {
                return Ok(Some(entry));
            }
            let Some(from) = self.rest.take() else {
                return Ok(None);
            };
            let (found, last) = self.overlay.entries_from(from, self.count, self.seen);
            self.read = found.into_iter();
            self.rest = last.map(Bound::Excluded);
            self.count = KEYS_MAX.min(2 * self.count);
        }
    }
}

/// The layers that are being merged, if there are any.
impl Source for Option<EntriesAbove<'_>> {
    type Value = Option<EntryValue>;

    fn next(&mut self) -> Result<Option<EntryAbove>, StateError> {
        self.as_mut().map_or(Ok(None), Source::next)
    }
}

impl Source for Entries<'_> {
    type Value = Option<EntryValue>;

    fn next(&mut self) -> Result<Option<EntryAbove>, StateError> {
        let entry = self.next_entry()?;
        Ok(entry.map(|(key, value)| (key, Some(value))))
    }
}

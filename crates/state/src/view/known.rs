//! Values of a state that a session has read already. The reverts of its block need most of them again.
//!
//! Where the tries of roots have the leaves that a session reads, reverts are made from these. Under
//! `layered` no trie has them, and reading them twice took two thirds of the time that a root takes.

use crate::view::{batch::ValueCacheUse, read::LayeredKey, state::View};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, EntryValue};
use cambium_snapshot::{EntryKey, StateError};
use std::collections::HashMap;

/// Most values that are known at a time, so that a session that reads a whole state stays small.
const KNOWN_MAX: usize = 1 << 16;

/// The values, by their keys.
#[derive(Default)]
pub(crate) struct KnownValues {
    accounts: HashMap<B256, Option<Account>>,
    slots: HashMap<(B256, B256), U256>,
    entries: HashMap<EntryKey, Option<EntryValue>>,
}

/// A key whose value may be known.
pub(crate) trait KnownKey: LayeredKey<Value: Clone> + std::hash::Hash {
    /// The known values of such keys.
    fn in_known(known: &KnownValues) -> &HashMap<Self, Self::Value>;

    /// The same, to add some.
    fn in_known_mut(known: &mut KnownValues) -> &mut HashMap<Self, Self::Value>;
}

impl KnownKey for B256 {
    fn in_known(known: &KnownValues) -> &HashMap<Self, Self::Value> {
        &known.accounts
    }

    fn in_known_mut(known: &mut KnownValues) -> &mut HashMap<Self, Self::Value> {
        &mut known.accounts
    }
}

impl KnownKey for (B256, B256) {
    fn in_known(known: &KnownValues) -> &HashMap<Self, Self::Value> {
        &known.slots
    }

    fn in_known_mut(known: &mut KnownValues) -> &mut HashMap<Self, Self::Value> {
        &mut known.slots
    }
}

impl KnownKey for EntryKey {
    fn in_known(known: &KnownValues) -> &HashMap<Self, Self::Value> {
        &known.entries
    }

    fn in_known_mut(known: &mut KnownValues) -> &mut HashMap<Self, Self::Value> {
        &mut known.entries
    }
}

impl KnownValues {
    /// Adds values that were read, up to [`KNOWN_MAX`].
    pub(crate) fn add<K: KnownKey>(&mut self, keys: &[K], values: &[K::Value]) {
        let room = KNOWN_MAX.saturating_sub(self.len());
        let read = keys.iter().copied().zip(values.iter().cloned());
        K::in_known_mut(self).extend(read.take(room));
    }

    /// Reads keys of the state of `view`, to which the values belong.
    pub(crate) fn read<K: KnownKey>(
        &self,
        view: &View,
        keys: &[K],
    ) -> Result<Vec<K::Value>, StateError> {
        let known = K::in_known(self);
        let mut values: Vec<_> = keys.iter().map(|key| known.get(key).cloned()).collect();
        let is_unknown = |(_, value): &(&K, &Option<K::Value>)| value.is_none();
        let unknown = keys.iter().zip(&values).filter(is_unknown);
        let unknown: Vec<_> = unknown.map(|(key, _)| *key).collect();
        let mut read = view
            .read_all(&unknown, ValueCacheUse::ReadAndFill)?
            .into_iter();
        for value in values.iter_mut().filter(|value| value.is_none()) {
            *value = read.next();
        }
        Ok(values.into_iter().flatten().collect())
    }

    fn len(&self) -> usize {
        self.accounts.len() + self.slots.len() + self.entries.len()
    }
}

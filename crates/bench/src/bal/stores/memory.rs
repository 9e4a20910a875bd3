//! A state provider in memory, without a store. It shows the time and memory of execution itself,
//! which no store can save; for the memory, reads take as long as from a disk.

use super::provider::{ProviderError, Values, account_key, slot_key};
use cambium_primitives::{AccessList, DecodeError, PreStateValues, SlotValue};
use std::{collections::HashMap, thread, time::Duration};

/// The pre-state values of a block.
pub(crate) struct MemoryValues {
    values: HashMap<Box<[u8]>, Box<[u8]>>,
    /// Duration of a read, if it is delayed.
    read_time: Option<Duration>,
}

impl MemoryValues {
    /// Creates the provider for a block with this access list.
    pub(crate) fn new(
        list: &AccessList,
        found: &PreStateValues,
        read_time: Option<Duration>,
    ) -> Self {
        let mut values = HashMap::new();
        for (listed, found) in list.accounts().iter().zip(found.accounts()) {
            let address = &listed.address;
            if !found.account.is_empty() {
                let mut value = Vec::new();
                found.account.encode_to(&mut value);
                values.insert(account_key(address).as_slice().into(), value.into());
            }
            let slots = listed.storage_slots().zip(&found.slots);
            for (slot, value) in slots.filter(|(_, value)| !value.is_zero()) {
                let value = SlotValue::new(*value);
                let key = slot_key(address, slot);
                values.insert(key.as_slice().into(), value.as_bytes().into());
            }
        }
        Self { values, read_time }
    }
}

impl Values for MemoryValues {
    fn get<T>(
        &self,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, ProviderError> {
        if let Some(time) = self.read_time {
            thread::sleep(time);
        }
        Ok(self.values.get(key).map(|value| take(value)).transpose()?)
    }

    fn has_longer(&self, prefix: &[u8]) -> Result<bool, ProviderError> {
        let mut keys = self.values.keys();
        Ok(keys.any(|key| key.len() > prefix.len() && key.starts_with(prefix)))
    }

    fn configuration(&self) -> String {
        "no store: what the block finds, in a map".to_owned()
    }
}

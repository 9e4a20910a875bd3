//! Writes of transactions that have run, in any order, for transactions that run ahead.
//!
//! They are a guess at a transaction's pre-state, which is verified at its commit position.

use crate::overlay::is_gone;
use alloy_primitives::{Address, B256, U256, map::HashMap};
use revm::{
    bytecode::Bytecode,
    state::{AccountInfo, EvmState},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of maps, each with a lock of its own, so that threads rarely contend.
const SHARDS: usize = 64;

/// Values by key, and by the transaction that wrote them.
pub(super) struct Versions {
    shards: [Mutex<Shard>; SHARDS],
    /// The account that can't be guessed.
    beneficiary: Address,
}

#[derive(Default)]
struct Shard {
    accounts: HashMap<Address, ByIndex<Option<AccountInfo>>>,
    slots: HashMap<(Address, U256), ByIndex<U256>>,
    codes: HashMap<B256, Bytecode>,
}

/// The key of a write.
pub(super) enum Key {
    Account(Address),
    Slot(Address, U256),
}

/// Values by the transaction that wrote them, in order.
struct ByIndex<V>(Vec<(usize, V)>);

impl Versions {
    pub(super) fn new(beneficiary: Address) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            beneficiary,
        }
    }

    /// The account before transaction `index`; outer `None` if no earlier transaction that has run
    /// wrote it.
    pub(super) fn account(&self, address: Address, index: usize) -> Option<Option<AccountInfo>> {
        let shard = self.shard(address.0[19]);
        shard.accounts.get(&address)?.before(index).cloned()
    }

    /// The slot before transaction `index`; `None` if no earlier transaction that has run wrote it.
    /// Not called for accounts that do not exist.
    pub(super) fn slot(&self, address: Address, slot: U256, index: usize) -> Option<U256> {
        let shard = self.shard(address.0[19] ^ slot.byte(0));
        shard.slots.get(&(address, slot))?.before(index).copied()
    }

    /// A code that a transaction created.
    pub(super) fn code(&self, hash: &B256) -> Option<Bytecode> {
        self.shard(hash[31]).codes.get(hash).cloned()
    }

    /// Whether an account is read at the commit position only.
    pub(super) fn is_in_order(&self, address: &Address) -> bool {
        *address == self.beneficiary
    }

    /// Adds a transaction's writes and returns their keys.
    pub(super) fn put(&self, index: usize, state: &EvmState) -> Vec<Key> {
        let mut keys = Vec::new();
        let touched = state.iter().filter(|(_, account)| account.is_touched());
        for (address, account) in touched {
            let now = (!is_gone(account)).then_some(&account.info);
            if account.is_created() || now != Some(&account.original_info()) {
                if let Some(code) = now.and_then(|info| info.code.as_ref()) {
                    let hash = account.info.code_hash;
                    self.shard(hash[31]).codes.insert(hash, code.clone());
                }
                let mut shard = self.shard(address.0[19]);
                let versions = shard.accounts.entry(*address).or_default();
                versions.put(index, now.cloned());
                keys.push(Key::Account(*address));
            }
            if now.is_none() {
                continue;
            }
            for (slot, value) in &account.storage {
                if value.present_value == value.original_value {
                    continue;
                }
                let mut shard = self.shard(address.0[19] ^ slot.byte(0));
                let versions = shard.slots.entry((*address, *slot)).or_default();
                versions.put(index, value.present_value);
                keys.push(Key::Slot(*address, *slot));
            }
        }
        keys
    }

    /// Removes a transaction's writes, which were wrong.
    pub(super) fn remove(&self, index: usize, keys: &[Key]) {
        for key in keys {
            match key {
                Key::Account(address) => {
                    let mut shard = self.shard(address.0[19]);
                    if let Some(versions) = shard.accounts.get_mut(address) {
                        versions.remove(index);
                    }
                }
                Key::Slot(address, slot) => {
                    let mut shard = self.shard(address.0[19] ^ slot.byte(0));
                    if let Some(versions) = shard.slots.get_mut(&(*address, *slot)) {
                        versions.remove(index);
                    }
                }
            }
        }
    }

    fn shard(&self, by: u8) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[usize::from(by) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Default for ByIndex<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> ByIndex<V> {
    fn before(&self, index: usize) -> Option<&V> {
        let after = self.0.partition_point(|(at, _)| *at < index);
        Some(&self.0[after.checked_sub(1)?].1)
    }

    fn put(&mut self, index: usize, value: V) {
        match self.0.binary_search_by_key(&index, |(at, _)| *at) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (index, value)),
        }
    }

    fn remove(&mut self, index: usize) {
        if let Ok(place) = self.0.binary_search_by_key(&index, |(at, _)| *at) {
            self.0.remove(place);
        }
    }
}

//! Writes of transactions that have run, in any order, for transactions that run ahead.
//!
//! They are a guess at a transaction's pre-state, which is verified at its commit position.

use crate::overlay::is_gone;
use alloy_primitives::{
    Address, B256, U256,
    map::{AddressMap, B256Map, HashMap},
};
use revm::{
    bytecode::Bytecode,
    state::{AccountInfo, EvmState},
};
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// Number of maps, each with a lock of its own, so that threads rarely contend.
const SHARDS: usize = 64;

/// Number of words in the filter of written keys.
const FILTER_WORDS: usize = 1024;

/// Values by key, and by the transaction that wrote them.
pub(super) struct Versions {
    written: Filter,
    shards: [Mutex<Shard>; SHARDS],
    /// The account that can't be guessed.
    beneficiary: Address,
}

#[derive(Default)]
struct Shard {
    accounts: AddressMap<ByIndex<Option<AccountInfo>>>,
    slots: HashMap<(Address, U256), ByIndex<U256>>,
    codes: B256Map<Bytecode>,
}

/// The key of a write.
pub(super) enum Key {
    Account(Address),
    Slot(Address, U256),
}

/// Values by the transaction that wrote them, in order.
struct ByIndex<V>(Vec<Version<V>>);

struct Version<V> {
    index: usize,
    /// Whether the transaction was executed in order. A late result of running it ahead does not
    /// replace this value.
    is_final: bool,
    value: V,
}

impl Versions {
    pub(super) fn new(beneficiary: Address) -> Self {
        Self {
            written: Filter::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
            beneficiary,
        }
    }

    /// The account before transaction `index`; outer `None` if no earlier transaction that has run
    /// wrote it.
    pub(super) fn account(&self, address: Address, index: usize) -> Option<Option<AccountInfo>> {
        if !self.written.has(&address, U256::ZERO) {
            return None;
        }
        let shard = self.shard(address.0[19]);
        shard.accounts.get(&address)?.before(index).cloned()
    }

    /// The slot before transaction `index`; `None` if no earlier transaction that has run wrote it.
    /// Not called for accounts that do not exist.
    pub(super) fn slot(&self, address: Address, slot: U256, index: usize) -> Option<U256> {
        if !self.written.has(&address, slot) {
            return None;
        }
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

    /// Adds a transaction's writes and returns their keys. `is_final`: whether it was executed in
    /// order.
    pub(super) fn put(&self, index: usize, is_final: bool, state: &EvmState) -> Vec<Key> {
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
                versions.put(index, is_final, now.cloned());
                self.written.add(address, U256::ZERO);
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
                versions.put(index, is_final, value.present_value);
                self.written.add(address, *slot);
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

/// A set of keys, some of which it may contain without their having been added. Most keys that a
/// block reads are never written: for these one look here replaces a lock and a look-up.
struct Filter(Box<[AtomicU64]>);

impl Default for Filter {
    fn default() -> Self {
        Self((0..FILTER_WORDS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Filter {
    /// The word and the bit of an account, for which `slot` is zero, or of a slot.
    fn place(&self, address: &Address, slot: U256) -> (&AtomicU64, u64) {
        let [.., a, b, c, d] = address.0.0;
        let [low, _, _, high] = slot.into_limbs();
        let key = u64::from(u32::from_be_bytes([a, b, c, d])) ^ low ^ high.rotate_left(32);
        // Fibonacci hashing: the upper bits depend on all bits of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (hash >> 32) as usize % FILTER_WORDS;
        (&self.0[word], 1 << (hash >> 58))
    }

    /// Reads nothing but the bit: values are read under their shard's lock.
    fn has(&self, address: &Address, slot: U256) -> bool {
        let (word, bit) = self.place(address, slot);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn add(&self, address: &Address, slot: U256) {
        let (word, bit) = self.place(address, slot);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

impl<V> Default for ByIndex<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V> ByIndex<V> {
    fn before(&self, index: usize) -> Option<&V> {
        let after = self.0.partition_point(|version| version.index < index);
        Some(&self.0[after.checked_sub(1)?].value)
    }

    fn put(&mut self, index: usize, is_final: bool, value: V) {
        let version = Version {
            index,
            is_final,
            value,
        };
        match self.find(index) {
            Ok(place) if is_final || !self.0[place].is_final => self.0[place] = version,
            Ok(_) => {}
            Err(place) => self.0.insert(place, version),
        }
    }

    fn remove(&mut self, index: usize) {
        if let Ok(place) = self.find(index) {
            self.0.remove(place);
        }
    }

    fn find(&self, index: usize) -> Result<usize, usize> {
        self.0.binary_search_by_key(&index, |version| version.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_guess_does_not_replace_what_was_executed_in_order() {
        let mut versions = ByIndex::default();
        versions.put(1, false, "guess");
        versions.put(1, true, "in order");
        versions.put(1, false, "late guess");
        assert_eq!(versions.before(2), Some(&"in order"));
        versions.put(0, false, "earlier");
        assert_eq!(versions.before(1), Some(&"earlier"));
        versions.remove(1);
        assert_eq!(versions.before(2), Some(&"earlier"));
    }

    #[test]
    fn the_filter_contains_whatever_was_added_and_little_else() {
        let filter = Filter::default();
        let slot = |number: u64| (Address::with_last_byte(7), U256::from(number));
        for number in 0..1000 {
            let (address, slot) = slot(number);
            filter.add(&address, slot);
        }
        let contained = |numbers: std::ops::Range<u64>| {
            let slots = numbers.map(slot);
            slots
                .filter(|(address, slot)| filter.has(address, *slot))
                .count()
        };
        assert_eq!(contained(0..1000), 1000);
        assert!(contained(1000..11_000) < 1000);
    }
}

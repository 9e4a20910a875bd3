//! The block access list as execution goes (EIP-7928): every account and slot touched, and every
//! value that a step leaves different from what it found.
//!
//! A step is a block access index: 0 for the calls before the first transaction, 1 to n for the
//! transactions, n + 1 for what comes after them. Within a step only what was there before it
//! counts, so a value that goes and comes back is no change, and a slot so written is a read.

use alloy_eip7928::{
    AccountChanges, BalanceChange, BlockAccessIndex, BlockAccessList, CodeChange, NonceChange,
    SlotChanges, StorageChange,
};
use alloy_primitives::{Address, Bytes, U256, map::HashMap};
use cambium_primitives::Account;
use std::collections::{BTreeMap, BTreeSet};

/// Collects a block's accesses.
#[derive(Default)]
pub(crate) struct AccessListBuilder {
    index: u64,
    step: HashMap<Address, Found>,
    done: BTreeMap<Address, Listed>,
}

/// What a step found at an account that it touches.
struct Found {
    account: Account,
    slots: HashMap<U256, U256>,
}

/// What an account's entry will say.
#[derive(Default)]
struct Listed {
    slots: BTreeMap<U256, Vec<StorageChange>>,
    reads: BTreeSet<U256>,
    balances: Vec<BalanceChange>,
    nonces: Vec<NonceChange>,
    codes: Vec<CodeChange>,
}

/// What a step left at an account.
pub(crate) trait Left {
    /// Nonce, balance and code hash, zero if it does not exist.
    fn account(&self, address: &Address) -> Account;
    /// Its code.
    fn code(&self, account: &Account) -> Bytes;
    /// A slot that the step touched.
    fn slot(&self, address: &Address, slot: &U256) -> U256;
}

impl AccessListBuilder {
    /// Notes that an account is touched, which is `found` if this step did not touch it before.
    pub(crate) fn touch(&mut self, address: Address, found: Account) {
        self.step.entry(address).or_insert(Found {
            account: found,
            slots: HashMap::default(),
        });
    }

    /// Notes that a slot of a touched account is, which is `found` if this step did not touch it
    /// before.
    pub(crate) fn touch_slot(&mut self, address: Address, slot: U256, found: U256) {
        if let Some(account) = self.step.get_mut(&address) {
            account.slots.entry(slot).or_insert(found);
        }
    }

    /// Ends a step.
    pub(crate) fn end_step(&mut self, left: &impl Left) {
        let at = BlockAccessIndex(self.index);
        for (address, found) in self.step.drain() {
            let listed = self.done.entry(address).or_default();
            let now = left.account(&address);
            if now.balance != found.account.balance {
                listed.balances.push(BalanceChange::new(at, now.balance));
            }
            if now.nonce != found.account.nonce {
                listed.nonces.push(NonceChange::new(at, now.nonce));
            }
            if now.code_hash != found.account.code_hash {
                listed.codes.push(CodeChange::new(at, left.code(&now)));
            }
            for (slot, found) in found.slots {
                let now = left.slot(&address, &slot);
                if now == found {
                    listed.reads.insert(slot);
                } else {
                    listed
                        .slots
                        .entry(slot)
                        .or_default()
                        .push(StorageChange::new(at, now));
                }
            }
        }
        self.index += 1;
    }

    /// The list: accounts by address, slots by number, changes by index.
    pub(crate) fn finish(self) -> BlockAccessList {
        self.done
            .into_iter()
            .map(|(address, listed)| listed.into_changes(address))
            .collect()
    }
}

impl Listed {
    fn into_changes(self, address: Address) -> AccountChanges {
        let written = &self.slots;
        let storage_reads = self
            .reads
            .into_iter()
            .filter(|slot| !written.contains_key(slot))
            .collect();
        let storage_changes = self
            .slots
            .into_iter()
            .map(|(slot, changes)| SlotChanges { slot, changes })
            .collect();
        AccountChanges {
            address,
            storage_changes,
            storage_reads,
            balance_changes: self.balances,
            nonce_changes: self.nonces,
            code_changes: self.codes,
        }
    }
}

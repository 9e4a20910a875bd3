//! Builds a block's access list from its steps.

use super::{
    StepAccesses,
    step::{AccountAccesses, SomeAccesses},
};
use alloy_primitives::{
    Address, U256,
    map::{AddressMap, U256Map},
};
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BalanceChange, BlockAccessIndex, CodeChange,
    NonceChange, SlotChanges, StorageChange,
};

/// Collects the steps of a block.
#[derive(Default)]
pub(crate) struct AccessListBuilder {
    next: u64,
    accounts: AddressMap<Listed>,
}

/// The entry of an account.
#[derive(Default)]
struct Listed {
    /// Slots touched, with their changes; empty for slots that are only read.
    slots: U256Map<Vec<StorageChange>>,
    balances: Vec<BalanceChange>,
    nonces: Vec<NonceChange>,
    codes: Vec<CodeChange>,
}

impl AccessListBuilder {
    /// Adds the next step: the one before the transactions, then one for each transaction, then the
    /// one after them.
    pub(crate) fn add(&mut self, step: &StepAccesses) {
        let at = BlockAccessIndex(self.next);
        for account in &step.0 {
            self.accounts
                .entry(account.address)
                .or_default()
                .add(at, account);
        }
        self.next += 1;
    }

    /// Adds accesses of steps to some accounts. Steps are added in order.
    pub(crate) fn add_some(&mut self, accesses: &SomeAccesses) {
        for (step, account) in &accesses.0 {
            let listed = self.accounts.entry(account.address).or_default();
            listed.add(BlockAccessIndex(*step), account);
        }
    }

    /// Adds balances of an account after some steps, in any order. No step is added twice.
    pub(crate) fn add_balances(
        &mut self,
        address: Address,
        balances: impl Iterator<Item = (u64, U256)>,
    ) {
        let balances = balances.map(|(step, now)| BalanceChange::new(BlockAccessIndex(step), now));
        let listed = self.accounts.entry(address).or_default();
        listed.balances.extend(balances);
        listed
            .balances
            .sort_by_key(|change| change.block_access_index);
    }

    /// Builds the list.
    pub(crate) fn finish(self) -> AccessList {
        let steps = self.next;
        list_of(self.finish_some(), steps)
    }

    /// The entries of the list, sorted by address.
    pub(crate) fn finish_some(self) -> Vec<AccountChanges> {
        let accounts = sorted(self.accounts).into_iter();
        let accounts = accounts.map(|(address, listed)| listed.into_changes(address));
        accounts.collect()
    }
}

/// Builds the list of a block with this number of steps from its entries, sorted by address.
pub(crate) fn list_of(accounts: Vec<AccountChanges>, steps: u64) -> AccessList {
    let any = AccessListLimits {
        index_max: steps,
        items_max: u64::MAX,
    };
    AccessList::new(accounts, &any).expect("keys are sorted, and steps in order")
}

/// The entries of a map, sorted by key. Sorting once is faster than a sorted map.
fn sorted<K: Ord + Copy, V>(map: impl IntoIterator<Item = (K, V)>) -> Vec<(K, V)> {
    let mut sorted: Vec<_> = map.into_iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    sorted
}

impl Listed {
    fn add(&mut self, at: BlockAccessIndex, step: &AccountAccesses) {
        let AccountAccesses {
            address: _,
            balance,
            nonce,
            code,
            slots,
        } = step;
        self.balances
            .extend(balance.map(|balance| BalanceChange::new(at, balance)));
        self.nonces
            .extend(nonce.map(|nonce| NonceChange::new(at, nonce)));
        let code = code.as_ref();
        self.codes
            .extend(code.map(|code| CodeChange::new(at, code.clone())));
        for (slot, value) in slots {
            let changes = self.slots.entry(*slot).or_default();
            changes.extend(value.map(|value| StorageChange::new(at, value)));
        }
    }

    fn into_changes(self, address: Address) -> AccountChanges {
        let mut account = AccountChanges {
            balance_changes: self.balances,
            nonce_changes: self.nonces,
            code_changes: self.codes,
            ..AccountChanges::new(address)
        };
        for (slot, changes) in sorted(self.slots) {
            if changes.is_empty() {
                account.storage_reads.push(slot);
            } else {
                account
                    .storage_changes
                    .push(SlotChanges::new(slot, changes));
            }
        }
        account
    }
}

//! Builds a block's access list from its steps.

use super::{StepAccesses, step::AccountAccesses};
use alloy_primitives::{
    Address,
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
    pub(crate) fn add(&mut self, step: StepAccesses) {
        let at = BlockAccessIndex(self.next);
        for account in step.0 {
            self.accounts
                .entry(account.address)
                .or_default()
                .add(at, account);
        }
        self.next += 1;
    }

    /// Builds the list.
    pub(crate) fn finish(self) -> AccessList {
        let accounts = sorted(self.accounts).into_iter();
        let accounts = accounts.map(|(address, listed)| listed.into_changes(address));
        let any = AccessListLimits {
            index_max: self.next,
            items_max: u64::MAX,
        };
        AccessList::new(accounts.collect(), &any).expect("keys are sorted, and steps in order")
    }
}

/// The entries of a map, sorted by key. Sorting once is faster than a sorted map.
fn sorted<K: Ord + Copy, V>(map: impl IntoIterator<Item = (K, V)>) -> Vec<(K, V)> {
    let mut sorted: Vec<_> = map.into_iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    sorted
}

impl Listed {
    fn add(&mut self, at: BlockAccessIndex, step: AccountAccesses) {
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
        self.codes
            .extend(code.map(|code| CodeChange::new(at, code)));
        for (slot, value) in slots {
            let changes = self.slots.entry(slot).or_default();
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

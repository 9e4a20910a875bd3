//! All steps of a block as its access list.

use super::{StepAccesses, step::AccountAccesses};
use alloy_primitives::{Address, U256, map::HashMap};
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BalanceChange, BlockAccessIndex, CodeChange,
    NonceChange, SlotChanges, StorageChange,
};

/// Puts the steps of a block together.
#[derive(Default)]
pub(crate) struct AccessListBuilder {
    next: u64,
    accounts: HashMap<Address, Listed>,
}

/// What an account's entry will say.
#[derive(Default)]
struct Listed {
    /// Slots touched, those that no step changed with no changes.
    slots: HashMap<U256, Vec<StorageChange>>,
    balances: Vec<BalanceChange>,
    nonces: Vec<NonceChange>,
    codes: Vec<CodeChange>,
}

impl AccessListBuilder {
    /// Takes in the next step: first that before the transactions, then one for each of them,
    /// then that after them.
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

    /// The list.
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

/// What a map has, by key: sorting once is faster than keeping in order what comes one by one.
fn sorted<K: Ord + Copy, V>(map: HashMap<K, V>) -> Vec<(K, V)> {
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

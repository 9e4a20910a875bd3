//! All steps of a block as its access list.

use super::{StepAccesses, step::AccountAccesses};
use alloy_primitives::{Address, U256};
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BalanceChange, BlockAccessIndex, CodeChange,
    NonceChange, SlotChanges, StorageChange,
};
use std::collections::BTreeMap;

/// Puts the steps of a block together.
#[derive(Default)]
pub(crate) struct AccessListBuilder {
    next: u64,
    accounts: BTreeMap<Address, Listed>,
}

/// What an account's entry will say.
#[derive(Default)]
struct Listed {
    /// Slots touched, those that no step changed with no changes.
    slots: BTreeMap<U256, Vec<StorageChange>>,
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
        let accounts = self.accounts.into_iter();
        let accounts = accounts.map(|(address, listed)| listed.into_changes(address));
        let any = AccessListLimits {
            index_max: self.next,
            items_max: u64::MAX,
        };
        AccessList::new(accounts.collect(), &any).expect("maps are in order, and so are steps")
    }
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
        for (slot, changes) in self.slots {
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

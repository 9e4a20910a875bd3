//! A step against what a list says of it.

use super::{StepAccesses, step::AccountAccesses};
use cambium_primitives::{AccessList, AccountChanges, BlockAccessIndex};

impl StepAccesses {
    /// How many changes the step made, if the list has each of them at index `at`.
    pub(crate) fn changes_in(&self, list: &AccessList, at: u64) -> Option<u64> {
        let mut changes = 0;
        for account in self.0.iter().filter(|account| account.is_changed()) {
            changes += account.changes_in(list.account(&account.address)?, at)?;
        }
        Some(changes)
    }
}

impl AccountAccesses {
    fn is_changed(&self) -> bool {
        self.balance.is_some()
            || self.nonce.is_some()
            || self.code.is_some()
            || self.slots.iter().any(|(_, value)| value.is_some())
    }

    fn changes_in(&self, listed: &AccountChanges, at: u64) -> Option<u64> {
        let mut changes = 0;
        if let Some(balance) = self.balance {
            let listed = at_index(&listed.balance_changes, at, |c| c.block_access_index)?;
            changes += is_same(&listed.post_balance, &balance)?;
        }
        if let Some(nonce) = self.nonce {
            let listed = at_index(&listed.nonce_changes, at, |c| c.block_access_index)?;
            changes += is_same(&listed.new_nonce, &nonce)?;
        }
        if let Some(code) = &self.code {
            let listed = at_index(&listed.code_changes, at, |c| c.block_access_index)?;
            changes += is_same(&listed.new_code, code)?;
        }
        for (slot, value) in &self.slots {
            let Some(value) = value else { continue };
            let slots = &listed.storage_changes;
            let place = slots.binary_search_by_key(slot, |changed| changed.slot);
            let slot = &slots[place.ok()?];
            let listed = at_index(&slot.changes, at, |c| c.block_access_index)?;
            changes += is_same(&listed.new_value, value)?;
        }
        Some(changes)
    }
}

fn at_index<C>(changes: &[C], at: u64, index: impl Fn(&C) -> BlockAccessIndex) -> Option<&C> {
    let place = changes.binary_search_by_key(&at, |change| index(change).get());
    Some(&changes[place.ok()?])
}

fn is_same<V: PartialEq>(listed: &V, made: &V) -> Option<u64> {
    (listed == made).then_some(1)
}

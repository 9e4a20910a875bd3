//! Keys touched and values changed by one step of a block.

use alloy_primitives::{
    Address, Bytes, U256,
    map::{AddressMap, U256Map},
};
use cambium_primitives::Account;

/// Records the values that accounts and slots have when a step first touches them.
#[derive(Default)]
pub(crate) struct StepRecorder(AddressMap<Found>);

struct Found {
    account: Account,
    slots: U256Map<U256>,
}

/// The state after a step.
pub(crate) trait Left {
    /// Nonce, balance and code hash of an account; the default account if it does not exist.
    fn account(&self, address: &Address) -> Account;
    /// The code of an account whose code the step changed.
    fn code(&self, account: &Account) -> Bytes;
    /// The value of a slot that the step touched.
    fn slot(&self, address: &Address, slot: &U256) -> U256;
}

/// The keys that a step touched, and the values that it changed.
pub(crate) struct StepAccesses(pub(super) Vec<AccountAccesses>);

impl StepAccesses {
    /// Removes the new balances of accounts that `is_added_to`: those that the step left are
    /// guesses.
    pub(crate) fn remove_balances(&mut self, is_added_to: impl Fn(&Address) -> bool) {
        let guessed = self.0.iter_mut().filter(|it| is_added_to(&it.address));
        guessed.for_each(|account| account.balance = None);
    }

    /// Adds the accesses to each account to the part that it belongs to.
    pub(crate) fn divide(
        self,
        step: u64,
        part_of: impl Fn(&Address) -> usize,
        parts: &mut [SomeAccesses],
    ) {
        for account in self.0 {
            parts[part_of(&account.address)].0.push((step, account));
        }
    }
}

/// Accesses of steps to some of their accounts, in the order of the steps.
#[derive(Default)]
pub(crate) struct SomeAccesses(pub(super) Vec<(u64, AccountAccesses)>);

impl SomeAccesses {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(super) struct AccountAccesses {
    pub(super) address: Address,
    pub(super) balance: Option<U256>,
    pub(super) nonce: Option<u64>,
    pub(super) code: Option<Bytes>,
    /// Slots touched, each with its new value if it changed.
    pub(super) slots: Vec<(U256, Option<U256>)>,
}

impl StepRecorder {
    /// Records that the step touches an account. `found` is its value, which is kept at the first
    /// touch.
    pub(crate) fn touch(&mut self, address: Address, found: Account) {
        self.0.entry(address).or_insert(Found {
            account: found,
            slots: U256Map::default(),
        });
    }

    /// Records that the step touches a slot of a touched account. `found` is its value, which is
    /// kept at the first touch.
    pub(crate) fn touch_slot(&mut self, address: Address, slot: U256, found: U256) {
        if let Some(account) = self.0.get_mut(&address) {
            account.slots.entry(slot).or_insert(found);
        }
    }

    /// Ends the step and starts the next one.
    pub(crate) fn end(&mut self, left: &impl Left) -> StepAccesses {
        let accesses = self.0.drain().map(|(address, found)| {
            let (before, now) = (found.account, left.account(&address));
            let slots = found.slots.into_iter().map(|(slot, before)| {
                let now = left.slot(&address, &slot);
                (slot, (now != before).then_some(now))
            });
            AccountAccesses {
                address,
                balance: (now.balance != before.balance).then_some(now.balance),
                nonce: (now.nonce != before.nonce).then_some(now.nonce),
                code: (now.code_hash != before.code_hash).then(|| left.code(&now)),
                slots: slots.collect(),
            }
        });
        StepAccesses(accesses.collect())
    }
}

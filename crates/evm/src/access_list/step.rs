//! One step of a block: the calls before its transactions, a transaction, or all that comes
//! after them.

use alloy_primitives::{Address, Bytes, U256, map::HashMap};
use cambium_primitives::Account;

/// Notes what a step finds at the accounts and slots that it touches.
#[derive(Default)]
pub(crate) struct StepRecorder(HashMap<Address, Found>);

struct Found {
    account: Account,
    slots: HashMap<U256, U256>,
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

/// What a step touched, and what it left different from what it found.
pub(crate) struct StepAccesses(pub(super) Vec<AccountAccesses>);

pub(super) struct AccountAccesses {
    pub(super) address: Address,
    pub(super) balance: Option<U256>,
    pub(super) nonce: Option<u64>,
    pub(super) code: Option<Bytes>,
    /// Slots touched, each with its value if that is another one.
    pub(super) slots: Vec<(U256, Option<U256>)>,
}

impl StepRecorder {
    /// Notes that an account is touched, which is `found` if this step did not touch it before.
    pub(crate) fn touch(&mut self, address: Address, found: Account) {
        self.0.entry(address).or_insert(Found {
            account: found,
            slots: HashMap::default(),
        });
    }

    /// Notes that a slot of a touched account is, which is `found` if this step did not touch it
    /// before.
    pub(crate) fn touch_slot(&mut self, address: Address, slot: U256, found: U256) {
        if let Some(account) = self.0.get_mut(&address) {
            account.slots.entry(slot).or_insert(found);
        }
    }

    /// Ends the step, and begins the next.
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

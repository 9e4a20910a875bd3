//! Reads and writes of a transaction, as optimistic execution compares and shares them.
//!
//! A transaction that neither looks at an account's balance nor changes anything but its balance
//! (and its nonce, if it is the sender) has the same effect whatever the balance is, as long as it
//! suffices. Its write is then an addition, and its read requires a *sufficient* balance only. So
//! payments to one account, and those of one sender, do not conflict.

use alloy_primitives::{Address, B256, U256};
use cambium_primitives::Account;
use revm::{bytecode::Bytecode, state::AccountInfo};

/// Accounts and slots that a transaction read.
#[derive(Default)]
pub(crate) struct Reads {
    pub(crate) accounts: Vec<AccountRead>,
    /// The slots of all accounts, in the order of the accounts.
    pub(crate) slots: Vec<(U256, U256)>,
}

/// An account that a transaction read.
pub(crate) struct AccountRead {
    pub(crate) address: Address,
    pub(crate) found: Option<Account>,
    /// Whether `found` has a nonce that was not read: that of the sender's transaction.
    pub(crate) is_guess: bool,
    pub(crate) needs: Needs,
    /// Number of its slots that were read.
    pub(crate) slot_count: usize,
}

/// The sender of a transaction.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) address: Address,
    /// Balance that the transaction needs before it runs, in wei.
    pub(crate) balance: U256,
    /// Whether the nonce that the transaction found was not read, but is its own.
    pub(crate) is_guess: bool,
}

/// What the effect of a transaction depends on, of an account that it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// All fields.
    Equal,
    /// Nonce, code and emptiness, and that the balance is at least this.
    Balance(U256),
}

/// Balances of more bits are never added to: a sum could overflow.
const BALANCE_BITS: usize = 255;
/// Amounts of more bits are not written as additions.
const AMOUNT_BITS: usize = 128;

impl AccountRead {
    /// Whether the transaction has the same effect if the account is `now`.
    pub(crate) fn agrees_with(&self, now: Option<&Account>) -> bool {
        let least = match self.needs {
            Needs::Equal => return self.found.as_ref() == now,
            Needs::Balance(least) => least,
        };
        let exists = |account: Option<&Account>| account.is_some_and(|it| !it.is_empty());
        if exists(self.found.as_ref()) != exists(now) {
            return false;
        }
        match (&self.found, now) {
            (Some(found), Some(now)) => {
                found.nonce == now.nonce
                    && found.code_hash == now.code_hash
                    && now.balance >= least
                    && is_addable(now.balance)
            }
            (None, None) => least.is_zero(),
            // An account that exists and is empty differs from none: touching it deletes it.
            _ => false,
        }
    }
}

/// Whether amounts can be added to a balance without regard to their order.
pub(crate) fn is_addable(balance: U256) -> bool {
    balance.bit_len() <= BALANCE_BITS
}

/// The difference of two balances modulo 2^256, if it is small enough for [`AccountWrite::Add`].
pub(crate) fn difference(before: U256, now: U256) -> Option<U256> {
    let amount = before.abs_diff(now);
    let is_small = is_addable(before) && amount.bit_len() <= AMOUNT_BITS;
    is_small.then(|| now.wrapping_sub(before))
}

/// A database that notes which balances a transaction depends on.
pub(crate) trait ObserveBalance {
    /// Notes that the transaction depends on the balance of an account that it has loaded.
    fn observe_balance(&mut self, address: Address);
}

/// Writes of a transaction.
#[derive(Default)]
pub(crate) struct Writes {
    pub(crate) accounts: Vec<(Address, AccountWrite)>,
    pub(crate) slots: Vec<SlotWrite>,
    /// Codes of created contracts, by hash.
    pub(crate) codes: Vec<(B256, Bytecode)>,
}

/// A write of an account's fields.
pub(crate) enum AccountWrite {
    /// All fields are set, or the account is deleted.
    Set {
        /// The account as the transaction read it.
        before: Option<Account>,
        now: Option<AccountInfo>,
        /// Whether older slots of the account are deleted.
        wiped: bool,
    },
    /// The balance and the nonce change by these amounts, the balance modulo 2^256.
    Add { balance: U256, nonce: u64 },
}

/// A write of a slot.
pub(crate) struct SlotWrite {
    pub(crate) address: Address,
    pub(crate) slot: U256,
    /// The value that the transaction read.
    pub(crate) before: U256,
    pub(crate) now: U256,
    /// Whether the transaction created the account. The slot was not read then.
    pub(crate) created: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(nonce: u64, balance: U256) -> Account {
        Account {
            nonce,
            balance,
            ..Account::default()
        }
    }

    fn read(found: Option<Account>, needs: Needs) -> AccountRead {
        AccountRead {
            address: Address::ZERO,
            found,
            is_guess: false,
            needs,
            slot_count: 0,
        }
    }

    #[test]
    fn a_read_agrees_with_what_has_the_same_effect() {
        let [none, ten, twenty] = [0, 10, 20].map(|balance| account(1, U256::from(balance)));
        let equal = read(Some(ten), Needs::Equal);
        assert!(equal.agrees_with(Some(&ten)) && !equal.agrees_with(Some(&twenty)));
        let enough = read(Some(ten), Needs::Balance(U256::from(10)));
        assert!(enough.agrees_with(Some(&twenty)));
        assert!(!enough.agrees_with(Some(&none)) && !enough.agrees_with(None));
        assert!(!enough.agrees_with(Some(&account(2, ten.balance))));
        assert!(
            !enough.agrees_with(Some(&account(1, U256::MAX))),
            "a sum could overflow"
        );
        let new = read(None, Needs::Balance(U256::ZERO));
        assert!(new.agrees_with(None) && !new.agrees_with(Some(&ten)));
        assert!(
            !new.agrees_with(Some(&Account::default())),
            "touching it deletes it"
        );
    }

    #[test]
    fn only_small_differences_are_additions() {
        let [one, five] = [1, 5].map(U256::from);
        assert_eq!(difference(one, five), Some(U256::from(4)));
        assert_eq!(difference(five, one), Some(U256::MAX - U256::from(3)));
        assert_eq!(difference(U256::ZERO, U256::MAX >> 1), None);
        assert_eq!(difference(U256::MAX, U256::MAX), None);
    }
}

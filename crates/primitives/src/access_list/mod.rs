//! Block access lists (EIP-7928): every account and slot that a block touches, and every value
//! that it changes, by the step of the block that changes it.
//!
//! A *block access index* numbers the steps: 0 is what the protocol does before the first
//! transaction, 1 to n are the transactions, n + 1 is what comes after them. A change names the
//! value that a step leaves, if it is not the one that the step found.
//!
//! ```text
//!  account          address
//!    slots changed  slot -> (index, value) ..
//!    slots read     slot ..              and left by every step as they were
//!    balances       (index, balance) ..
//!    nonces         (index, nonce) ..
//!    codes          (index, code) ..
//! ```
//!
//! The parts of a list are [`alloy_eip7928`]'s. [`AccessList`] is one that is in the one form
//! that there is of it; what is in another form does not decode.

mod changes;
mod check;
mod decode;
mod difference;
mod found;

pub use alloy_eip7928::{
    AccountChanges, BalanceChange, BlockAccessIndex, CodeChange, NonceChange, SlotChanges,
    StorageChange,
};
pub use check::AccessListError;
pub use difference::{AccessListDifference, AccessValue};
pub use found::{FoundAccount, FoundValues, FoundValuesError};

use alloc::{sync::Arc, vec::Vec};
use alloy_primitives::{Address, B256, U256, keccak256};
use core::fmt;

/// Gas of the gas limit that one item of a list stands for.
pub const ACCESS_LIST_ITEM_GAS: u64 = 2_000;

/// A block's access list in its canonical form: accounts in the order of their addresses, slots
/// in the order of their numbers, changes in the order of their indices, nothing twice, no slot
/// both read and changed, no changed slot without a change.
///
/// Clones are cheap: they share the accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList(Arc<Vec<AccountChanges>>);

/// What bounds a block's access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessListLimits {
    /// The highest block access index: one more than there are transactions.
    pub index_max: u64,
    /// Accounts and slots together, at most.
    pub items_max: u64,
}

/// How much there is in an access list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessListCounts {
    /// Accounts.
    pub accounts: u64,
    /// Accounts of which anything changes.
    pub accounts_changed: u64,
    /// Slots that change.
    pub slots_changed: u64,
    /// Slots that are only read.
    pub slots_read: u64,
    /// Changes of slots; a slot may change more than once.
    pub slot_changes: u64,
    /// Changes of balances.
    pub balance_changes: u64,
    /// Changes of nonces.
    pub nonce_changes: u64,
    /// Changes of code.
    pub code_changes: u64,
}

/// What of an account a change is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessField {
    /// A slot.
    Slot(U256),
    /// The balance.
    Balance,
    /// The nonce.
    Nonce,
    /// The code.
    Code,
}

impl fmt::Display for AccessField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(f, "slot {slot:#x}"),
            Self::Balance => f.write_str("balance"),
            Self::Nonce => f.write_str("nonce"),
            Self::Code => f.write_str("code"),
        }
    }
}

impl AccessListLimits {
    /// Nothing but what an index can be.
    pub const fn of_transactions(transactions: usize) -> Self {
        Self {
            index_max: transactions as u64 + 1,
            items_max: u64::MAX,
        }
    }

    /// What a block of that gas limit may have, from Amsterdam on.
    pub const fn of_block(transactions: usize, gas_limit: u64) -> Self {
        Self {
            items_max: gas_limit / ACCESS_LIST_ITEM_GAS,
            ..Self::of_transactions(transactions)
        }
    }
}

impl AccessListCounts {
    /// Accounts and slots together.
    pub const fn items(&self) -> u64 {
        self.accounts + self.slots_changed + self.slots_read
    }

    /// Changes of all fields together.
    pub const fn changes(&self) -> u64 {
        self.slot_changes + self.balance_changes + self.nonce_changes + self.code_changes
    }
}

impl AccessList {
    /// Takes accounts with their changes, if they are in canonical form and within limits.
    pub fn new(
        accounts: Vec<AccountChanges>,
        limits: &AccessListLimits,
    ) -> Result<Self, AccessListError> {
        let list = Self(Arc::new(accounts));
        check::items(&list.counts(), limits)?;
        let mut before = None;
        for account in list.accounts() {
            check::account_order(before, account.address)?;
            check::account(account, limits)?;
            before = Some(account.address);
        }
        Ok(list)
    }

    /// Decodes a list from exactly these bytes. Memory is taken for what is there only, and no
    /// more of it than the limits allow.
    pub fn decode(bytes: &[u8], limits: &AccessListLimits) -> Result<Self, AccessListError> {
        let accounts = decode::decode(bytes, limits)?;
        Ok(Self(Arc::new(accounts)))
    }

    /// The RLP of the list.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        alloy_rlp::encode_list(self.accounts(), &mut out);
        out
    }

    /// What a header says of the list: Keccak-256 of its RLP.
    pub fn hash(&self) -> B256 {
        keccak256(self.encode())
    }

    /// The accounts, in order.
    pub fn accounts(&self) -> &[AccountChanges] {
        &self.0
    }

    /// The accounts, in order.
    pub fn into_accounts(self) -> Vec<AccountChanges> {
        Arc::unwrap_or_clone(self.0)
    }

    /// What it says of an account.
    pub fn account(&self, address: &Address) -> Option<&AccountChanges> {
        let at = self
            .0
            .binary_search_by_key(address, |listed| listed.address);
        Some(&self.0[at.ok()?])
    }

    /// Whether anything of a listed account changes.
    pub fn is_changed(account: &AccountChanges) -> bool {
        !account.storage_changes.is_empty()
            || !account.balance_changes.is_empty()
            || !account.nonce_changes.is_empty()
            || !account.code_changes.is_empty()
    }

    /// How much there is in it.
    pub fn counts(&self) -> AccessListCounts {
        let mut counts = AccessListCounts::default();
        for account in self.accounts() {
            counts.accounts += 1;
            counts.accounts_changed += u64::from(Self::is_changed(account));
            counts.slots_changed += account.storage_changes.len() as u64;
            counts.slots_read += account.storage_reads.len() as u64;
            let changes = account.storage_changes.iter();
            counts.slot_changes += changes.map(|slot| slot.changes.len() as u64).sum::<u64>();
            counts.balance_changes += account.balance_changes.len() as u64;
            counts.nonce_changes += account.nonce_changes.len() as u64;
            counts.code_changes += account.code_changes.len() as u64;
        }
        counts
    }

    /// The changes alone: without slots and accounts that are only read.
    pub fn changes_only(&self) -> Self {
        let changed = self.0.iter().filter(|account| Self::is_changed(account));
        let without_reads = changed.map(|account| AccountChanges {
            storage_reads: Vec::new(),
            ..account.clone()
        });
        Self(Arc::new(without_reads.collect()))
    }

    /// The first place in which `given` is not this list, which execution gave.
    pub fn first_difference(&self, given: &Self) -> Option<AccessListDifference> {
        if Arc::ptr_eq(&self.0, &given.0) {
            return None;
        }
        difference::first(&self.0, &given.0)
    }
}

#[cfg(test)]
mod tests;

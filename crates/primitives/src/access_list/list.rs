//! Access lists in canonical form.

use super::{
    check::{self, AccessListError},
    decode,
    difference::{self, AccessListDifference},
    limits::{AccessListCounts, AccessListLimits},
};
use alloc::{sync::Arc, vec::Vec};
use alloy_eip7928::AccountChanges;
use alloy_primitives::{Address, B256, keccak256};

/// Access list of a block (EIP-7928) in canonical form: accounts sorted by address, slots by number
/// and changes by index, all unique. No slot is both read and changed, and no changed slot is
/// without a change.
///
/// Clones share the accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList(Arc<Vec<AccountChanges>>);

impl AccessList {
    /// Creates a list from accounts with their changes.
    ///
    /// # Errors
    ///
    /// Returns an error if the accounts are not in canonical form or exceed the limits.
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

    /// Decodes a list from exactly `bytes`, which are untrusted. Takes no more memory than the
    /// limits allow.
    ///
    /// # Errors
    ///
    /// Returns an error if the RLP is malformed, or the list is not in canonical form or exceeds
    /// the limits.
    pub fn decode(bytes: &[u8], limits: &AccessListLimits) -> Result<Self, AccessListError> {
        let accounts = decode::decode(bytes, limits)?;
        Ok(Self(Arc::new(accounts)))
    }

    /// Returns the RLP of the list.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        alloy_rlp::encode_list(self.accounts(), &mut out);
        out
    }

    /// Returns the hash of the list in the block header: the Keccak-256 hash of its RLP.
    pub fn hash(&self) -> B256 {
        keccak256(self.encode())
    }

    /// Returns the accounts, sorted by address.
    pub fn accounts(&self) -> &[AccountChanges] {
        &self.0
    }

    /// Returns the accounts, sorted by address, without copying them if this is the only clone.
    pub fn into_accounts(self) -> Vec<AccountChanges> {
        Arc::unwrap_or_clone(self.0)
    }

    /// Returns the entry of an account, if it is in the list.
    pub fn account(&self, address: &Address) -> Option<&AccountChanges> {
        let at = self
            .0
            .binary_search_by_key(address, |listed| listed.address);
        Some(&self.0[at.ok()?])
    }

    /// Returns whether a listed account has any change.
    pub fn is_changed(account: &AccountChanges) -> bool {
        !account.storage_changes.is_empty()
            || !account.balance_changes.is_empty()
            || !account.nonce_changes.is_empty()
            || !account.code_changes.is_empty()
    }

    /// Counts the items and changes of the list.
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

    /// Returns the list without slots and accounts that are only read.
    pub fn changes_only(&self) -> Self {
        let changed = self.0.iter().filter(|account| Self::is_changed(account));
        let without_reads = changed.map(|account| AccountChanges {
            storage_reads: Vec::new(),
            ..account.clone()
        });
        Self(Arc::new(without_reads.collect()))
    }

    /// Returns the first difference between this list, which execution produced, and `given`.
    pub fn first_difference(&self, given: &Self) -> Option<AccessListDifference> {
        if Arc::ptr_eq(&self.0, &given.0) {
            return None;
        }
        difference::first(&self.0, &given.0)
    }
}

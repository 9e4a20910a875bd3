//! The list itself: accounts in the one form that there is of them.

use super::{
    check::{self, AccessListError},
    decode,
    difference::{self, AccessListDifference},
    limits::{AccessListCounts, AccessListLimits},
};
use alloc::{sync::Arc, vec::Vec};
use alloy_eip7928::AccountChanges;
use alloy_primitives::{Address, B256, keccak256};

/// A block's access list in its canonical form: accounts in the order of their addresses, slots
/// in the order of their numbers, changes in the order of their indices, nothing twice, no slot
/// both read and changed, no changed slot without a change.
///
/// Clones are cheap: they share the accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList(Arc<Vec<AccountChanges>>);

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

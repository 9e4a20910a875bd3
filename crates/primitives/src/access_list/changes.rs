//! State changes of a block, from its access list alone.

use super::list::AccessList;
use crate::{Account, AccountDiff, AccountUpdate, Changes};
use alloc::{collections::BTreeMap, vec::Vec};
use alloy_eip7928::{AccountChanges, SlotChanges};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_keccak::keccak256_each;
use core::ops::Range;

impl AccessList {
    /// Returns the state changes of the block: the last value of each changed field. `account` and
    /// `slot` return pre-state values, of accounts with any change and of slots with several
    /// changes, whose last value may equal the first. An account that ends empty is deleted
    /// (EIP-161).
    ///
    /// From Cancun on the result is complete, unless the pre-state has empty accounts. Before
    /// Cancun, access lists lack the slots that SELFDESTRUCT removes.
    ///
    /// # Errors
    ///
    /// Returns the first error of `account` or `slot`.
    pub fn changes<E>(
        &self,
        account: impl FnMut(Address) -> Result<Option<Account>, E>,
        slot: impl FnMut(Address, U256) -> Result<U256, E>,
    ) -> Result<Changes, E> {
        let all = self.changes_of(0..self.accounts().len(), account, slot)?;
        Ok(Changes::new(all))
    }

    /// As [`Self::changes`], but returns only the changes of the accounts at these positions, in
    /// the order of the list.
    ///
    /// # Errors
    ///
    /// Returns the first error of `account` or `slot`.
    ///
    /// # Panics
    ///
    /// If a position is out of range.
    pub fn changes_of<E>(
        &self,
        positions: Range<usize>,
        mut account: impl FnMut(Address) -> Result<Option<Account>, E>,
        mut slot: impl FnMut(Address, U256) -> Result<U256, E>,
    ) -> Result<Vec<AccountDiff>, E> {
        let accounts = &self.accounts()[positions];
        let changed = || accounts.iter().filter(|listed| Self::is_changed(listed));
        let slots = changed().flat_map(|listed| &listed.storage_changes);
        let paths = keccak256_each(changed().map(|listed| listed.address));
        let slot_paths = keccak256_each(slots.map(|changed| changed.slot.to_be_bytes::<32>()));
        let mut slot_paths = slot_paths.into_iter();
        let mut changes = Vec::with_capacity(paths.len());
        for (listed, path) in changed().zip(paths) {
            let before = account(listed.address)?;
            let mut slots = Vec::with_capacity(listed.storage_changes.len());
            // `zip` takes from `slot_paths` last, so that it does not consume the path of the next
            // account's slot.
            for (changed, path) in listed.storage_changes.iter().zip(slot_paths.by_ref()) {
                let value = last_value(changed, || slot(listed.address, changed.slot))?;
                slots.extend(value.map(|value| (path, value)));
            }
            changes.extend(account_change(listed, path, before, slots));
        }
        Ok(changes)
    }

    /// Returns the codes that the block deploys, by hash.
    pub fn codes(&self) -> Vec<(B256, Bytes)> {
        let changes = self
            .accounts()
            .iter()
            .flat_map(|listed| &listed.code_changes);
        let codes = changes.map(|change| &change.new_code);
        let codes = codes.filter(|code| !code.is_empty());
        let by_hash: BTreeMap<_, _> = codes.map(|code| (keccak256(code), code.clone())).collect();
        by_hash.into_iter().collect()
    }
}

/// Returns the last value of a slot if it differs from the value `before` the block.
fn last_value<E>(
    changed: &SlotChanges,
    before: impl FnOnce() -> Result<U256, E>,
) -> Result<Option<U256>, E> {
    let Some(last) = changed.changes.last() else {
        return Ok(None);
    };
    let is_changed = changed.changes.len() == 1 || before()? != last.new_value;
    Ok(is_changed.then_some(last.new_value))
}

fn account_change(
    listed: &AccountChanges,
    path: B256,
    before: Option<Account>,
    slots: Vec<(B256, U256)>,
) -> Option<AccountDiff> {
    let mut after = before.unwrap_or_default();
    if let Some(last) = listed.balance_changes.last() {
        after.balance = last.post_balance;
    }
    if let Some(last) = listed.nonce_changes.last() {
        after.nonce = last.new_nonce;
    }
    if let Some(last) = listed.code_changes.last() {
        after.code_hash = keccak256(&last.new_code);
    }
    if after.is_empty() {
        return before.map(|_| AccountDiff {
            path,
            account: AccountUpdate::Delete,
            wipe: true,
            slots: Vec::new(),
        });
    }
    let account = match before == Some(after) {
        true => AccountUpdate::Keep,
        false => AccountUpdate::Put(after),
    };
    if account == AccountUpdate::Keep && slots.is_empty() {
        return None;
    }
    Some(AccountDiff {
        path,
        account,
        wipe: false,
        slots,
    })
}

//! Rules that an access list must follow independently of execution.

use super::{
    field::AccessField,
    limits::{AccessListCounts, AccessListLimits},
};
use alloy_eip7928::{AccountChanges, BlockAccessIndex};
use alloy_primitives::{Address, U256};
use core::cmp::Ordering;

/// Error of an access list that is malformed, not canonical or too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum AccessListError {
    #[error("malformed RLP after {account_count} accounts: {error}")]
    Rlp {
        account_count: usize,
        error: alloy_rlp::Error,
    },
    #[error("more than the {max} accounts and slots that the gas limit allows")]
    Items { max: u64 },
    #[error("account {address} is listed twice")]
    AccountTwice { address: Address },
    #[error("account {address} is listed after {before}, but goes before it")]
    AccountOrder { address: Address, before: Address },
    #[error("account {address}: slot {slot:#x} is listed twice")]
    SlotTwice { address: Address, slot: U256 },
    #[error("account {address}: slot {slot:#x} is listed after {before:#x}, but goes before it")]
    SlotOrder {
        address: Address,
        slot: U256,
        before: U256,
    },
    #[error("account {address}: slot {slot:#x} is listed as read and as changed")]
    SlotReadAndChanged { address: Address, slot: U256 },
    #[error("account {address}: slot {slot:#x} is listed as changed, without a change")]
    NoChange { address: Address, slot: U256 },
    #[error("account {address}: {field} changes twice at index {index}")]
    IndexTwice {
        address: Address,
        field: AccessField,
        index: u64,
    },
    #[error("account {address}: {field} changes at index {before}, and after that at {index}")]
    IndexOrder {
        address: Address,
        field: AccessField,
        index: u64,
        before: u64,
    },
    #[error("account {address}: {field} changes at index {index}, but the block's last is {max}")]
    IndexTooHigh {
        address: Address,
        field: AccessField,
        index: u64,
        max: u64,
    },
}

pub(super) fn items(
    counts: &AccessListCounts,
    limits: &AccessListLimits,
) -> Result<(), AccessListError> {
    let max = limits.items_max;
    if counts.items() > max {
        return Err(AccessListError::Items { max });
    }
    Ok(())
}

pub(super) fn account_order(
    before: Option<Address>,
    address: Address,
) -> Result<(), AccessListError> {
    match before.map(|before| (before, before.cmp(&address))) {
        Some((_, Ordering::Equal)) => Err(AccessListError::AccountTwice { address }),
        Some((before, Ordering::Greater)) => Err(AccessListError::AccountOrder { address, before }),
        _ => Ok(()),
    }
}

/// Checks the rules for one account.
pub(super) fn account(
    account: &AccountChanges,
    limits: &AccessListLimits,
) -> Result<(), AccessListError> {
    let address = account.address;
    slot_order(address, account.storage_changes.iter().map(|s| s.slot))?;
    slot_order(address, account.storage_reads.iter().copied())?;
    let max = limits.index_max;
    for changed in &account.storage_changes {
        let slot = changed.slot;
        if changed.changes.is_empty() {
            return Err(AccessListError::NoChange { address, slot });
        }
        if account.storage_reads.binary_search(&slot).is_ok() {
            return Err(AccessListError::SlotReadAndChanged { address, slot });
        }
        let indices = changed.changes.iter().map(|c| c.block_access_index);
        index_order(address, AccessField::Slot(slot), indices, max)?;
    }
    let balances = account.balance_changes.iter();
    let nonces = account.nonce_changes.iter();
    let codes = account.code_changes.iter();
    let indices = balances.map(|c| c.block_access_index);
    index_order(address, AccessField::Balance, indices, max)?;
    let indices = nonces.map(|c| c.block_access_index);
    index_order(address, AccessField::Nonce, indices, max)?;
    let indices = codes.map(|c| c.block_access_index);
    index_order(address, AccessField::Code, indices, max)
}

fn slot_order(address: Address, slots: impl Iterator<Item = U256>) -> Result<(), AccessListError> {
    let mut last: Option<U256> = None;
    for slot in slots {
        match last.map(|before| (before, before.cmp(&slot))) {
            Some((_, Ordering::Equal)) => return Err(AccessListError::SlotTwice { address, slot }),
            Some((before, Ordering::Greater)) => {
                return Err(AccessListError::SlotOrder {
                    address,
                    slot,
                    before,
                });
            }
            _ => last = Some(slot),
        }
    }
    Ok(())
}

fn index_order(
    address: Address,
    field: AccessField,
    indices: impl Iterator<Item = BlockAccessIndex>,
    max: u64,
) -> Result<(), AccessListError> {
    let mut last: Option<u64> = None;
    for index in indices.map(BlockAccessIndex::get) {
        if index > max {
            return Err(AccessListError::IndexTooHigh {
                address,
                field,
                index,
                max,
            });
        }
        match last.map(|before| (before, before.cmp(&index))) {
            Some((_, Ordering::Equal)) => {
                return Err(AccessListError::IndexTwice {
                    address,
                    field,
                    index,
                });
            }
            Some((before, Ordering::Greater)) => {
                return Err(AccessListError::IndexOrder {
                    address,
                    field,
                    index,
                    before,
                });
            }
            _ => last = Some(index),
        }
    }
    Ok(())
}

//! Lists, canonical and not.

use super::LIMITS;
use crate::access_list::*;
use alloc::{vec, vec::Vec};
use alloy_primitives::{Address, Bytes, U256};
use proptest::{collection::vec as many, prelude::*};

pub(super) fn index(index: u64) -> BlockAccessIndex {
    BlockAccessIndex(index)
}

/// Values of the sizes at which RLP changes its form.
fn value() -> impl Strategy<Value = U256> {
    prop_oneof![
        Just(U256::ZERO),
        (1u64..300).prop_map(U256::from),
        any::<[u8; 32]>().prop_map(U256::from_be_bytes),
    ]
}

fn code() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        Just(Bytes::new()),
        (0u8..0xff).prop_map(|byte| Bytes::from(vec![byte])),
        many(any::<u8>(), 0..80).prop_map(Bytes::from),
    ]
}

fn changes<V: core::fmt::Debug, C: core::fmt::Debug>(
    value: impl Strategy<Value = V>,
    change: fn(BlockAccessIndex, V) -> C,
) -> impl Strategy<Value = Vec<C>> {
    let by_index = proptest::collection::btree_map(0..=LIMITS.index_max, value, 0..4);
    by_index.prop_map(move |by_index| {
        let changes = by_index.into_iter();
        changes
            .map(|(at, value)| change(index(at), value))
            .collect()
    })
}

fn account() -> impl Strategy<Value = AccountChanges> {
    let slots =
        proptest::collection::btree_map(0u64..6, changes(value(), StorageChange::new), 0..5);
    (
        slots,
        changes(value(), BalanceChange::new),
        changes(any::<u64>(), NonceChange::new),
        changes(code(), CodeChange::new),
    )
        .prop_map(|(slots, balance_changes, nonce_changes, code_changes)| {
            let mut account = AccountChanges {
                balance_changes,
                nonce_changes,
                code_changes,
                ..AccountChanges::default()
            };
            for (slot, changes) in slots {
                // Slots short and long.
                let slot = U256::from(slot) << (slot * 50);
                match changes.is_empty() {
                    true => account.storage_reads.push(slot),
                    false => account.storage_changes.push(SlotChanges { slot, changes }),
                }
            }
            account
        })
}

fn accounts() -> impl Strategy<Value = Vec<AccountChanges>> {
    let by_address = proptest::collection::btree_map(0u8..8, account(), 0..5);
    by_address.prop_map(|by_address| {
        let accounts = by_address.into_iter();
        let named = accounts.map(|(address, account)| AccountChanges {
            address: Address::repeat_byte(address),
            ..account
        });
        named.collect()
    })
}

pub(super) fn list() -> impl Strategy<Value = AccessList> {
    accounts().prop_map(|accounts| AccessList::new(accounts, &LIMITS).expect("canonical"))
}

pub(super) fn encoded(accounts: &[AccountChanges]) -> Vec<u8> {
    let mut out = Vec::new();
    alloy_rlp::encode_list(accounts, &mut out);
    out
}

/// Accounts as an attacker may list them.
pub(super) fn disorderly() -> impl Strategy<Value = Vec<AccountChanges>> {
    let swap = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    (accounts(), many((0u8..9, swap), 0..3)).prop_map(|(mut accounts, faults)| {
        for (kind, (one, other)) in faults {
            disturb(&mut accounts, kind, one, other);
        }
        accounts
    })
}

fn disturb(
    accounts: &mut Vec<AccountChanges>,
    kind: u8,
    one: prop::sample::Index,
    other: prop::sample::Index,
) {
    fn swap<T>(row: &mut [T], one: prop::sample::Index, other: prop::sample::Index) {
        if !row.is_empty() {
            row.swap(one.index(row.len()), other.index(row.len()));
        }
    }
    fn twice<T: Clone>(row: &mut Vec<T>, one: prop::sample::Index) {
        if !row.is_empty() {
            let at = one.index(row.len());
            row.insert(at, row[at].clone());
        }
    }
    if kind == 0 {
        return swap(accounts, one, other);
    }
    if kind == 1 {
        return twice(accounts, one);
    }
    if accounts.is_empty() {
        return;
    }
    let which = one.index(accounts.len());
    let account = &mut accounts[which];
    match kind {
        2 => swap(&mut account.storage_reads, one, other),
        3 => twice(&mut account.storage_reads, other),
        4 => swap(&mut account.storage_changes, one, other),
        5 => swap(&mut account.balance_changes, one, other),
        6 => twice(&mut account.nonce_changes, other),
        7 => account
            .code_changes
            .push(CodeChange::new(index(LIMITS.index_max + 1), Bytes::new())),
        _ => {
            if let Some(changed) = account.storage_changes.first_mut() {
                match one.index(2) {
                    0 => changed.changes.clear(),
                    _ => account.storage_reads.insert(0, changed.slot),
                }
            }
        }
    }
}

//! Values that a block is said to find.

use super::{index, list};
use crate::{Account, AccountUpdate, access_list::*};
use alloc::{vec, vec::Vec};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U256, hex, keccak256};
use core::convert::Infallible;
use proptest::{collection::vec as many, prelude::*};

/// A state of which every value says what it is of; accounts of odd addresses don't exist.
fn account(address: Address) -> Result<Option<Account>, Infallible> {
    let number = u64::from(address.0[0]);
    Ok((number % 2 == 0).then(|| Account {
        nonce: number,
        balance: U256::from(number) << (number * 20),
        code_hash: match number % 4 {
            0 => KECCAK256_EMPTY,
            _ => B256::repeat_byte(address.0[0]),
        },
    }))
}

fn slot(address: Address, slot: U256) -> Result<U256, Infallible> {
    Ok(slot + U256::from(address.0[0] / 2))
}

fn found(list: &AccessList) -> PreStateValues {
    let Ok(found) = PreStateValues::read(list, account, slot);
    found
}

proptest! {
    #[test]
    fn values_survive_encoding_and_every_cut_is_refused(list in list()) {
        let found = found(&list);
        prop_assert!(found.is_of(&list));
        let bytes = found.encode();
        prop_assert_eq!(PreStateValues::decode(&bytes, &list), Ok(found));
        let surplus = [&bytes[..], &[0x80]].concat();
        prop_assert!(PreStateValues::decode(&surplus, &list).is_err());
        for end in 0..bytes.len() {
            prop_assert!(PreStateValues::decode(&bytes[..end], &list).is_err());
        }
    }

    #[test]
    fn bytes_that_decode_are_the_only_ones_of_their_values(
        list in list(),
        flips in many((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = found(&list).encode();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(found) = PreStateValues::decode(&bytes, &list) {
            prop_assert!(found.is_of(&list));
            prop_assert_eq!(found.encode(), bytes);
        }
    }

    #[test]
    fn values_are_those_of_one_list(list in list(), other in list()) {
        let shape = |list: &AccessList| {
            let accounts = list.accounts().iter();
            accounts.map(|account| account.storage_slots().count()).collect::<Vec<_>>()
        };
        let is_same = shape(&list) == shape(&other);
        let found = found(&list);
        prop_assert_eq!(found.is_of(&other), is_same);
        prop_assert_eq!(PreStateValues::decode(&found.encode(), &other).is_ok(), is_same);
    }
}

fn small_list() -> AccessList {
    let mut first = AccountChanges::new(Address::repeat_byte(2));
    first.storage_reads = vec![U256::from(1)];
    first.storage_changes = vec![SlotChanges::new(
        U256::from(500),
        vec![StorageChange::new(index(1), U256::from(1))],
    )];
    let second = AccountChanges::new(Address::repeat_byte(3));
    let limits = AccessListLimits::of_transactions(1);
    AccessList::new(vec![first, second], &limits).unwrap()
}

#[test]
fn the_form_of_values_is_what_it_was() {
    let bytes = found(&small_list()).encode();
    let hash = "0202020202020202020202020202020202020202020202020202020202020202";
    let expected = [
        // Nonce 2, balance 2 << 40, the code's hash, and slots 500 and 1, each one more.
        "f2",
        "02",
        "860200 0000 0000",
        "a0",
        hash,
        "c4",
        "8201f5",
        "02",
        // Nothing at all.
        "80",
        "80",
        "80",
        "c0",
    ];
    assert_eq!(hex::encode(bytes), expected.concat().replace(' ', ""));
}

#[test]
fn hashes_that_no_code_has_in_the_form_are_refused() {
    let list = small_list();
    let bytes = found(&list).encode();
    let at = bytes.iter().position(|byte| *byte == 0xa0).unwrap();
    let with = |replaced: &[u8]| [&bytes[..at], replaced, &bytes[at + 33..]].concat();
    let written_out = with(&[&[0xa0], KECCAK256_EMPTY.as_slice()].concat());
    let said = PreStateValues::decode(&written_out, &list).unwrap_err();
    assert_eq!(said.account_count, 0);
    // The outer length no longer fits either, so only the rejection is checked.
    assert!(PreStateValues::decode(&with(&[0x81, 0x90]), &list).is_err());
}

#[test]
fn changes_are_the_last_values_that_are_not_the_first() {
    let address = Address::repeat_byte(2);
    let before = account(address).unwrap().unwrap();
    let change = |at, value: u64| StorageChange::new(index(at), U256::from(value));
    let slots = vec![
        // To its old value, and to another.
        SlotChanges::new(U256::from(4), vec![change(1, 9), change(2, 5)]),
        SlotChanges::new(U256::from(5), vec![change(1, 9), change(2, 8)]),
        SlotChanges::new(U256::from(6), vec![change(1, 0)]),
    ];
    let mut changed = AccountChanges::new(address);
    changed.storage_changes = slots;
    let balances = [(1, before.balance + U256::ONE), (2, before.balance)];
    let balances = balances.map(|(at, wei)| BalanceChange::new(index(at), wei));
    changed.balance_changes = balances.to_vec();
    let code = Bytes::from_static(&[0x5b, 0]);
    let mut created = AccountChanges::new(Address::repeat_byte(3));
    created.nonce_changes = vec![NonceChange::new(index(1), 1)];
    created.code_changes = vec![CodeChange::new(index(1), code.clone())];
    let mut emptied = AccountChanges::new(Address::repeat_byte(4));
    emptied.nonce_changes = vec![NonceChange::new(index(1), 0)];
    emptied.balance_changes = vec![BalanceChange::new(index(1), U256::ZERO)];
    // Came and went, and was only looked at.
    let mut nothing = AccountChanges::new(Address::repeat_byte(5));
    let balances = [(1, U256::ONE), (2, U256::ZERO)];
    let balances = balances.map(|(at, wei)| BalanceChange::new(index(at), wei));
    nothing.balance_changes = balances.to_vec();
    let read = AccountChanges::new(Address::repeat_byte(6));
    let limits = AccessListLimits::of_transactions(1);
    let accounts = vec![changed, created, emptied, nothing, read];
    let list = AccessList::new(accounts, &limits).unwrap();

    let Ok(changes) = list.changes(account, slot);
    assert_eq!(list.codes(), [(keccak256(&code), code.clone())]);
    assert_eq!(changes.counts(), (3, 2));
    let of = |byte| changes.account(&keccak256(Address::repeat_byte(byte)));
    let kept = of(2).unwrap();
    assert_eq!((&kept.account, kept.wipe), (&AccountUpdate::Keep, false));
    let path = |slot: u64| keccak256(U256::from(slot).to_be_bytes::<32>());
    let value = |slot| kept.slots.iter().find(|(at, _)| *at == path(slot));
    assert_eq!(value(5), Some(&(path(5), U256::from(8))));
    assert_eq!(value(6), Some(&(path(6), U256::ZERO)));
    let created = AccountUpdate::Put(Account {
        nonce: 1,
        balance: U256::ZERO,
        code_hash: keccak256(&code),
    });
    assert_eq!(of(3).unwrap().account, created);
    assert_eq!(of(4).unwrap().account, AccountUpdate::Delete);
}

mod found;
mod generate;
mod node;

use super::*;
use alloc::{collections::BTreeMap, format, string::ToString, vec};
use alloy_eip7928::validate_block_access_list;
use alloy_primitives::{Address, Bytes, U256, b256};
use generate::{disorderly, encoded, index, list};
use node::Node;
use proptest::{collection::vec as many, prelude::*};

const TRANSACTIONS: usize = 3;
const LIMITS: AccessListLimits = AccessListLimits::of_transactions(TRANSACTIONS);

proptest! {
    #[test]
    fn a_list_survives_encoding(list in list()) {
        let bytes = list.encode();
        prop_assert_eq!(AccessList::decode(&bytes, &LIMITS), Ok(list.clone()));
        prop_assert_eq!(list.hash(), alloy_eip7928::compute_block_access_list_hash(list.accounts()));
        let surplus = [&bytes[..], &[0]].concat();
        prop_assert!(AccessList::decode(&surplus, &LIMITS).is_err());
        for end in 0..bytes.len() {
            prop_assert!(AccessList::decode(&bytes[..end], &LIMITS).is_err());
        }
    }

    #[test]
    fn bytes_that_decode_are_the_only_ones_of_their_list(
        list in list(),
        flips in many((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = list.encode();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(list) = AccessList::decode(&bytes, &LIMITS) {
            prop_assert_eq!(list.encode(), bytes);
        }
    }

    #[test]
    fn no_list_in_a_list_has_an_item_too_many_or_too_few(list in list()) {
        let bytes = list.encode();
        let whole = Node::parse(&mut &bytes[..]);
        for at in 0..whole.lists() {
            for change in [Vec::pop, |items: &mut Vec<Node>| {
                items.push(Node::Item(vec![]));
                None
            }] {
                let mut other = whole.clone();
                let mut left = at;
                change(other.list(&mut left).expect("one of its lists"));
                let bytes = other.encode();
                if let Ok(list) = AccessList::decode(&bytes, &LIMITS) {
                    prop_assert_eq!(list.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn lists_are_refused_that_others_refuse(accounts in disorderly()) {
        let ours = AccessList::decode(&encoded(&accounts), &LIMITS);
        let theirs = validate_block_access_list(&accounts, TRANSACTIONS);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?}, {:?}", ours, theirs);
        prop_assert_eq!(AccessList::new(accounts, &LIMITS), ours);
    }

    #[test]
    fn items_are_accounts_and_slots(list in list()) {
        let items = alloy_eip7928::total_bal_items(list.accounts());
        prop_assert_eq!(list.counts().items(), items);
        let decode = |items_max| {
            AccessList::decode(&list.encode(), &AccessListLimits { items_max, ..LIMITS })
        };
        prop_assert!(decode(items).is_ok());
        if let Some(max) = items.checked_sub(1) {
            prop_assert_eq!(decode(max), Err(AccessListError::Items { max }));
        }
    }

    #[test]
    fn changes_alone_are_a_list(list in list()) {
        let changes = list.changes_only();
        prop_assert_eq!(AccessList::decode(&changes.encode(), &LIMITS), Ok(changes.clone()));
        let (all, only) = (list.counts(), changes.counts());
        let expected = AccessListCounts {
            accounts: all.accounts_changed,
            slots_read: 0,
            ..all
        };
        prop_assert_eq!(only, expected);
    }

    #[test]
    fn the_first_difference_is_the_first_of_all(one in list(), other in list()) {
        prop_assert_eq!(one.first_difference(&one), None);
        let difference = one.first_difference(&other);
        prop_assert_eq!(difference.map(place), first_place(&one, &other));
    }
}

/// An entry of a list, in the order in which lists are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Account,
    Slot(U256, Option<u64>),
    Balance(u64),
    Nonce(u64),
    Code(u64),
}

fn place(difference: AccessListDifference) -> (Address, Place) {
    match difference {
        AccessListDifference::Account { address, .. } => (address, Place::Account),
        AccessListDifference::Read { address, slot, .. } => (address, Place::Slot(slot, None)),
        AccessListDifference::Change {
            address,
            field,
            index,
            ..
        } => {
            let place = match field {
                AccessField::Slot(slot) => Place::Slot(slot, Some(index)),
                AccessField::Balance => Place::Balance(index),
                AccessField::Nonce => Place::Nonce(index),
                AccessField::Code => Place::Code(index),
            };
            (address, place)
        }
    }
}

fn entries(list: &AccessList) -> BTreeMap<(Address, Place), Option<AccessValue>> {
    let mut entries = BTreeMap::new();
    for account in list.accounts() {
        let mut put = |place, value| entries.insert((account.address, place), value);
        put(Place::Account, None);
        for slot in &account.storage_reads {
            put(Place::Slot(*slot, None), None);
        }
        for changed in &account.storage_changes {
            for c in &changed.changes {
                let place = Place::Slot(changed.slot, Some(c.block_access_index.get()));
                put(place, Some(AccessValue::Slot(c.new_value)));
            }
        }
        for c in &account.balance_changes {
            let place = Place::Balance(c.block_access_index.get());
            put(place, Some(AccessValue::Balance(c.post_balance)));
        }
        for c in &account.nonce_changes {
            let place = Place::Nonce(c.block_access_index.get());
            put(place, Some(AccessValue::Nonce(c.new_nonce)));
        }
        for c in &account.code_changes {
            let place = Place::Code(c.block_access_index.get());
            put(place, Some(AccessValue::Code(c.new_code.clone())));
        }
    }
    entries
}

/// The first entry that is not the same in both; of a slot that is read in one and changed in
/// the other, its first change.
fn first_place(one: &AccessList, other: &AccessList) -> Option<(Address, Place)> {
    let (one, other) = (entries(one), entries(other));
    let changed = |entries: &BTreeMap<_, _>, address, slot| {
        let first = (address, Place::Slot(slot, Some(0)));
        let last = (address, Place::Slot(slot, Some(u64::MAX)));
        entries.range(first..=last).next().is_some()
    };
    let differs = |place: &&(Address, Place)| {
        if let (address, Place::Slot(slot, None)) = **place
            && (changed(&one, address, slot) || changed(&other, address, slot))
        {
            return false;
        }
        one.get(*place) != other.get(*place)
    };
    one.keys()
        .chain(other.keys())
        .filter(differs)
        .min()
        .copied()
}

fn with_change(address: u8, at: u64, balance: u64) -> AccountChanges {
    AccountChanges {
        address: Address::with_last_byte(address),
        balance_changes: vec![BalanceChange::new(index(at), U256::from(balance))],
        ..AccountChanges::default()
    }
}

#[test]
fn the_empty_list_has_the_hash_that_the_eip_gives() {
    let empty = AccessList::default();
    assert_eq!(empty.encode(), [0xc0]);
    let hash = b256!("1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
    assert_eq!(empty.hash(), hash);
    let nothing = AccessListLimits {
        index_max: 0,
        items_max: 0,
    };
    assert_eq!(AccessList::decode(&[0xc0], &nothing), Ok(empty));
}

#[test]
fn a_claim_of_much_that_is_not_there_takes_no_memory() {
    let claims = [
        vec![0xff; 9],
        vec![0xfb, 0xff, 0xff, 0xff, 0xff],
        vec![0xf8, 0x00],
    ];
    for bytes in claims {
        assert!(AccessList::decode(&bytes, &LIMITS).is_err());
    }
    // A million slots read, of which the limits allow ten.
    let mut account = with_change(1, 0, 1);
    account.storage_reads = (0..1_000_000).map(U256::from).collect();
    let limits = AccessListLimits {
        items_max: 10,
        ..LIMITS
    };
    let refused = AccessList::decode(&encoded(&[account]), &limits);
    assert_eq!(refused, Err(AccessListError::Items { max: 10 }));
}

#[test]
fn numbers_have_one_encoding() {
    let list = AccessList::new(vec![with_change(1, 0, 5)], &LIMITS).unwrap();
    let bytes = list.encode();
    // [0x80, 5]: index 0, five wei.
    let at = bytes.windows(3).position(|w| w == [0xc2, 0x80, 5]).unwrap();
    let mut zero = bytes.clone();
    zero[at + 1] = 0;
    assert!(AccessList::decode(&zero, &LIMITS).is_err(), "a zero byte");
    let mut long = bytes;
    long[at] = 0xc3;
    long.splice(at + 2..at + 3, [0x81, 5]);
    for byte in &mut long[..at] {
        // The lengths of the enclosing lists.
        if *byte > 0xc0 {
            *byte += 1;
        }
    }
    assert!(
        AccessList::decode(&long, &LIMITS).is_err(),
        "a byte in its long form"
    );
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let said = |accounts: &[AccountChanges]| {
        let refused = AccessList::decode(&encoded(accounts), &LIMITS);
        refused.expect_err("refused").to_string()
    };
    let (one, two) = (with_change(1, 0, 7), with_change(2, 1, 7));
    let (first, second) = (one.address, two.address);
    assert_eq!(
        said(&[two.clone(), one.clone()]),
        format!("account {first} is listed after {second}, but goes before it")
    );
    assert_eq!(
        said(&[one.clone(), one.clone()]),
        format!("account {first} is listed twice")
    );
    assert_eq!(
        said(&[with_change(1, 5, 7)]),
        format!("account {first}: balance changes at index 5, but the block's last is 4")
    );
    let mut slots = one.clone();
    let change = |at| StorageChange::new(index(at), U256::from(9));
    slots.storage_changes = vec![SlotChanges::new(U256::from(16), vec![change(2), change(1)])];
    assert_eq!(
        said(&[slots.clone()]),
        format!("account {first}: slot 0x10 changes at index 2, and after that at 1")
    );
    slots.storage_changes[0].changes = vec![];
    assert_eq!(
        said(&[slots.clone()]),
        format!("account {first}: slot 0x10 is listed as changed, without a change")
    );
    slots.storage_changes[0].changes = vec![change(1)];
    slots.storage_reads = vec![U256::from(16)];
    assert_eq!(
        said(&[slots]),
        format!("account {first}: slot 0x10 is listed as read and as changed")
    );
}

#[test]
fn differences_name_account_slot_index_and_both_values() {
    let list = |accounts| AccessList::new(accounts, &LIMITS).unwrap();
    let base = list(vec![with_change(1, 0, 7)]);
    let said = |given| base.first_difference(&list(given)).unwrap().to_string();
    let address = Address::with_last_byte(1);
    assert_eq!(
        said(vec![]),
        format!("account {address} is not listed, but touched by execution")
    );
    assert_eq!(
        said(vec![with_change(1, 0, 8)]),
        format!("account {address}: balance at index 0 is 8 wei in the list, 7 wei by execution")
    );
    assert_eq!(
        said(vec![with_change(1, 1, 7)]),
        format!(
            "account {address}: balance at index 0 is not changed in the list, 7 wei by execution"
        )
    );
    let mut given = with_change(1, 0, 7);
    given.storage_reads = vec![U256::from(3)];
    assert_eq!(
        said(vec![given.clone()]),
        format!("account {address}: slot 0x3 is listed, but not read by execution")
    );
    given.storage_reads = vec![];
    let change = StorageChange::new(index(2), U256::from(255));
    given.storage_changes = vec![SlotChanges::new(U256::from(3), vec![change])];
    assert_eq!(
        said(vec![given]),
        format!(
            "account {address}: slot 0x3 at index 2 is 0xff in the list, not changed by execution"
        )
    );
}

#[test]
fn every_field_of_an_account_is_compared() {
    let mut base = with_change(1, 1, 7);
    base.nonce_changes = vec![NonceChange::new(index(2), 3)];
    base.code_changes = vec![CodeChange::new(index(3), Bytes::from_static(&[1]))];
    base.storage_reads = vec![U256::from(4)];
    let change = StorageChange::new(index(4), U256::from(9));
    base.storage_changes = vec![SlotChanges::new(U256::from(5), vec![change])];
    let address = base.address;
    type Edit = fn(&mut AccountChanges);
    let edits: [(Edit, Place); 5] = [
        (
            |account| account.storage_reads.clear(),
            Place::Slot(U256::from(4), None),
        ),
        (
            |account| account.storage_changes[0].changes[0].new_value = U256::ZERO,
            Place::Slot(U256::from(5), Some(4)),
        ),
        (
            |account| account.balance_changes[0].post_balance = U256::ZERO,
            Place::Balance(1),
        ),
        (
            |account| account.nonce_changes[0].new_nonce = 4,
            Place::Nonce(2),
        ),
        (
            |account| account.code_changes[0].new_code = Bytes::new(),
            Place::Code(3),
        ),
    ];
    let list = |account| AccessList::new(vec![account], &LIMITS).unwrap();
    for (edit, expected) in edits {
        let mut other = base.clone();
        edit(&mut other);
        let difference = list(base.clone()).first_difference(&list(other));
        assert_eq!(difference.map(place), Some((address, expected)));
    }
}

use super::*;
use alloc::{collections::BTreeMap, format, string::ToString, vec};
use alloy_eip7928::validate_block_access_list;
use alloy_primitives::{Address, Bytes, U256, b256};
use proptest::{collection::vec as many, prelude::*};

const TRANSACTIONS: usize = 3;
const LIMITS: AccessListLimits = AccessListLimits::of_transactions(TRANSACTIONS);

fn index(index: u64) -> BlockAccessIndex {
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

fn list() -> impl Strategy<Value = AccessList> {
    accounts().prop_map(|accounts| AccessList::new(accounts, &LIMITS).expect("canonical"))
}

fn encoded(accounts: &[AccountChanges]) -> Vec<u8> {
    let mut out = Vec::new();
    alloy_rlp::encode_list(accounts, &mut out);
    out
}

/// Accounts as a stranger may list them.
fn disorderly() -> impl Strategy<Value = Vec<AccountChanges>> {
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
        // The lengths of what is around it.
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

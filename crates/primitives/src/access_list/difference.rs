//! Differences between an access list that came with a block and the one that execution produces.

use super::field::AccessField;
use alloy_eip7928::{AccountChanges, BlockAccessIndex, SlotChanges};
use alloy_primitives::{Address, Bytes, U256, keccak256};
use core::{cmp::Ordering, fmt, iter};

/// First difference between the given access list and the one that execution produces. The order is
/// by address, then slots by number, then balance, nonce and code, each by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessListDifference {
    /// An account is in only one of the lists.
    Account {
        /// Address of the account.
        address: Address,
        /// True if only the given list has the account, false if only execution accesses it.
        given: bool,
    },
    /// A slot that does not change is in only one of the lists.
    Read {
        /// Address of the account.
        address: Address,
        /// The slot.
        slot: U256,
        /// True if only the given list has the slot, false if only execution reads it.
        given: bool,
    },
    /// A change is in only one of the lists, or its values differ.
    Change {
        /// Address of the account.
        address: Address,
        /// The field that changes.
        field: AccessField,
        /// Block access index of the change.
        index: u64,
        /// Value after execution of the step, or `None` if it does not change the field.
        expected: Option<AccessValue>,
        /// Value in the given list, or `None` if it has no such change.
        found: Option<AccessValue>,
    },
}

/// Value of a field after a step of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessValue {
    /// The value of a slot.
    Slot(U256),
    /// A balance in wei.
    Balance(U256),
    /// A nonce.
    Nonce(u64),
    /// Code.
    Code(Bytes),
}

impl fmt::Display for AccessValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(value) => write!(f, "{value:#x}"),
            Self::Balance(balance) => write!(f, "{balance} wei"),
            Self::Nonce(nonce) => write!(f, "{nonce}"),
            Self::Code(code) => write!(f, "{} bytes of hash {}", code.len(), keccak256(code)),
        }
    }
}

impl fmt::Display for AccessListDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account {
                address,
                given: true,
            } => write!(
                f,
                "account {address} is listed, but not touched by execution"
            ),
            Self::Account {
                address,
                given: false,
            } => write!(
                f,
                "account {address} is not listed, but touched by execution"
            ),
            Self::Read {
                address,
                slot,
                given: true,
            } => write!(
                f,
                "account {address}: slot {slot:#x} is listed, but not read by execution"
            ),
            Self::Read {
                address,
                slot,
                given: false,
            } => write!(
                f,
                "account {address}: slot {slot:#x} is not listed, but read by execution"
            ),
            Self::Change {
                address,
                field,
                index,
                expected,
                found,
            } => {
                write!(f, "account {address}: {field} at index {index} is ")?;
                match found {
                    Some(found) => write!(f, "{found} in the list, ")?,
                    None => f.write_str("not changed in the list, ")?,
                }
                match expected {
                    Some(expected) => write!(f, "{expected} by execution"),
                    None => f.write_str("not changed by execution"),
                }
            }
        }
    }
}

pub(super) fn first(
    expected: &[AccountChanges],
    given: &[AccountChanges],
) -> Option<AccessListDifference> {
    let lone = |address, given| Some(AccessListDifference::Account { address, given });
    merge(expected, given, |account| account.address).find_map(|pair| match pair {
        Pair::Both(expected, given) => account(expected, given),
        Pair::Expected(account) => lone(account.address, false),
        Pair::Given(account) => lone(account.address, true),
    })
}

fn account(expected: &AccountChanges, given: &AccountChanges) -> Option<AccessListDifference> {
    let address = expected.address;
    let balances = || {
        let both = (&expected.balance_changes[..], &given.balance_changes[..]);
        change(address, AccessField::Balance, both, |c| {
            (c.block_access_index, AccessValue::Balance(c.post_balance))
        })
    };
    let nonces = || {
        let both = (&expected.nonce_changes[..], &given.nonce_changes[..]);
        change(address, AccessField::Nonce, both, |c| {
            (c.block_access_index, AccessValue::Nonce(c.new_nonce))
        })
    };
    let codes = || {
        let both = (&expected.code_changes[..], &given.code_changes[..]);
        change(address, AccessField::Code, both, |c| {
            let code = c.new_code.clone();
            (c.block_access_index, AccessValue::Code(code))
        })
    };
    slot(expected, given)
        .or_else(balances)
        .or_else(nonces)
        .or_else(codes)
}

/// Returns the first difference between the slots of an account. If one list has a slot as read and
/// the other as changed, they differ in its first change.
fn slot(expected: &AccountChanges, given: &AccountChanges) -> Option<AccessListDifference> {
    let changed = slot_changed(expected, given);
    let read = slot_read(expected, given);
    match (changed, read) {
        (Some((slot, changed)), Some((other, read))) => {
            Some(if slot < other { changed } else { read })
        }
        (changed, read) => changed.or(read).map(|(_, difference)| difference),
    }
}

fn slot_changed(
    expected: &AccountChanges,
    given: &AccountChanges,
) -> Option<(U256, AccessListDifference)> {
    let (ours, theirs) = (&expected.storage_changes, &given.storage_changes);
    merge(ours, theirs, |changed: &SlotChanges| changed.slot).find_map(|pair| {
        let (slot, both) = match pair {
            Pair::Both(ours, theirs) => (ours.slot, (&ours.changes[..], &theirs.changes[..])),
            Pair::Expected(ours) => (ours.slot, (&ours.changes[..], &[][..])),
            Pair::Given(theirs) => (theirs.slot, (&[][..], &theirs.changes[..])),
        };
        let difference = change(expected.address, AccessField::Slot(slot), both, |c| {
            (c.block_access_index, AccessValue::Slot(c.new_value))
        });
        Some((slot, difference?))
    })
}

fn slot_read(
    expected: &AccountChanges,
    given: &AccountChanges,
) -> Option<(U256, AccessListDifference)> {
    let (ours, theirs) = (&expected.storage_reads, &given.storage_reads);
    merge(ours, theirs, |slot| *slot).find_map(|pair| {
        let (slot, other, given) = match pair {
            Pair::Both(..) => return None,
            Pair::Expected(slot) => (*slot, given, false),
            Pair::Given(slot) => (*slot, expected, true),
        };
        let changed = other
            .storage_changes
            .binary_search_by_key(&slot, |changed| changed.slot);
        let address = expected.address;
        changed.is_err().then_some((
            slot,
            AccessListDifference::Read {
                address,
                slot,
                given,
            },
        ))
    })
}

/// Returns the first difference between the changes of a field.
fn change<C>(
    address: Address,
    field: AccessField,
    (expected, given): (&[C], &[C]),
    value: impl Fn(&C) -> (BlockAccessIndex, AccessValue),
) -> Option<AccessListDifference> {
    merge(expected, given, |c| value(c).0).find_map(|pair| {
        let (index, expected, found) = match pair {
            Pair::Both(expected, given) => {
                let (index, expected) = value(expected);
                let (_, found) = value(given);
                if expected == found {
                    return None;
                }
                (index, Some(expected), Some(found))
            }
            Pair::Expected(expected) => {
                let (index, expected) = value(expected);
                (index, Some(expected), None)
            }
            Pair::Given(given) => {
                let (index, found) = value(given);
                (index, None, Some(found))
            }
        };
        Some(AccessListDifference::Change {
            address,
            field,
            index: index.get(),
            expected,
            found,
        })
    })
}

/// Items of two sorted sequences with the same key: one from either, or from both.
enum Pair<'a, T> {
    Both(&'a T, &'a T),
    Expected(&'a T),
    Given(&'a T),
}

/// Merges two sorted sequences.
fn merge<'a, T, K: Ord>(
    mut expected: &'a [T],
    mut given: &'a [T],
    key: impl Fn(&T) -> K,
) -> impl Iterator<Item = Pair<'a, T>> {
    iter::from_fn(move || {
        let pair = match (expected.first(), given.first()) {
            (None, None) => return None,
            (Some(ours), None) => Pair::Expected(ours),
            (None, Some(theirs)) => Pair::Given(theirs),
            (Some(ours), Some(theirs)) => match key(ours).cmp(&key(theirs)) {
                Ordering::Less => Pair::Expected(ours),
                Ordering::Equal => Pair::Both(ours, theirs),
                Ordering::Greater => Pair::Given(theirs),
            },
        };
        if !matches!(pair, Pair::Given(_)) {
            expected = &expected[1..];
        }
        if !matches!(pair, Pair::Expected(_)) {
            given = &given[1..];
        }
        Some(pair)
    })
}

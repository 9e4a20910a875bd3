//! State changes of blocks: as encoded in the block log, and as given by a caller.

use crate::input::Input;
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, ChangesError, EntryValue};
use std::collections::{BTreeMap, BTreeSet};

/// Decodes the input as changes, and builds changes from it.
///
/// Decoded changes are encoded to the same bytes. Given changes are rejected exactly if they name
/// an account or slot twice, or set slots of a deleted account. Two change sets combined have the
/// effect of both.
pub fn changes(bytes: &[u8]) {
    if let Ok(decoded) = Changes::decode(bytes) {
        assert_eq!(
            decoded.encode(),
            bytes,
            "another encoding of the same changes"
        );
        let mut accounts = decoded.clone().into_accounts();
        accounts.reverse();
        assert_eq!(Changes::try_new(accounts), Ok(decoded));
    }
    let mut input = Input::new(bytes);
    let sets: Vec<_> = (0..3).map(|_| given(&mut input)).collect();
    let mut apart = State::new();
    let mut together = Changes::default();
    for set in sets {
        let made = Changes::try_new(set.clone());
        let fault = fault_of(&set);
        assert_eq!(made.is_err(), fault, "{set:?}");
        let Ok(made) = made else { return };
        assert_eq!(Changes::decode(&made.encode()).as_ref(), Ok(&made));
        assert_eq!(made.counts().0, set.len());
        apply(&mut apart, &made);
        together = together.then(made);
    }
    let mut at_once = State::new();
    apply(&mut at_once, &together);
    assert_eq!(at_once, apart, "changes put together do something else");
    assert_eq!(Changes::decode(&together.encode()), Ok(together));
}

/// Draws a few changes of four accounts and four slots, including invalid ones.
fn given(input: &mut Input<'_>) -> Vec<AccountDiff> {
    let count = input.below(5);
    (0..count)
        .map(|_| {
            let (path, head) = (input.below(4) as u8, input.u8());
            let account = match head & 3 {
                0 => AccountUpdate::Keep,
                1 => AccountUpdate::Delete,
                _ => AccountUpdate::Put(Account {
                    nonce: input.u16().into(),
                    balance: U256::from_be_slice(input.take(usize::from(head >> 3))),
                    ..Account::default()
                }),
            };
            let slots = (0..input.below(4)).map(|_| {
                let slot = B256::repeat_byte(input.below(4) as u8);
                (slot, U256::from(input.below(3)))
            });
            AccountDiff {
                path: B256::repeat_byte(path),
                account,
                wipe: head & 4 != 0,
                slots: slots.collect(),
            }
        })
        .collect()
}

/// Returns whether changes are invalid by the rules of [`ChangesError`].
fn fault_of(accounts: &[AccountDiff]) -> bool {
    let _: fn(B256) -> ChangesError = ChangesError::AccountTwice;
    let paths: BTreeSet<_> = accounts.iter().map(|change| change.path).collect();
    let is_false = |change: &AccountDiff| {
        let slots: BTreeSet<_> = change.slots.iter().map(|(slot, _)| slot).collect();
        let is_deleted = change.account == AccountUpdate::Delete;
        slots.len() < change.slots.len() || (is_deleted && !slots.is_empty())
    };
    paths.len() < accounts.len() || accounts.iter().any(is_false)
}

/// The known fields and slots of each account. A deleted account has no slots.
type State = BTreeMap<B256, (Known, BTreeMap<B256, U256>)>;

#[derive(Debug, Default, PartialEq)]
enum Known {
    #[default]
    Nothing,
    Deleted,
    Is(Account),
    Entry(EntryValue),
}

fn apply(state: &mut State, changes: &Changes) {
    for change in changes.accounts() {
        let (account, slots) = state.entry(change.path).or_default();
        match &change.account {
            AccountUpdate::Keep => {}
            AccountUpdate::Put(fields) => *account = Known::Is(*fields),
            AccountUpdate::Entry(value) => {
                *account = Known::Entry(value.clone());
                slots.clear();
            }
            AccountUpdate::Delete => *account = Known::Deleted,
        }
        if change.wipe {
            slots.clear();
        }
        // Deleted accounts and entries have no slots.
        let has_slots = !matches!(account, Known::Deleted | Known::Entry(_));
        for (slot, value) in change.slots.iter().filter(|_| has_slots) {
            match value.is_zero() {
                true => slots.remove(slot),
                false => slots.insert(*slot, *value),
            };
        }
    }
}

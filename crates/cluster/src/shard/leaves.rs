//! The leaves of a version, part by part: what a snapshot is made of.

use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
use cambium_trie::{LeafRange, LeafValue, VersionView};
use std::ops::ControlFlow;

/// The last path.
const LAST: B256 = B256::repeat_byte(u8::MAX);

/// Where a walk over leaves goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// An account's path.
    account: B256,
    /// The slot of it with which to go on: then the account itself has been there.
    slot: Option<B256>,
}

impl Place {
    /// The first account at this path or after it.
    pub(crate) const fn at(account: B256) -> Self {
        Self {
            account,
            slot: None,
        }
    }

    pub(crate) const fn account(&self) -> B256 {
        self.account
    }
}

/// Adds the accounts of a version from a place on, with their slots, to `out`, until these are `leaves_max` leaves. An account
/// whose slots go on from an earlier part is kept and not put. Returns where to go on; `None` at the end.
pub(super) fn leaves(
    view: &VersionView<'_>,
    from: Place,
    leaves_max: usize,
    out: &mut Vec<AccountDiff>,
) -> Option<Place> {
    let (mut left, mut next) = (leaves_max, None);
    let range = LeafRange::accounts(from.account, LAST);
    let mut visit = |path: &B256, value: LeafValue| {
        let LeafValue::Account(account) = value else {
            return ControlFlow::Continue(());
        };
        let begun = from.slot.filter(|_| *path == from.account);
        if left == 0 {
            next = Some(Place::at(*path));
            return ControlFlow::Break(());
        }
        if begun.is_none() {
            left -= 1;
        }
        let (slots, beyond) = slots(view, path, begun.unwrap_or_default(), left);
        left -= slots.len();
        out.push(part_of(*path, begun.is_none().then_some(account), slots));
        if beyond.is_some() {
            let (account, slot) = (*path, beyond);
            next = Some(Place { account, slot });
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    let _ = view.visit_range(&range, &mut visit);
    next
}

/// Slots of an account from one on, and the first one beyond `max`.
pub(super) fn slots(
    view: &VersionView<'_>,
    account: &B256,
    from: B256,
    max: usize,
) -> (Vec<(B256, U256)>, Option<B256>) {
    let (mut slots, mut beyond) = (Vec::new(), None);
    let mut visit = |slot: &B256, value: LeafValue| {
        if let LeafValue::Slot(value) = value {
            if slots.len() == max {
                beyond = Some(*slot);
                return ControlFlow::Break(());
            }
            slots.push((*slot, value));
        }
        ControlFlow::Continue(())
    };
    let _ = view.visit_range(&LeafRange::slots(*account, from, LAST), &mut visit);
    (slots, beyond)
}

fn part_of(path: B256, account: Option<Account>, slots: Vec<(B256, U256)>) -> AccountDiff {
    AccountDiff {
        path,
        account: account.map_or(AccountUpdate::Keep, AccountUpdate::Put),
        wipe: false,
        slots,
    }
}

/// The first path of an account below a prefix.
pub(super) fn first_below(prefix: &Path) -> B256 {
    prefix.first_leaf().account_part().unwrap_or_default()
}

/// Number of accounts that are put, and of slots.
pub(super) fn leaf_count(changes: &[AccountDiff]) -> usize {
    let leaves = |change: &AccountDiff| {
        usize::from(change.account != AccountUpdate::Keep) + change.slots.len()
    };
    changes.iter().map(leaves).sum()
}

//! The versions of one account and of one slot.

use super::super::adds::{Adds, Amount};
use crate::account::account;
use alloy_primitives::U256;
use cambium_primitives::Account;
use revm::state::AccountInfo;

/// An account that a step has written.
pub(in crate::optimistic) struct AccountCell {
    /// The account in the parent's state.
    pub(in crate::optimistic) parent: Option<AccountInfo>,
    /// Writes of all fields, in the order of steps.
    pub(super) sets: Vec<Version<Option<AccountInfo>, Option<Account>>>,
    /// Additions apply to the last write of all fields before them.
    pub(super) adds: Adds,
    /// Steps that deleted the account's slots.
    pub(super) wipes: Vec<usize>,
    /// Whether there was such a step, even if it does not delete them any more.
    pub(super) was_wiped: bool,
}

/// A slot that a step has written.
pub(in crate::optimistic) struct SlotCell {
    /// The slot in the parent's state. `None` if it has not been read, since the account was created.
    pub(super) parent: Option<U256>,
    pub(super) versions: Vec<Version<U256, U256>>,
}

pub(super) struct Version<V, R> {
    pub(super) step: usize,
    pub(super) is_estimate: bool,
    /// The value that the step read here.
    pub(super) read: R,
    pub(super) value: V,
}

/// What a step finds at a key.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::optimistic) enum Found<V> {
    /// No step has written it: it is that of the parent's state.
    Parent,
    /// No earlier step has written it now. Whether it was read from the parent's state is unknown.
    Unread,
    Value(V),
    /// It is written by a step that will run again.
    WaitFor(usize),
}

/// Inserts or replaces a version. Returns the place after it.
pub(super) fn insert<V, R>(versions: &mut Vec<Version<V, R>>, version: Version<V, R>) -> usize {
    match versions.binary_search_by_key(&version.step, |known| known.step) {
        Ok(place) => {
            versions[place] = version;
            place + 1
        }
        Err(place) => {
            versions.insert(place, version);
            place + 1
        }
    }
}

/// Makes the version of a step an estimate. Returns the step of the version after it, unless that is
/// an estimate.
pub(super) fn make_estimate<V, R>(versions: &mut [Version<V, R>], step: usize) -> Option<usize> {
    let place = versions.binary_search_by_key(&step, |known| known.step);
    let place = place.ok()?;
    versions[place].is_estimate = true;
    let next = versions.get(place + 1)?;
    (!next.is_estimate).then_some(next.step)
}

impl AccountCell {
    pub(super) fn before(&mut self, step: usize) -> Found<Option<AccountInfo>> {
        let place = self.sets.partition_point(|version| version.step < step);
        let (base, start) = match place.checked_sub(1).map(|place| &self.sets[place]) {
            None => (&self.parent, 0),
            Some(set) if set.is_estimate => return Found::WaitFor(set.step),
            Some(set) => (&set.value, set.step + 1),
        };
        Found::Value(match self.adds.sum(start, step) {
            None => base.clone(),
            Some(Amount { balance, nonce }) => {
                let mut info = base.clone().unwrap_or_default();
                info.balance = info.balance.wrapping_add(balance);
                info.nonce = info.nonce.wrapping_add(nonce);
                Some(info)
            }
        })
    }

    /// The account after all steps, and the last step that deleted its slots.
    pub(in crate::optimistic) fn last(&mut self) -> (Option<Account>, Option<usize>) {
        let last = match self.before(usize::MAX) {
            Found::Value(last) => last.as_ref().map(account),
            // No estimate is left when all steps have run.
            Found::Parent | Found::Unread | Found::WaitFor(_) => self.parent.as_ref().map(account),
        };
        (last, self.wipes.last().copied())
    }

    /// The balance after each addition that changes it, by step.
    pub(in crate::optimistic) fn added_balances(&mut self) -> Vec<(usize, U256)> {
        let adds = self.adds.all().iter();
        let steps: Vec<_> = adds
            .filter(|(_, amount)| !amount.balance.is_zero())
            .map(|(step, _)| *step)
            .collect();
        let mut balances = Vec::with_capacity(steps.len());
        for step in steps {
            if let Found::Value(Some(info)) = self.before(step + 1) {
                balances.push((step, info.balance));
            }
        }
        balances
    }

    pub(super) fn remove_set(&mut self, step: usize) {
        if let Ok(place) = self.sets.binary_search_by_key(&step, |set| set.step) {
            self.sets.remove(place);
        }
        if let Ok(place) = self.wipes.binary_search(&step) {
            self.wipes.remove(place);
        }
    }
}

impl SlotCell {
    /// `wiped`: the last step that deleted the account's slots.
    pub(super) fn before(&self, step: usize, wiped: Option<usize>) -> Found<U256> {
        let place = self.versions.partition_point(|version| version.step < step);
        let version = place.checked_sub(1).map(|place| &self.versions[place]);
        match version.filter(|version| Some(version.step) >= wiped) {
            None => match (wiped, self.parent) {
                (Some(_), _) => Found::Value(U256::ZERO),
                (None, Some(parent)) => Found::Value(parent),
                (None, None) => Found::Unread,
            },
            Some(version) if version.is_estimate => Found::WaitFor(version.step),
            Some(version) => Found::Value(version.value),
        }
    }

    /// The slot before and after the block. `wiped`: the last step that deleted the account's slots.
    pub(in crate::optimistic) fn change(&self, wiped: Option<usize>) -> (U256, U256) {
        let parent = self.parent.unwrap_or_default();
        match self.before(usize::MAX, wiped) {
            Found::Value(last) => (parent, last),
            Found::Parent | Found::Unread | Found::WaitFor(_) => (parent, parent),
        }
    }
}

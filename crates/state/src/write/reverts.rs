//! The changes that undo a block, from the values that its state had before.

use crate::{
    options::LeafKind,
    view::{known::KnownValues, state::View},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes, EntryValue, Path};
use cambium_snapshot::{EntryKey, StateError};
use cambium_trie::TrieError;
use std::time::Instant;

impl View {
    /// Rejects `changes` that set slots of accounts which they do not create and which do not exist
    /// in this state after the changes `before`.
    pub(crate) fn check_owners(
        &self,
        before: &Changes,
        changes: &Changes,
    ) -> Result<(), StateError> {
        let mut unknown = Vec::new();
        let setting = changes.accounts().iter();
        for change in setting.filter(|change| sets_slots_alone(change)) {
            let path = change.path;
            match before.account(&path).map(|before| &before.account) {
                Some(AccountUpdate::Put(_) | AccountUpdate::Entry(_)) => {}
                Some(AccountUpdate::Delete) => return Err(no_account(path)),
                Some(AccountUpdate::Keep) | None => unknown.push(path),
            }
        }
        let there = self.accounts(&unknown)?;
        match unknown
            .iter()
            .zip(there)
            .find(|(_, account)| account.is_none())
        {
            Some((path, _)) => Err(no_account(*path)),
            None => Ok(()),
        }
    }

    /// The changes that undo `changes`, all those of a block on this state. Rejects slots that are set on an account
    /// which they do not create and which does not exist.
    pub(crate) fn reverts_of_block(
        &self,
        changes: &Changes,
        known: &KnownValues,
    ) -> Result<Changes, StateError> {
        let start = Instant::now();
        let reverts = self.reverts_of(changes, known)?;
        // The account of a change that is undone by a deletion did not exist.
        let mut both = changes.accounts().iter().zip(reverts.accounts());
        let unowned = both.find(|(change, revert)| {
            sets_slots_alone(change) && revert.account == AccountUpdate::Delete
        });
        if let Some((change, _)) = unowned {
            return Err(no_account(change.path));
        }
        let taken = start.elapsed().as_nanos() as u64;
        self.inner.store.counters.revert_ns.add(taken);
        Ok(reverts)
    }

    /// The changes that undo `changes`: the values here of all accounts and slots that they touch.
    pub(crate) fn reverts_of(
        &self,
        changes: &Changes,
        known: &KnownValues,
    ) -> Result<Changes, StateError> {
        let touched = Touched::by(changes);
        if self.inner.options.leaves == LeafKind::Entries {
            let values = known.read(self, &touched.entries())?;
            return Ok(entry_reverts(changes, values));
        }
        let accounts = known.read(self, &touched.accounts)?;
        self.reverts_from(changes, accounts, known.read(self, &touched.slots)?)
    }

    /// Does the same as [`View::reverts_of`], from the values of the accounts and slots in
    /// [`Touched`].
    pub(crate) fn reverts_from(
        &self,
        changes: &Changes,
        accounts: Vec<Option<Account>>,
        slots: Vec<U256>,
    ) -> Result<Changes, StateError> {
        let mut values = slots.into_iter();
        let revert = |(change, account): (&AccountDiff, Option<Account>)| {
            let path = change.path;
            let mut slots = Vec::with_capacity(if change.wipe { 0 } else { change.slots.len() });
            if !change.wipe {
                let paths = change.slots.iter().map(|(slot, _)| *slot);
                slots.extend(paths.zip(values.by_ref()));
            }
            let Some(account) = account else {
                return Ok(AccountDiff {
                    path,
                    account: AccountUpdate::Delete,
                    wipe: true,
                    slots: Vec::new(),
                });
            };
            if change.wipe {
                // Restores the exact storage: wipes slots that were set since, then sets all old
                // ones.
                slots = self.leaves_of_storage(&path)?;
            }
            let account = match change.account {
                AccountUpdate::Keep => AccountUpdate::Keep,
                AccountUpdate::Put(_) | AccountUpdate::Entry(_) | AccountUpdate::Delete => {
                    AccountUpdate::Put(account)
                }
            };
            Ok(AccountDiff {
                path,
                account,
                wipe: change.wipe,
                slots,
            })
        };
        let reverts = changes.accounts().iter().zip(accounts).map(revert);
        Ok(Changes::new(reverts.collect::<Result<_, StateError>>()?))
    }
}

/// The changes that undo `changes` of entries, from the values that these had before.
pub(crate) fn entry_reverts(changes: &Changes, before: Vec<Option<EntryValue>>) -> Changes {
    let reverts = changes.accounts().iter().zip(before);
    let reverts = reverts.map(|(change, before)| AccountDiff {
        path: change.path,
        wipe: before.is_none(),
        account: before.map_or(AccountUpdate::Delete, AccountUpdate::Entry),
        slots: Vec::new(),
    });
    Changes::new(reverts.collect())
}

/// Whether a change sets slots of an account that it does not create.
fn sets_slots_alone(change: &AccountDiff) -> bool {
    let keeps = matches!(change.account, AccountUpdate::Keep);
    keeps && change.slots.iter().any(|(_, value)| !value.is_zero())
}

/// The error for slots of an account that doesn't exist.
fn no_account(path: B256) -> StateError {
    let path = Path::account(&path);
    StateError::BadChanges(TrieError::NoAccount { path })
}

/// The accounts and slots that changes touch, in their order. Wiped storage is not listed by slot,
/// since it is read as a whole.
pub(crate) struct Touched {
    pub(crate) accounts: Vec<B256>,
    pub(crate) slots: Vec<(B256, B256)>,
}

impl Touched {
    /// The keys of entries, if that is what changes touch.
    pub(crate) fn entries(&self) -> Vec<EntryKey> {
        self.accounts.iter().copied().map(EntryKey).collect()
    }

    /// The accounts and slots that `changes` touch.
    pub(crate) fn by(changes: &Changes) -> Self {
        let changes = changes.accounts();
        let kept = changes.iter().filter(|change| !change.wipe);
        Self {
            accounts: changes.iter().map(|change| change.path).collect(),
            slots: kept
                .flat_map(|change| change.slots.iter().map(|(slot, _)| (change.path, *slot)))
                .collect(),
        }
    }
}

//! Contracts whose storage a partial database keeps.
//!
//! A partial database has all accounts. Of a contract that it does not keep, it has the root of the storage trie in place of
//! the slots: one leaf with the key [`STORAGE_ROOT_KEY`], which is hashed to its value ([`Commitment::PartialMpt`]). To
//! layers, log, reverts, pages and merges that leaf is a slot as any other, so they need no rule for it. The rules are at the
//! edges: what comes in is reduced to such leaves here, and reads of slots that are not kept are refused.
//!
//! [`Commitment::PartialMpt`]: cambium_trie::Commitment::PartialMpt

use super::error::StateError;
use alloy_primitives::{B256, U256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, STORAGE_ROOT_KEY};
use cambium_trie::EMPTY_ROOT;
use std::{borrow::Cow, sync::Arc};

/// The contracts whose storage a partial database keeps, by keccak(address). Clones share memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptStorage {
    accounts: Arc<[B256]>,
}

impl KeptStorage {
    /// Maximum number of contracts. They are in the manifest, which has a limit of its own.
    pub const ACCOUNTS_MAX: usize = 30_000;

    /// The contracts with these paths, keccak(address), in any order. One that is there twice counts once.
    ///
    /// # Errors
    ///
    /// [`StateError::BadOptions`] for more than [`Self::ACCOUNTS_MAX`].
    pub fn new(accounts: impl IntoIterator<Item = B256>) -> Result<Self, StateError> {
        let mut accounts: Vec<_> = accounts.into_iter().collect();
        accounts.sort_unstable();
        accounts.dedup();
        match accounts.len() {
            0..=Self::ACCOUNTS_MAX => Ok(Self {
                accounts: accounts.into(),
            }),
            found => Err(StateError::BadOptions(format!(
                "the storage of {found} contracts is to be kept: a partial database keeps that of {} at most",
                Self::ACCOUNTS_MAX
            ))),
        }
    }

    /// Paths of the contracts, sorted.
    pub fn accounts(&self) -> &[B256] {
        &self.accounts
    }

    /// Whether the storage of the account with this path is kept.
    pub fn keeps(&self, account: &B256) -> bool {
        self.accounts.binary_search(account).is_ok()
    }

    /// Fails unless the storage of the account is kept.
    ///
    /// # Errors
    ///
    /// [`StateError::StorageNotKept`].
    pub fn check(&self, account: &B256) -> Result<(), StateError> {
        match self.keeps(account) {
            true => Ok(()),
            false => Err(StateError::StorageNotKept {
                account: *account,
                address: None,
            }),
        }
    }

    /// Replaces the slots of contracts that are not kept by their new storage roots, which `storage_roots` has, sorted by
    /// account. Nothing is verified here: false roots lead to another state root. Roots of contracts that are kept are
    /// passed over.
    ///
    /// # Errors
    ///
    /// [`StateError::StorageRoot`] if the root of such a contract is missing or given to an account that `changes` delete, if
    /// the roots are not sorted, and if a slot has the key that is reserved for roots.
    pub fn reduce<'a>(
        &self,
        changes: &'a Changes,
        storage_roots: &[(B256, B256)],
    ) -> Result<Cow<'a, Changes>, StateError> {
        check_sorted(storage_roots)?;
        let mut roots = storage_roots.iter();
        roots.try_for_each(|(account, root)| match root.is_zero() {
            true => Err(wrong(*account, "its storage root is given as zero")),
            false => Ok(()),
        })?;
        let is_left = |change: &AccountDiff| change.slots.is_empty() || self.keeps(&change.path);
        let is_kept = |(account, _): &(B256, B256)| self.keeps(account);
        if changes.accounts().iter().all(is_left) && storage_roots.iter().all(is_kept) {
            changes.accounts().iter().try_for_each(check_slots)?;
            return Ok(Cow::Borrowed(changes));
        }
        let mut roots = storage_roots
            .iter()
            .filter(|given| !is_kept(given))
            .peekable();
        let mut reduced = Vec::with_capacity(changes.accounts().len());
        for change in changes.accounts() {
            check_slots(change)?;
            while let Some((account, root)) = roots.next_if(|(account, _)| *account < change.path) {
                reduced.push(root_alone(*account, *root));
            }
            let root = roots.next_if(|(account, _)| *account == change.path);
            let root = root.map(|(_, root)| *root);
            reduced.push(match self.keeps(&change.path) {
                true => change.clone(),
                false => with_root(change, root)?,
            });
        }
        reduced.extend(roots.map(|(account, root)| root_alone(*account, *root)));
        Ok(Cow::Owned(Changes::new(reduced)))
    }

    /// Encodes the contracts, for the manifest: 32 bytes each, sorted.
    pub fn encode(&self) -> Vec<u8> {
        self.accounts.concat()
    }

    /// Decodes what [`Self::encode`] returns; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (accounts, rest) = bytes.as_chunks::<32>();
        let accounts: Arc<[B256]> = accounts.iter().map(B256::from).collect();
        let is_whole = rest.is_empty() && accounts.len() <= Self::ACCOUNTS_MAX;
        let is_sorted = accounts.is_sorted_by(|a, b| a < b);
        (is_whole && is_sorted).then_some(Self { accounts })
    }
}

/// Fails unless given storage roots are sorted by account and unique.
fn check_sorted(storage_roots: &[(B256, B256)]) -> Result<(), StateError> {
    let unsorted = storage_roots.windows(2).find(|two| two[0].0 >= two[1].0);
    match unsorted {
        None => Ok(()),
        Some(two) => Err(wrong(
            two[1].0,
            "its storage root is not in the order of accounts, or is given twice",
        )),
    }
}

/// Fails if a slot has the reserved key.
fn check_slots(change: &AccountDiff) -> Result<(), StateError> {
    let slots = &change.slots;
    match slots.binary_search_by(|(slot, _)| slot.cmp(&STORAGE_ROOT_KEY)) {
        Err(_) => Ok(()),
        Ok(_) => Err(reserved(change.path)),
    }
}

/// The change of an account whose storage is not kept, with its new storage root.
fn with_root(change: &AccountDiff, root: Option<B256>) -> Result<AccountDiff, StateError> {
    let path = change.path;
    if change.account == AccountUpdate::Delete && root.is_some_and(|root| root != EMPTY_ROOT) {
        return Err(wrong(path, "it is deleted, and is given a storage root"));
    }
    let slots = match root {
        _ if change.account == AccountUpdate::Delete => Vec::new(),
        Some(root) => vec![leaf_of(root)],
        // A wipe alone leaves an empty trie.
        None if change.slots.is_empty() => Vec::new(),
        None => {
            let what =
                "its slots change, its storage is not kept, and its new storage root is not given";
            return Err(wrong(path, what));
        }
    };
    Ok(AccountDiff {
        path,
        account: change.account.clone(),
        wipe: change.wipe,
        slots,
    })
}

/// The change of an account of which only the storage root is known to change.
fn root_alone(path: B256, root: B256) -> AccountDiff {
    AccountDiff {
        path,
        account: AccountUpdate::Keep,
        wipe: false,
        slots: vec![leaf_of(root)],
    }
}

/// The leaf that stands for the storage trie with this root; zero, which is no leaf, for an empty one.
pub(crate) fn leaf_of(root: B256) -> (B256, U256) {
    let value = match root {
        EMPTY_ROOT => U256::ZERO,
        root => root.into(),
    };
    (STORAGE_ROOT_KEY, value)
}

/// The storage root that the value of such a leaf stands for.
pub fn storage_root_of(value: U256) -> B256 {
    match value.is_zero() {
        true => EMPTY_ROOT,
        false => value.into(),
    }
}

/// The error for a slot with the reserved key.
pub(crate) fn reserved(account: B256) -> StateError {
    wrong(
        account,
        "one of its slots has the key that is reserved for storage roots",
    )
}

/// The error for a storage of the account that can't be taken.
pub(crate) fn wrong(account: B256, what: &'static str) -> StateError {
    StateError::StorageRoot { account, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_primitives::Account;

    const KEPT: B256 = B256::repeat_byte(2);
    const OTHER: B256 = B256::repeat_byte(4);
    const ROOT: B256 = B256::repeat_byte(9);

    fn change(path: B256, slots: &[B256]) -> AccountDiff {
        AccountDiff {
            path,
            account: AccountUpdate::Put(Account::default()),
            wipe: false,
            slots: slots.iter().map(|slot| (*slot, U256::from(7))).collect(),
        }
    }

    fn kept() -> KeptStorage {
        KeptStorage::new([KEPT]).unwrap()
    }

    #[test]
    fn slots_of_other_contracts_become_their_roots() {
        let slot = B256::repeat_byte(1);
        let changes = Changes::new(vec![change(KEPT, &[slot]), change(OTHER, &[slot])]);
        let third = B256::repeat_byte(5);
        let roots = [(KEPT, ROOT), (OTHER, ROOT), (third, EMPTY_ROOT)];
        let reduced = kept().reduce(&changes, &roots).unwrap().into_owned();
        let root = |path, value| AccountDiff {
            slots: vec![(STORAGE_ROOT_KEY, value)],
            ..change(path, &[])
        };
        let expected = vec![
            change(KEPT, &[slot]),
            root(OTHER, ROOT.into()),
            AccountDiff {
                account: AccountUpdate::Keep,
                ..root(third, U256::ZERO)
            },
        ];
        assert_eq!(reduced, Changes::new(expected));
    }

    #[test]
    fn what_is_missing_false_or_reserved_is_refused_by_name() {
        let slot = B256::repeat_byte(1);
        let changes = |path, slot| Changes::new(vec![change(path, &[slot])]);
        let deleted = Changes::new(vec![AccountDiff {
            account: AccountUpdate::Delete,
            ..change(OTHER, &[])
        }]);
        for (changes, roots, told) in [
            (changes(OTHER, slot), vec![], "is not given"),
            (changes(OTHER, slot), vec![(OTHER, B256::ZERO)], "as zero"),
            (
                changes(OTHER, slot),
                vec![(OTHER, ROOT), (OTHER, ROOT)],
                "twice",
            ),
            (
                changes(OTHER, slot),
                vec![(OTHER, ROOT), (KEPT, ROOT)],
                "order",
            ),
            (
                changes(OTHER, STORAGE_ROOT_KEY),
                vec![(OTHER, ROOT)],
                "reserved",
            ),
            (changes(KEPT, STORAGE_ROOT_KEY), vec![], "reserved"),
            (deleted, vec![(OTHER, ROOT)], "is deleted"),
        ] {
            let error = kept().reduce(&changes, &roots).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(error.contains("0x"), "{error}");
        }
    }

    #[test]
    fn the_list_survives_its_encoding_and_others_are_refused() {
        let many = KeptStorage::new([OTHER, KEPT, OTHER]).unwrap();
        assert_eq!(many.accounts(), [KEPT, OTHER]);
        assert_eq!(KeptStorage::decode(&many.encode()), Some(many));
        assert_eq!(
            KeptStorage::decode(&[]).unwrap().accounts(),
            [B256::ZERO; 0]
        );
        for bad in [
            vec![1; 31],
            [OTHER.0, KEPT.0].concat(),
            [KEPT.0, KEPT.0].concat(),
        ] {
            assert_eq!(KeptStorage::decode(&bad), None);
        }
        let many =
            (0..=KeptStorage::ACCOUNTS_MAX).map(|at| B256::left_padding_from(&at.to_be_bytes()));
        assert!(KeptStorage::new(many).is_err());
    }
}

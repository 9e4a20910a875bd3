//! Changes of a block in the form in which other clients keep them.

use crate::{Account, AccountDiff, AccountUpdate, Changes, ChangesError};
use alloc::vec::Vec;
use alloy_primitives::{
    U256,
    map::{B256Map, hash_map::Entry},
};

/// The accounts and slots that one or several blocks have touched, with their values afterwards, by hashed
/// address and hashed slot: the shape of reth's type of the same name.
///
/// ```
/// use alloy_primitives::{B256, U256};
/// use cambium_primitives::{Account, Changes, HashedPostState, HashedStorage};
///
/// let contract = B256::repeat_byte(1); // keccak(address)
/// let mut state = HashedPostState::default();
/// state.accounts.insert(contract, Some(Account { nonce: 1, ..Account::default() }));
/// state.accounts.insert(B256::repeat_byte(2), None); // destroyed
/// let mut storage = HashedStorage { wiped: true, ..HashedStorage::default() };
/// storage.storage.insert(B256::repeat_byte(3), U256::from(7)); // keccak(slot)
/// state.storages.insert(contract, storage);
///
/// let changes = Changes::try_from(state)?;
/// assert_eq!(changes.counts(), (2, 1));
/// # Ok::<_, cambium_primitives::ChangesError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashedPostState {
    /// Accounts afterwards, by keccak(address). `None`: it does not exist, and has no slots.
    pub accounts: B256Map<Option<Account>>,
    /// Storage afterwards, by keccak(address). The fields of an account that is not in
    /// [`accounts`](Self::accounts) do not change.
    pub storages: B256Map<HashedStorage>,
}

/// The slots of an account in a [`HashedPostState`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashedStorage {
    /// Whether all slots from before are removed: the account was destroyed, and created again if it
    /// exists.
    pub wiped: bool,
    /// Values afterwards, by keccak(slot). Zero: the slot does not exist.
    pub storage: B256Map<U256>,
}

/// | in the post-state | change |
/// |---|---|
/// | account `None` | the account and its storage are deleted |
/// | account with fields | fields are put |
/// | storage alone | fields are kept |
/// | wiped | slots from before are removed, and those that are not zero are set |
/// | not wiped | slots are set, zeros removed |
///
/// A touched account that neither existed nor exists becomes a deletion, which changes nothing.
impl TryFrom<HashedPostState> for Changes {
    type Error = ChangesError;

    /// Sorts the post-state.
    ///
    /// # Errors
    ///
    /// [`ChangesError::SlotsOfDeleted`] if an account that does not exist has a slot that is not zero.
    fn try_from(state: HashedPostState) -> Result<Self, ChangesError> {
        let HashedPostState {
            mut accounts,
            storages,
        } = state;
        let mut diffs = Vec::with_capacity(accounts.len().max(storages.len()));
        for (path, HashedStorage { wiped, storage }) in storages {
            let account = match accounts.entry(path) {
                Entry::Occupied(fields) => update(fields.remove()),
                Entry::Vacant(_) => AccountUpdate::Keep,
            };
            let wipe = wiped || account == AccountUpdate::Delete;
            // A wipe has removed what is zero.
            let slots = storage
                .into_iter()
                .filter(|(_, value)| !wipe || !value.is_zero());
            let slots: Vec<_> = slots.collect();
            if account == AccountUpdate::Keep && !wipe && slots.is_empty() {
                continue;
            }
            diffs.push(AccountDiff {
                path,
                account,
                wipe,
                slots,
            });
        }
        diffs.extend(accounts.into_iter().map(|(path, fields)| AccountDiff {
            path,
            account: update(fields),
            wipe: fields.is_none(),
            slots: Vec::new(),
        }));
        Self::try_new(diffs)
    }
}

fn update(fields: Option<Account>) -> AccountUpdate {
    fields.map_or(AccountUpdate::Delete, AccountUpdate::Put)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloy_primitives::B256;
    use proptest::prelude::*;

    type Model = BTreeMap<u8, (u64, BTreeMap<u8, u64>)>;

    /// Steps of a block on an account, and on its slots: 0 deletes, 1 destroys and creates again, others change.
    type Steps = BTreeMap<u8, (u8, u64, BTreeMap<u8, u64>)>;

    fn steps() -> impl Strategy<Value = Steps> {
        let slots = proptest::collection::btree_map(0u8..4, 0u64..3, 0..4);
        proptest::collection::btree_map(0u8..4, (0u8..4, 1u64..9, slots), 0..4)
    }

    /// Runs a block on the model, and returns its post-state as a client collects it.
    fn run(model: &mut Model, steps: &Steps) -> HashedPostState {
        let mut post = HashedPostState::default();
        for (address, (kind, nonce, slots)) in steps {
            let path = B256::repeat_byte(*address);
            let storage = post.storages.entry(path).or_default();
            let existed = model.contains_key(address);
            if *kind < 2 {
                model.remove(address);
                storage.wiped = existed;
            }
            if *kind == 0 {
                post.accounts.insert(path, None);
                // Slots that the block touched before the account was destroyed.
                let zeros = slots
                    .keys()
                    .map(|slot| (B256::repeat_byte(*slot), U256::ZERO));
                storage.storage.extend(zeros);
                continue;
            }
            let account = model.entry(*address).or_default();
            if account.0 != *nonce || !existed {
                account.0 = *nonce;
                let nonce = *nonce;
                let fields = Account {
                    nonce,
                    ..Account::default()
                };
                post.accounts.insert(path, Some(fields));
            }
            for (slot, value) in slots {
                let key = B256::repeat_byte(*slot);
                storage.storage.insert(key, U256::from(*value));
                match value {
                    0 => account.1.remove(slot),
                    _ => account.1.insert(*slot, *value),
                };
            }
        }
        post
    }

    fn apply(model: &mut Model, changes: &Changes) {
        for change in changes.accounts() {
            let key = change.path[0];
            match change.account {
                AccountUpdate::Delete => {
                    model.remove(&key);
                    continue;
                }
                AccountUpdate::Put(account) => model.entry(key).or_default().0 = account.nonce,
                AccountUpdate::Keep | AccountUpdate::Entry(_) => assert!(model.contains_key(&key)),
            }
            let slots = &mut model.entry(key).or_default().1;
            if change.wipe {
                slots.clear();
            }
            for (slot, value) in &change.slots {
                match value.to::<u64>() {
                    0 => slots.remove(&slot[0]),
                    value => slots.insert(slot[0], value),
                };
            }
        }
    }

    proptest! {
        #[test]
        fn changes_of_a_post_state_do_what_the_block_did(blocks in proptest::collection::vec(steps(), 1..6)) {
            let (mut model, mut applied, mut together) = (Model::new(), Model::new(), Changes::default());
            for block in &blocks {
                let changes = Changes::try_from(run(&mut model, block)).unwrap();
                apply(&mut applied, &changes);
                prop_assert_eq!(&applied, &model);
                together = together.then(changes);
            }
            let mut at_once = Model::new();
            apply(&mut at_once, &together);
            prop_assert_eq!(at_once, model);
        }
    }

    #[test]
    fn slots_of_an_account_that_does_not_exist_are_refused() {
        let path = B256::repeat_byte(1);
        let mut state = HashedPostState::default();
        state.accounts.insert(path, None);
        let storage = state.storages.entry(path).or_default();
        storage.storage.insert(B256::ZERO, U256::from(1));
        let error = ChangesError::SlotsOfDeleted(path);
        assert_eq!(Changes::try_from(state), Err(error));
    }

    #[test]
    fn storage_that_nothing_changes_is_no_change() {
        let mut state = HashedPostState::default();
        state.storages.entry(B256::ZERO).or_default();
        assert_eq!(Changes::try_from(state), Ok(Changes::default()));
    }
}

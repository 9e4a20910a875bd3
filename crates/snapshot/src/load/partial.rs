//! The first state of a partial database: slots that are not kept become storage roots on the way to the pages.
//!
//! Leaves come in the order of their paths, so the slots of one contract follow each other: one storage trie is built at a
//! time, with the memory of one shard. Nothing of it is written.

use super::{build::ShardBuilder, sort::LeafSink};
use crate::base::{
    counters::Counters,
    error::StateError,
    kept_storage::{KeptStorage, reserved, wrong},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, EntryValue, STORAGE_ROOT_KEY};
use cambium_trie::{Commitment, NodeView};

const BOTH: &str = "both its slots and its storage root are given";

/// Passes leaves on to the builder of a shard, with storage roots in place of slots that are not kept.
pub(super) struct PartialSink<'a, 'b> {
    to: &'b mut ShardBuilder<'a>,
    kept: &'b KeptStorage,
    /// Makes the builder of one storage trie.
    new_storage: &'b dyn Fn() -> ShardBuilder<'a>,
    /// The newest account.
    account: Option<B256>,
    /// Whether its storage root was given in place of slots.
    has_root: bool,
    /// The storage trie of the newest account, if it has slots that are not kept.
    storage: Option<ShardBuilder<'a>>,
}

impl<'a> ShardBuilder<'a> {
    /// Creates the builder of one storage trie, whose root alone is needed.
    pub(super) fn of_storage(
        shard: usize,
        counters: &'a Counters,
        leaves_max: usize,
        progress: &'a dyn Fn(usize),
    ) -> Self {
        Self::new(shard, Commitment::Mpt, None, counters, leaves_max, progress)
    }
}

impl<'a, 'b> PartialSink<'a, 'b> {
    pub(super) fn new(
        to: &'b mut ShardBuilder<'a>,
        kept: &'b KeptStorage,
        new_storage: &'b dyn Fn() -> ShardBuilder<'a>,
    ) -> Self {
        Self {
            to,
            kept,
            new_storage,
            account: None,
            has_root: false,
            storage: None,
        }
    }

    /// Passes the root of the newest account's storage on, if its slots are not kept.
    pub(super) fn end(&mut self) -> Result<(), StateError> {
        let Some((storage, account)) = self.storage.take().zip(self.account) else {
            return Ok(());
        };
        let root = root_of(storage)?;
        self.to.slot(&account, STORAGE_ROOT_KEY, root.into())
    }
}

/// The storage root of the only account that a builder has.
fn root_of(storage: ShardBuilder<'_>) -> Result<B256, StateError> {
    let (trie, _) = storage.finish()?;
    let root = match trie.visit(trie.root()) {
        NodeView::Account { storage, .. } => trie.storage_root_at(storage),
        _ => None,
    };
    root.ok_or_else(|| StateError::Broken {
        path: *trie.base(),
        what: "the root of a storage",
    })
}

/// Number of leaves of a storage trie that are in memory at a time, in [`root_of_slots`].
const LEAVES_MAX: usize = 64 << 10;

/// Computes the root of a storage trie from its slots, by keccak(slot), which `visit` passes to the function that it is given,
/// in order. Memory is bounded for any number of slots.
///
/// # Errors
///
/// [`StateError::Trie`] if the slots are not sorted, or one comes twice; [`StateError::StorageRoot`] for a slot with the value zero
/// or with the reserved key; and what `visit` returns.
pub fn root_of_slots<E: From<StateError>>(
    account: B256,
    visit: impl FnOnce(&mut dyn FnMut(B256, U256) -> Result<(), StateError>) -> Result<(), E>,
) -> Result<B256, E> {
    let counters = Counters::default();
    let shard = usize::from(account[0]);
    let mut storage = ShardBuilder::of_storage(shard, &counters, LEAVES_MAX, &|_| {});
    storage.account(account, Account::default())?;
    visit(&mut |slot, value| {
        if slot == STORAGE_ROOT_KEY {
            return Err(reserved(account));
        }
        if value.is_zero() {
            return Err(wrong(account, "one of its slots is given as zero"));
        }
        storage.slot(&account, slot, value)
    })?;
    Ok(root_of(storage)?)
}

impl LeafSink for PartialSink<'_, '_> {
    fn account(&mut self, path: B256, account: Account) -> Result<(), StateError> {
        self.end()?;
        self.account = Some(path);
        self.has_root = false;
        self.to.account(path, account)
    }

    fn entry(&mut self, key: B256, value: EntryValue) -> Result<(), StateError> {
        self.to.entry(key, value)
    }

    fn slot(&mut self, account: &B256, slot: B256, value: U256) -> Result<(), StateError> {
        if slot == STORAGE_ROOT_KEY {
            if self.kept.keeps(account) || self.storage.is_some() {
                return Err(wrong(*account, BOTH));
            }
            self.has_root = true;
            return self.to.slot(account, slot, value);
        }
        if self.has_root && self.account == Some(*account) {
            return Err(wrong(*account, BOTH));
        }
        // Slots without their account are refused there.
        if self.kept.keeps(account) || self.account != Some(*account) {
            return self.to.slot(account, slot, value);
        }
        let storage = match &mut self.storage {
            Some(storage) => storage,
            none => {
                let mut storage = (self.new_storage)();
                storage.account(*account, Account::default())?;
                none.insert(storage)
            }
        };
        storage.slot(account, slot, value)
    }
}

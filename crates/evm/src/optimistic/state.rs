//! The state that a transaction runs on, in order or ahead of its commit position.

use super::versions::Versions;
use crate::{StateRead, cache::BlockCache};
use alloy_primitives::{
    Address, B256, U256,
    map::{AddressMap, Entry, U256Map},
};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The state below an overlay.
pub(super) enum Below<'a, DB> {
    /// The parent's state, below the block's overlay.
    Parent(&'a BlockCache<'a, DB>),
    /// The parent's state with the writes of earlier transactions that have run.
    Guess {
        parent: &'a ParentReads<'a, DB>,
        versions: &'a Versions,
        /// Index of the transaction that runs.
        index: usize,
        /// Whether a transaction's write has been read.
        guessed: AtomicBool,
    },
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum BelowError<E> {
    #[error(transparent)]
    State(E),
    /// The value can't be guessed: the transaction must wait for its commit position.
    #[error("this value is only read at the commit position")]
    InOrder,
}

impl<E: DBErrorMarker> DBErrorMarker for BelowError<E> {}

/// Values of the parent's state that one thread has read. Other threads need not take locks to read
/// theirs.
pub(super) struct ParentReads<'a, DB> {
    cache: &'a BlockCache<'a, DB>,
    /// Taken by one thread only.
    values: Mutex<ParentValues>,
}

#[derive(Default)]
struct ParentValues {
    accounts: AddressMap<Option<AccountInfo>>,
    slots: AddressMap<U256Map<U256>>,
}

impl<'a, DB: StateRead + Sync> ParentReads<'a, DB> {
    pub(super) fn new(cache: &'a BlockCache<'a, DB>) -> Self {
        Self {
            cache,
            values: Mutex::default(),
        }
    }

    fn account(&self, address: Address) -> Result<Option<AccountInfo>, DB::Error> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        match values.accounts.entry(address) {
            Entry::Occupied(account) => Ok(account.get().clone()),
            Entry::Vacant(entry) => Ok(entry.insert(self.cache.account(address)?).clone()),
        }
    }

    fn slot(&self, address: Address, slot: U256) -> Result<U256, DB::Error> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        match values.slots.entry(address).or_default().entry(slot) {
            Entry::Occupied(value) => Ok(*value.get()),
            Entry::Vacant(entry) => Ok(*entry.insert(self.cache.slot(address, slot)?)),
        }
    }
}

impl<DB> Below<'_, DB> {
    /// Whether all accounts and slots that were read came from the parent's state.
    pub(super) fn is_parent(&self) -> bool {
        match self {
            Self::Parent(_) => true,
            Self::Guess { guessed, .. } => !guessed.load(Ordering::Relaxed),
        }
    }
}

impl<DB: StateRead + Sync> DatabaseRef for Below<'_, DB> {
    type Error = BelowError<DB::Error>;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let account = match self {
            Self::Parent(cache) => cache.account_once(address),
            Self::Guess {
                parent,
                versions,
                index,
                guessed,
            } => {
                if versions.is_in_order(&address) {
                    return Err(BelowError::InOrder);
                }
                if let Some(account) = versions.account(address, *index) {
                    guessed.store(true, Ordering::Relaxed);
                    return Ok(account);
                }
                parent.account(address)
            }
        };
        account.map_err(BelowError::State)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        let code = match self {
            Self::Parent(cache) => cache.code(hash),
            Self::Guess {
                parent, versions, ..
            } => match versions.code(&hash) {
                Some(code) => Ok(code),
                None => parent.cache.code(hash),
            },
        };
        code.map_err(BelowError::State)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        let value = match self {
            Self::Parent(cache) => cache.slot_once(address, slot),
            Self::Guess {
                parent,
                versions,
                index,
                guessed,
            } => {
                if let Some(value) = versions.slot(address, slot, *index) {
                    guessed.store(true, Ordering::Relaxed);
                    return Ok(value);
                }
                parent.slot(address, slot)
            }
        };
        value.map_err(BelowError::State)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        let cache = match self {
            Self::Parent(cache) => cache,
            Self::Guess { parent, .. } => parent.cache,
        };
        cache.db().block_hash_ref(number).map_err(BelowError::State)
    }
}

impl<DB: StateRead + Sync> StateRead for Below<'_, DB> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        match self {
            Self::Parent(cache) => {
                let has_storage = cache.db().has_storage(address);
                has_storage.map_err(BelowError::State)
            }
            Self::Guess { .. } => Err(BelowError::InOrder),
        }
    }
}

//! The state that a transaction runs on, in order or ahead of its commit position.

use super::versions::Versions;
use crate::{StateRead, cache::BlockCache};
use alloy_primitives::{Address, B256, U256};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// The state below an overlay.
pub(super) enum Below<'a, DB> {
    /// The parent's state, below the block's overlay.
    Parent(&'a BlockCache<'a, DB>),
    /// The parent's state with the writes of earlier transactions that have run.
    Guess {
        cache: &'a BlockCache<'a, DB>,
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

impl<'a, DB> Below<'a, DB> {
    const fn cache(&self) -> &'a BlockCache<'a, DB> {
        match self {
            Self::Parent(cache) | Self::Guess { cache, .. } => cache,
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
        if let Self::Guess {
            versions,
            index,
            guessed,
            ..
        } = self
        {
            if versions.is_in_order(&address) {
                return Err(BelowError::InOrder);
            }
            if let Some(account) = versions.account(address, *index) {
                guessed.store(true, Ordering::Relaxed);
                return Ok(account);
            }
        }
        let account = self.cache().account(address);
        account.map_err(BelowError::State)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        if let Self::Guess { versions, .. } = self
            && let Some(code) = versions.code(&hash)
        {
            return Ok(code);
        }
        self.cache().code(hash).map_err(BelowError::State)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        if let Self::Guess {
            versions,
            index,
            guessed,
            ..
        } = self
            && let Some(value) = versions.slot(address, slot, *index)
        {
            guessed.store(true, Ordering::Relaxed);
            return Ok(value);
        }
        let value = self.cache().slot(address, slot);
        value.map_err(BelowError::State)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        let hash = self.cache().db().block_hash_ref(number);
        hash.map_err(BelowError::State)
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

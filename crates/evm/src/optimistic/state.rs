//! The state that a transaction runs on, in order or ahead of it.

use super::versions::Versions;
use crate::{StateRead, cache::BlockCache};
use alloy_primitives::{Address, B256, U256};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is below an overlay.
pub(super) enum Below<'a, DB> {
    /// The parent's state, under the overlay of the block.
    Parent(&'a BlockCache<'a, DB>),
    /// That, and what transactions before one left that ran already.
    Guess {
        cache: &'a BlockCache<'a, DB>,
        versions: &'a Versions,
        /// The transaction.
        index: usize,
        /// Whether anything was read that a transaction left.
        guessed: AtomicBool,
    },
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BelowError<E> {
    #[error(transparent)]
    State(E),
    /// No guess is worth it: the transaction must wait for its turn.
    #[error("this is read in order only")]
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
    /// Whether all accounts and slots that were read are the parent's.
    pub(super) fn is_parent(&self) -> bool {
        match self {
            Self::Parent(_) => true,
            Self::Guess { guessed, .. } => !guessed.load(Ordering::Relaxed),
        }
    }
}

impl<DB: StateRead> DatabaseRef for Below<'_, DB> {
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

impl<DB: StateRead> StateRead for Below<'_, DB> {
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

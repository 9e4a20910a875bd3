//! What one step of a block finds, by the block's access list.

use super::given::Given;
use crate::{StateRead, cache::BlockCache};
use alloy_primitives::{Address, B256, U256};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};

/// The parent's state with the newest changes of the steps before one.
pub(super) struct ListState<'a, DB> {
    pub(super) given: &'a Given<'a>,
    pub(super) cache: &'a BlockCache<'a, DB>,
    /// The step's index.
    pub(super) at: u64,
}

/// Why a step's state could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListStateError<E> {
    #[error(transparent)]
    State(E),
    #[error("the access list does not tell whether an account without code has storage")]
    Untold,
}

impl<E: DBErrorMarker> DBErrorMarker for ListStateError<E> {}

impl<DB: StateRead> DatabaseRef for ListState<'_, DB> {
    type Error = ListStateError<DB::Error>;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let parent = self.cache.account(address).map_err(ListStateError::State)?;
        Ok(self.given.account(&address, self.at, parent))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        match self.given.code(&hash) {
            Some(code) => Ok(code.clone()),
            None => self.cache.code(hash).map_err(ListStateError::State),
        }
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        match self.given.slot(&address, slot, self.at) {
            Some(value) => Ok(value),
            None => {
                let value = self.cache.slot(address, slot);
                value.map_err(ListStateError::State)
            }
        }
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        let hash = self.cache.db().block_hash_ref(number);
        hash.map_err(ListStateError::State)
    }
}

impl<DB: StateRead> StateRead for ListState<'_, DB> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        if self.given.has_slot_before(&address, self.at) {
            return Err(ListStateError::Untold);
        }
        let has_storage = self.cache.db().has_storage(address);
        has_storage.map_err(ListStateError::State)
    }
}

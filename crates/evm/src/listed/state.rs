//! The pre-state of one step of a block, derived from the block's access list.

use super::parent::Parent;
use crate::StateRead;
use alloy_primitives::{Address, B256, U256};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};

/// The parent's state with the newest listed changes of the steps before a step.
pub(super) struct ListState<'a, DB> {
    pub(super) parent: &'a Parent<'a, DB>,
    /// Index of the step.
    pub(super) at: u64,
}

/// Why a step's state could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListStateError<E> {
    #[error(transparent)]
    State(E),
    #[error("the access list can't show whether an account without code has storage")]
    Untold,
}

impl<E: DBErrorMarker> DBErrorMarker for ListStateError<E> {}

impl<DB: StateRead + Sync> DatabaseRef for ListState<'_, DB> {
    type Error = ListStateError<DB::Error>;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let given = self.parent.given();
        let account = match given.index().account(&address) {
            Some(place) => {
                let parent = self.parent.account(place);
                parent.map(|parent| given.account(place, self.at, parent))
            }
            None => self.parent.unlisted_account(address),
        };
        account.map_err(ListStateError::State)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        match self.parent.given().code(&hash) {
            Some(code) => Ok(code.clone()),
            None => self.parent.code(hash).map_err(ListStateError::State),
        }
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        let given = self.parent.given();
        let value = match given.index().slot(&address, slot) {
            Some(place) => match given.slot(place, self.at) {
                Some(value) => Ok(value),
                None => self.parent.slot(place, address, slot),
            },
            None => self.parent.unlisted_slot(address, slot),
        };
        value.map_err(ListStateError::State)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        let hash = self.parent.db().block_hash_ref(number);
        hash.map_err(ListStateError::State)
    }
}

impl<DB: StateRead + Sync> StateRead for ListState<'_, DB> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        if self.parent.given().has_slot_before(&address, self.at) {
            return Err(ListStateError::Untold);
        }
        let has_storage = self.parent.db().has_storage(address);
        has_storage.map_err(ListStateError::State)
    }
}

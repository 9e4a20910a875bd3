//! The pre-state of one step of a block, derived from the access lists of the block and of those
//! before it.

use super::values::{Unlisted, Values};
use crate::StateRead;
use alloy_primitives::{Address, B256, U256};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};

/// The state before a block with the newest listed changes of its steps before a step.
pub(super) struct ListState<'a, 'b, DB> {
    pub(super) values: &'a Values<'b, DB>,
    /// Position of the block.
    pub(super) block: usize,
    /// Index of the step.
    pub(super) at: u64,
    pub(super) unlisted: &'a Unlisted,
}

/// Why a step's state could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListStateError<E> {
    #[error(transparent)]
    State(E),
    #[error("the access list can't show whether an account without code has storage")]
    Untold,
}

impl<E: DBErrorMarker> DBErrorMarker for ListStateError<E> {}

impl<DB: StateRead + Sync> DatabaseRef for ListState<'_, '_, DB> {
    type Error = ListStateError<DB::Error>;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let given = self.values.given(self.block);
        let account = match given.index().account(&address) {
            Some(place) => {
                let before = self.values.account(self.block, place);
                before.map(|before| given.account(place, self.at, before))
            }
            None => self
                .values
                .unlisted_account(self.block, address, self.unlisted),
        };
        account.map_err(ListStateError::State)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        let code = self.values.code(self.block, hash);
        code.map_err(ListStateError::State)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        let given = self.values.given(self.block);
        let value = match given.index().slot(&address, slot) {
            Some(place) => match given.slot(place, self.at) {
                Some(value) => Ok(value),
                None => self.values.slot(self.block, place, slot),
            },
            None => self
                .values
                .unlisted_slot(self.block, (address, slot), self.unlisted),
        };
        value.map_err(ListStateError::State)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        let hash = self.values.block_hash(self.block, number);
        hash.map_err(ListStateError::State)
    }
}

impl<DB: StateRead + Sync> StateRead for ListState<'_, '_, DB> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        let has_storage = self.values.has_storage(self.block, self.at, address);
        let has_storage = has_storage.map_err(ListStateError::State)?;
        has_storage.ok_or(ListStateError::Untold)
    }
}

//! The state of a block, with the changes that a caller wants to see in it.

use super::precompiles::CallPrecompiles;
use crate::{cancel::Cancel, error::RpcError};
use alloy_primitives::{Address, B256, U256};
use alloy_rpc_types_eth::state::{AccountOverride, StateOverride};
use cambium_history::{HistoryError, StateAt};
use revm::{
    DatabaseCommit, DatabaseRef,
    bytecode::Bytecode,
    database::{AccountState, CacheDB, DBErrorMarker, DbAccount},
    state::{AccountInfo, EvmState},
};
use std::collections::BTreeMap;

/// Why the state can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallStateError {
    /// The database fails.
    #[error(transparent)]
    State(Box<HistoryError>),
    /// Nobody waits any more.
    #[error(transparent)]
    Over(#[from] RpcError),
}

impl DBErrorMarker for CallStateError {}

impl From<HistoryError> for CallStateError {
    fn from(error: HistoryError) -> Self {
        Self::State(Box::new(error))
    }
}

impl From<CallStateError> for RpcError {
    fn from(error: CallStateError) -> Self {
        match error {
            CallStateError::State(error) => (*error).into(),
            CallStateError::Over(error) => error,
        }
    }
}

/// The state after a block, as long as the answer is wanted.
pub(crate) struct CallState {
    state: StateAt,
    cancel: Cancel,
    hashes: BTreeMap<u64, B256>,
}

/// The state, and changes above it.
pub(crate) type ChangedState = CacheDB<CallState>;

impl CallState {
    pub(crate) const fn new(state: StateAt, cancel: Cancel) -> Self {
        Self {
            state,
            cancel,
            hashes: BTreeMap::new(),
        }
    }

    /// The state after the block.
    pub(crate) const fn state(&self) -> &StateAt {
        &self.state
    }

    /// Sets hashes of blocks.
    pub(crate) fn set_hashes(&mut self, hashes: BTreeMap<u64, B256>) {
        self.hashes.extend(hashes);
    }
}

impl DatabaseRef for CallState {
    type Error = CallStateError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, CallStateError> {
        self.cancel.check()?;
        Ok(self.state.basic_ref(address)?)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, CallStateError> {
        Ok(self.state.code_by_hash_ref(hash)?)
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, CallStateError> {
        self.cancel.check()?;
        Ok(self.state.storage_ref(address, slot)?)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, CallStateError> {
        match self.hashes.get(&number) {
            Some(hash) => Ok(*hash),
            None => Ok(self.state.block_hash_ref(number)?),
        }
    }
}

/// Makes the changes that a caller wants to see, in the order of their addresses.
pub(crate) fn change(
    state: &mut ChangedState,
    precompiles: &mut CallPrecompiles,
    changes: StateOverride,
) -> Result<(), RpcError> {
    let mut changes: Vec<_> = changes.into_iter().collect();
    changes.sort_unstable_by_key(|(address, _)| *address);
    precompiles.change(&changes)?;
    for (address, change) in changes {
        change_account(state, address, change)?;
    }
    Ok(())
}

/// Applies what a transaction or a system call changes.
pub(crate) fn commit(state: &mut ChangedState, changes: EvmState) {
    let is_absent = |address: &Address| {
        let known = state.cache.accounts.get(address);
        known.is_some_and(|known| known.account_state == AccountState::NotExisting)
    };
    let absent: Vec<_> = changes.keys().copied().filter(is_absent).collect();
    state.commit(changes);
    for address in absent {
        if let Some(account) = state.cache.accounts.get_mut(&address) {
            hide_storage(account);
        }
    }
}

/// An account that did not exist has no storage, also where the state below has some: that of a contract that a
/// transaction before destroyed.
fn hide_storage(account: &mut DbAccount) {
    if account.account_state != AccountState::NotExisting {
        account.account_state = AccountState::StorageCleared;
    }
}

fn change_account(
    state: &mut ChangedState,
    address: Address,
    change: AccountOverride,
) -> Result<(), RpcError> {
    let AccountOverride {
        balance,
        nonce,
        code,
        state: slots,
        state_diff,
        move_precompile_to: _,
    } = change;
    let account = state.load_account(address).map_err(RpcError::from)?;
    let is_absent = account.account_state == AccountState::NotExisting;
    let mut info = account.info().unwrap_or_default();
    if let Some(balance) = balance {
        info.balance = balance;
    }
    if let Some(nonce) = nonce {
        info.nonce = nonce;
    }
    if let Some(code) = code {
        let code = Bytecode::new_raw_checked(code)
            .map_err(|error| RpcError::params(format!("code of {address}: {error}")))?;
        info.code_hash = code.hash_slow();
        info.code = Some(code);
    }
    state.insert_account_info(address, info);
    if is_absent {
        hide_storage(state.load_account(address).map_err(RpcError::from)?);
    }
    let number = |(slot, value): (B256, B256)| (U256::from_be_bytes(slot.0), value.into());
    match (slots, state_diff) {
        (Some(_), Some(_)) => {
            let what = format!("account {address} has both 'state' and 'stateDiff'");
            return Err(RpcError::params(what));
        }
        (Some(slots), None) => {
            let slots = slots.into_iter().map(number).collect();
            state
                .replace_account_storage(address, slots)
                .map_err(RpcError::from)?;
        }
        (None, Some(slots)) => {
            for (slot, value) in slots.into_iter().map(number) {
                state
                    .insert_account_storage(address, slot, value)
                    .map_err(RpcError::from)?;
            }
        }
        (None, None) => {}
    }
    Ok(())
}

//! The state so far: its values, and its trie, of which the nodes on the paths of changes are loaded.

use super::super::call::{CallPrecompiles, CallState, ChangedState, change, commit};
use crate::{cancel::Cancel, error::RpcError};
use alloy_primitives::{Address, B256, U256, keccak256};
use alloy_rpc_types_eth::state::StateOverride;
use cambium_chain::BlockChanges;
use cambium_evm::account;
use cambium_history::{HistoryError, StateAt, StateNodes};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes};
use cambium_trie::{Batch, PartialTrie, ProofTargets, UpdateError};
use revm::{
    database::AccountState,
    state::{AccountInfo, EvmState},
};

/// Most bytes of the trie in memory.
const TRIE_BYTES: usize = 256 << 20;
/// Accounts whose changes are applied together: whether the answer is still wanted is checked between.
const ACCOUNTS_AT_ONCE: usize = 256;

/// A state on which simulated blocks run, one after another.
pub(super) struct SimulatedState<'s> {
    pub(super) values: ChangedState,
    trie: PartialTrie,
    nodes: StateNodes<'s>,
    batch: Batch,
    cancel: Cancel,
}

impl<'s> SimulatedState<'s> {
    pub(super) fn new(below: &'s StateAt, cancel: &Cancel) -> Result<Self, RpcError> {
        let (trie, nodes) = below.partial_trie()?;
        let values = ChangedState::new(CallState::new(below.clone(), cancel.clone()));
        Ok(Self {
            values,
            trie,
            nodes,
            batch: Batch::new(),
            cancel: cancel.clone(),
        })
    }

    /// The account at an address, as it is now.
    pub(super) fn account(&mut self, address: Address) -> Result<AccountInfo, RpcError> {
        let known = self.values.load_account(address).map_err(RpcError::from)?;
        Ok(known.info().unwrap_or_default())
    }

    /// Makes the changes that a caller wants to see.
    pub(super) fn change(
        &mut self,
        precompiles: &mut CallPrecompiles,
        changes: StateOverride,
    ) -> Result<(), RpcError> {
        let slots = changes.iter().filter_map(|(address, change)| {
            let slots = change.state.as_ref().or(change.state_diff.as_ref());
            let is_change = slots.is_some()
                || change.balance.is_some()
                || change.nonce.is_some()
                || change.code.is_some();
            let slots = slots.into_iter().flatten();
            let slots = slots.map(|(slot, value)| (keccak256(slot), U256::from_be_bytes(value.0)));
            is_change.then(|| (*address, change.state.is_some(), slots.collect::<Vec<_>>()))
        });
        let slots: Vec<_> = slots.collect();
        change(&mut self.values, precompiles, changes)?;
        let mut changed = Vec::with_capacity(slots.len());
        for (address, wipe, slots) in slots {
            changed.push(AccountDiff {
                path: keccak256(address),
                account: AccountUpdate::Put(account(&self.account(address)?)),
                wipe,
                slots: without_zeros(slots, wipe),
            });
        }
        self.apply(&Changes::new(changed))
    }

    /// Applies what a transaction or a system call changes.
    pub(super) fn commit(&mut self, changes: EvmState) -> Result<(), RpcError> {
        let own = BlockChanges::of_evm_state(&changes).changes;
        commit(&mut self.values, changes);
        self.apply(&own)
    }

    /// Adds to a balance outside any transaction.
    pub(super) fn add_balance(&mut self, address: Address, wei: U256) -> Result<(), RpcError> {
        let mut info = self.account(address)?;
        info.balance = info.balance.saturating_add(wei);
        let update = match info.is_empty() {
            true => AccountUpdate::Delete,
            false => AccountUpdate::Put(account(&info)),
        };
        let known = self.values.load_account(address).map_err(RpcError::from)?;
        if known.account_state == AccountState::NotExisting && !info.is_empty() {
            known.account_state = AccountState::StorageCleared;
        }
        known.info = info;
        self.apply(&Changes::new(vec![AccountDiff {
            path: keccak256(address),
            account: update,
            wipe: false,
            slots: Vec::new(),
        }]))
    }

    fn apply(&mut self, changes: &Changes) -> Result<(), RpcError> {
        let (trie, nodes) = (&mut self.trie, &mut self.nodes);
        for changes in changes.accounts().chunks(ACCOUNTS_AT_ONCE) {
            self.cancel.check()?;
            trie.load(&ProofTargets::of_changes(changes), nodes)
                .map_err(trie_error)?;
            trie.apply(changes, nodes).map_err(trie_error)?;
            if trie.memory_bytes() > TRIE_BYTES {
                return Err(RpcError::new(
                    RpcError::SIMULATION,
                    "the simulation changes more of the state than this server allows",
                ));
            }
        }
        Ok(())
    }

    /// The state root.
    pub(super) fn root(&mut self) -> Result<B256, RpcError> {
        cambium_trie::commit(&mut [&mut self.trie], &mut self.batch);
        let root = self.trie.state_root();
        root.ok_or_else(|| RpcError::internal("the simulated state has no root"))
    }
}

/// Slots of a storage that was wiped have no zeros to remove.
fn without_zeros(slots: Vec<(B256, U256)>, wiped: bool) -> Vec<(B256, U256)> {
    let mut slots = slots;
    slots.retain(|(_, value)| !wiped || !value.is_zero());
    slots
}

fn trie_error(error: UpdateError<HistoryError>) -> RpcError {
    match error {
        UpdateError::Resolve(error) => error.into(),
        UpdateError::Trie(error) => RpcError::internal(error),
    }
}

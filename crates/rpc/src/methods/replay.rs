//! Blocks that are executed again, transaction by transaction.

use super::call::{
    CallEnv, CallPrecompiles, CallState, ChangedState, commit, rules_of, system_call, transact,
};
use crate::{cancel::Cancel, error::RpcError, table::Call};
use alloy_eips::{eip2935::HISTORY_STORAGE_ADDRESS, eip4788::BEACON_ROOTS_ADDRESS};
use alloy_primitives::{Address, B256, Bytes};
use cambium_chain::{Block, block_env, config_env};
use cambium_node::BlockRef;
use revm::{
    context::{TxEnv, result::EVMError},
    primitives::hardfork::SpecId,
};

/// A block that is executed again.
pub(super) struct Replay {
    pub(super) state: ChangedState,
    pub(super) env: CallEnv,
    pub(super) cancel: Cancel,
}

impl Replay {
    /// The state on which the transactions of a block run.
    pub(super) fn of(call: &Call<'_>, block: &Block) -> Result<Self, RpcError> {
        let header = &block.header;
        if header.number == call.node.db().genesis().number {
            return Err(RpcError::server("genesis is not traceable"));
        }
        let spec = call.node.chain()?.spec();
        let rules = rules_of(spec, header);
        let env = CallEnv {
            precompiles: CallPrecompiles::new(rules.spec),
            cfg: config_env(&rules, header.gas_limit),
            block: block_env(header, &rules),
            rules,
        };
        let parent = call.node.state_at(BlockRef::Hash(header.parent_hash))?;
        // The whole block has the time of the answer, not of a call.
        let cancel = call.cancel.renewed(call.limits().time);
        let state = ChangedState::new(CallState::new(parent, cancel.clone()));
        let mut replay = Self { state, env, cancel };
        if rules.is(SpecId::CANCUN)
            && let Some(root) = header.parent_beacon_block_root
        {
            replay.system_call(BEACON_ROOTS_ADDRESS, root)?;
        }
        if rules.is(SpecId::PRAGUE) {
            replay.system_call(HISTORY_STORAGE_ADDRESS, header.parent_hash)?;
        }
        Ok(replay)
    }

    /// What the block itself does before its transactions (EIP-4788, EIP-2935).
    fn system_call(&mut self, to: Address, word: B256) -> Result<(), RpcError> {
        let data = Bytes::copy_from_slice(word.as_slice());
        let done = system_call(&mut self.state, &self.env, to, data, None);
        commit(&mut self.state, done.map_err(failed)?.state);
        Ok(())
    }

    /// Executes a transaction that nobody looks at.
    pub(super) fn run(&mut self, transaction: TxEnv) -> Result<(), RpcError> {
        let called = transact(&mut self.state, &self.env, transaction, None);
        commit(&mut self.state, called.map_err(failed)?.done.state);
        Ok(())
    }
}

pub(super) fn failed<E: std::fmt::Display>(error: EVMError<E>) -> RpcError {
    RpcError::server(format!("the transaction can't be executed again: {error}"))
}

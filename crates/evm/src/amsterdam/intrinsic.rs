//! Intrinsic gas of a transaction: regular gas and state gas (EIP-8037).

use super::prices::gas_params;
use crate::Transaction;
use alloy_consensus::Transaction as _;
use revm::{
    context::result::InvalidTransaction, context_interface::cfg::gas_params::GasParams,
    interpreter::InitialAndFloorGas, primitives::eip7825::TX_GAS_LIMIT_CAP,
};

/// Adds the state gas of a created contract and of authorizations to revm's intrinsic gas. Every
/// authorization is charged for a new account. Fails if `gas_limit` is too low.
pub(crate) fn add_state_gas(
    gas: &mut InitialAndFloorGas,
    params: &GasParams,
    is_create: bool,
    authorizations: u64,
    gas_limit: u64,
) -> Result<(), InvalidTransaction> {
    gas.set_initial_state_gas(state_gas(params, is_create, authorizations));
    let initial_gas = gas
        .initial_regular_gas()
        .saturating_add(gas.initial_state_gas_final());
    if initial_gas > gas_limit {
        return Err(InvalidTransaction::CallGasCostMoreThanGasLimit {
            initial_gas,
            gas_limit,
        });
    }
    let regular = gas.initial_regular_gas().max(gas.floor_gas());
    if regular > TX_GAS_LIMIT_CAP {
        return Err(InvalidTransaction::GasFloorMoreThanGasLimit {
            gas_floor: regular,
            gas_limit: TX_GAS_LIMIT_CAP,
        });
    }
    Ok(())
}

fn state_gas(params: &GasParams, is_create: bool, authorizations: u64) -> u64 {
    let account = params.new_account_state_gas();
    let authorization = account.saturating_add(params.tx_eip7702_state_gas_bytecode());
    let created = if is_create { account } else { 0 };
    created.saturating_add(authorizations.saturating_mul(authorization))
}

/// The most regular gas and the most state gas that a transaction can use in a block with this gas
/// limit.
pub(crate) fn most_gas(transaction: &Transaction, block_gas_limit: u64) -> (u64, u64) {
    let params = gas_params(block_gas_limit);
    let (addresses, slots) = transaction.access_list().map_or((0, 0), |list| {
        let slots = list.iter().map(|item| item.storage_keys.len() as u64);
        (list.len() as u64, slots.sum())
    });
    let is_create = transaction.kind().is_create();
    let authorizations = transaction.authorization_count().unwrap_or(0);
    let input = transaction.input();
    let regular = params.initial_tx_gas(input, is_create, addresses, slots, authorizations, None);
    let state = state_gas(&params, is_create, authorizations);
    let limit = transaction.gas_limit();
    (
        limit.saturating_sub(state).min(TX_GAS_LIMIT_CAP),
        limit.saturating_sub(regular.initial_regular_gas()),
    )
}

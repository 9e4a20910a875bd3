//! Contracts that are created and destroyed in one transaction: refunds and logs at its end.

use super::instructions::burn_log;
use crate::{context::EvmContext, state_gas::refill};
use revm::{
    Database,
    context_interface::{Cfg, cfg::gas_params::GasId},
    interpreter::GasTracker,
};

/// Refunds the state gas of destroyed accounts, their code and their nonzero slots (EIP-8037), up
/// to the state gas used.
pub(crate) fn refund_destroyed<DB: Database>(context: &mut EvmContext<DB>, gas: &mut GasTracker) {
    let params = context.cfg.gas_params();
    let mut refund = 0_u64;
    for account in context.journaled_state.state.values() {
        if !account.is_selfdestructed() {
            continue;
        }
        let slots = account.storage.values();
        let slots = slots.filter(|slot| !slot.present_value.is_zero()).count() as u64;
        let code = account.info.code.as_ref().map_or(0, |code| code.len());
        let slot_gas = params.get(GasId::sstore_set_state_gas());
        refund = refund
            .saturating_add(params.new_account_state_gas())
            .saturating_add(params.code_deposit_state_gas(code))
            .saturating_add(slot_gas.saturating_mul(slots));
    }
    let used = u64::try_from(gas.state_gas_spent()).unwrap_or(0);
    refill(gas, refund.min(used));
}

/// Logs the remaining balances of destroyed contracts, in order of address (EIP-7708).
pub(crate) fn burn_logs<DB: Database>(context: &mut EvmContext<DB>) {
    let state = &context.journaled_state.state;
    let destroyed = state
        .iter()
        .filter(|(_, account)| account.is_selfdestructed() && !account.info.balance.is_zero());
    let mut burned: Vec<_> = destroyed
        .map(|(address, account)| (*address, account.info.balance))
        .collect();
    burned.sort_unstable();
    for (address, balance) in burned {
        context.journaled_state.log(burn_log(address, balance));
    }
}

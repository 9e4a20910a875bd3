//! Settlement of gas when a call or creation returns to its caller.

use crate::state_gas::Refunds;
use revm::{
    context_interface::cfg::gas_params::GasParams, handler::FrameResult, interpreter::GasTracker,
};

/// Prepares the result of the frame at `depth` before revm settles it with `caller`, so that state
/// gas goes to the reservoir wherever it was taken from. Returns the state gas that
/// [`after_settling`] refunds.
pub(crate) fn before_settling(
    result: &mut FrameResult,
    caller: &mut GasTracker,
    refunds: &mut Refunds,
    depth: usize,
    params: &GasParams,
) -> u64 {
    caller.set_state_gas_spilled(0);
    let is_ok = result.instruction_result().is_ok();
    let gas = result.gas_mut().tracker_mut();
    gas.set_state_gas_spilled(0);
    if !is_ok {
        let paid = gas.reservoir().saturating_add_signed(gas.state_gas_spent());
        gas.set_reservoir(paid.saturating_sub(refunds.fail(depth)));
        gas.set_state_gas_spent(0);
    }
    match result {
        // State gas for the called account stays charged.
        FrameResult::Call(call) => call.charged_new_account_state_gas = false,
        FrameResult::Create(_) if !is_ok => return params.new_account_state_gas(),
        FrameResult::Create(_) => {}
    }
    match is_ok {
        true => refunds.succeed(depth),
        false => 0,
    }
}

/// Refunds the result of [`before_settling`] to the caller, which is at `depth`.
pub(crate) fn after_settling(
    caller: &mut GasTracker,
    refunds: &mut Refunds,
    depth: usize,
    amount: u64,
) {
    refunds.credit(depth, caller, amount);
}

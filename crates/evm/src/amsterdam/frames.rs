//! The gas of a call or a creation, given back to the frame that made it.

use revm::{
    context_interface::cfg::gas_params::GasParams, handler::FrameResult, interpreter::GasTracker,
};

/// Prepares what a frame returns to `parent` for revm to settle: state gas of a frame that fails
/// comes back to the reservoir, wherever it was taken from, as does that of an account that was
/// not created. That of an account called stays charged.
pub(crate) fn settle_frame(result: &mut FrameResult, parent: &mut GasTracker, params: &GasParams) {
    let charge = params.new_account_state_gas();
    parent.set_state_gas_spilled(0);
    let is_ok = result.instruction_result().is_ok();
    let child = result.gas_mut().tracker_mut();
    child.set_state_gas_spilled(0);
    match result {
        FrameResult::Call(call) => call.charged_new_account_state_gas = false,
        FrameResult::Create(create) if is_ok && create.address.is_some() => {}
        FrameResult::Create(create) => {
            let child = create.result.gas.tracker_mut();
            child.set_reservoir(child.reservoir().saturating_add(charge));
            let spent = parent.state_gas_spent().saturating_sub_unsigned(charge);
            parent.set_state_gas_spent(spent);
        }
    }
}

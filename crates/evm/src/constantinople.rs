//! Constantinople's gas cost of storage writes (EIP-1283), for chains on which Petersburg comes
//! later. revm goes from Byzantium straight to Petersburg, which reverted it.
//!
//! Istanbul's cost (EIP-2200) has the same formula with a higher read cost and a gas floor, so
//! revm's formula is used with EIP-1283's constants.

use revm::{
    context_interface::{
        cfg::gas_params::{GasId, GasParams},
        host::Host,
    },
    interpreter::{
        InstructionContext, InstructionExecResult, InstructionResult, InterpreterTypes,
        instructions::host::sstore_with_gas_accounting,
    },
    primitives::hardfork::SpecId,
};

const NO_CHANGE: u64 = 200;
const SET: u64 = 20_000;
const RESET: u64 = 5_000;

/// Gas parameters for [`sstore`].
pub(crate) fn gas_params() -> GasParams {
    let mut params = GasParams::new_spec(SpecId::PETERSBURG);
    params.override_gas([
        (GasId::sstore_static(), NO_CHANGE),
        (GasId::sstore_set_without_load_cost(), SET - NO_CHANGE),
        (GasId::sstore_set_refund(), SET - NO_CHANGE),
        (
            GasId::sstore_reset_without_cold_load_cost(),
            RESET - NO_CHANGE,
        ),
        (GasId::sstore_reset_refund(), RESET - NO_CHANGE),
    ]);
    params
}

/// SSTORE with net gas metering.
pub(crate) fn sstore<H: Host + ?Sized, W: InterpreterTypes>(
    context: InstructionContext<'_, H, W>,
) -> InstructionExecResult {
    sstore_with_gas_accounting(context, |context, _, load| {
        let prices = context.host.gas_params();
        let cost = prices.sstore_dynamic_gas(true, &load.data, false);
        let refund = prices.sstore_refund(true, &load.data);
        if !context.interpreter.gas.record_regular_cost(cost) {
            return Err(InstructionResult::OutOfGas);
        }
        context.interpreter.gas.record_refund(refund);
        Ok(())
    })
}

//! One run of a call, and what its end means.

use super::{
    env::CallEnv,
    precompiles::CallPrecompiles,
    state::{CallStateError, ChangedState},
};
use crate::error::RpcError;
use alloy_primitives::{Address, Bytes};
use cambium_evm::{Called, Calls, StepAccessRecorder};
use revm::{
    Inspector,
    context::{
        TxEnv,
        result::{EVMError, ExecutionResult, HaltReason, InvalidTransaction, ResultAndState},
    },
};

/// The context of a call.
pub(crate) type CallContext<'s> = cambium_evm::CallContext<'s, &'s mut ChangedState>;

pub(crate) type Failed = EVMError<CallStateError>;

/// Gets what a call touches, if somebody makes a block of calls.
pub(crate) type Accesses<'a> = Option<&'a mut StepAccessRecorder>;

const fn calls(env: &CallEnv) -> Calls<'_, CallPrecompiles> {
    Calls {
        rules: &env.rules,
        cfg: &env.cfg,
        block: &env.block,
        precompiles: &env.precompiles,
    }
}

/// Runs a call. The state stays as it is.
pub(crate) fn run(
    state: &mut ChangedState,
    env: &CallEnv,
    transaction: TxEnv,
) -> Result<ExecutionResult, Failed> {
    Ok(transact(state, env, transaction, None)?.done.result)
}

/// Runs a call, and returns what it changes. The state stays as it is.
pub(crate) fn transact(
    state: &mut ChangedState,
    env: &CallEnv,
    transaction: TxEnv,
    accesses: Accesses<'_>,
) -> Result<Called, Failed> {
    calls(env).transact(state, transaction, accesses)
}

/// Runs a call under the eyes of an inspector, and returns what it changes. The state stays as it is.
pub(crate) fn inspect<'s, I: Inspector<CallContext<'s>>>(
    state: &'s mut ChangedState,
    env: &CallEnv,
    transaction: TxEnv,
    inspector: I,
    accesses: Accesses<'s>,
) -> (Result<Called, Failed>, I) {
    calls(env).inspect(state, transaction, inspector, accesses)
}

/// Runs what a block itself calls, and returns what it changes. The state stays as it is.
pub(crate) fn system_call(
    state: &mut ChangedState,
    env: &CallEnv,
    to: Address,
    data: Bytes,
    accesses: Accesses<'_>,
) -> Result<ResultAndState, Failed> {
    calls(env).system_call(state, to, data, accesses)
}

/// The error of a call that can't run.
pub(crate) fn cannot_run(error: Failed) -> RpcError {
    match error {
        EVMError::Database(error) => error.into(),
        EVMError::Transaction(InvalidTransaction::CallGasCostMoreThanGasLimit {
            initial_gas,
            gas_limit,
        }) => RpcError::server(format!(
            "intrinsic gas too low: have {gas_limit}, want {initial_gas}"
        )),
        EVMError::Transaction(InvalidTransaction::LackOfFundForMaxFee { fee, balance }) => {
            RpcError::server(format!(
                "insufficient funds for gas * price + value: have {balance} want {fee}"
            ))
        }
        error => RpcError::server(format!("invalid transaction: {error}")),
    }
}

/// The error of a call that ran and did not succeed.
pub(crate) fn not_successful(result: &ExecutionResult) -> Option<RpcError> {
    match result {
        ExecutionResult::Success { .. } => None,
        ExecutionResult::Revert { output, .. } => Some(RpcError::revert(output)),
        ExecutionResult::Halt { reason, .. } => Some(RpcError::server(halted(reason))),
    }
}

/// Why the EVM stopped, in the words that clients know.
pub(crate) fn halted(reason: &HaltReason) -> String {
    match reason {
        HaltReason::OutOfGas(_) => "out of gas".to_owned(),
        HaltReason::OpcodeNotFound => "invalid opcode".to_owned(),
        HaltReason::InvalidFEOpcode => "invalid opcode: INVALID".to_owned(),
        HaltReason::InvalidJump => "invalid jump destination".to_owned(),
        HaltReason::StackUnderflow => "stack underflow".to_owned(),
        HaltReason::StackOverflow => "stack limit reached 1024 (1023)".to_owned(),
        HaltReason::CallTooDeep => "max call depth exceeded".to_owned(),
        HaltReason::CreateCollision => "contract address collision".to_owned(),
        HaltReason::CreateContractSizeLimit => "max code size exceeded".to_owned(),
        HaltReason::CreateInitCodeSizeLimit => "max initcode size exceeded".to_owned(),
        HaltReason::StateChangeDuringStaticCall | HaltReason::CallNotAllowedInsideStatic => {
            "write protection".to_owned()
        }
        HaltReason::OutOfFunds => "insufficient balance for transfer".to_owned(),
        reason => format!("execution halted: {reason:?}"),
    }
}

//! `eth_call`, `eth_estimateGas` and `eth_createAccessList`.

use super::{
    super::{block_id, objects::Quantity},
    env::CallEnv,
    run::{cannot_run, halted, inspect, not_successful, run},
    state::{CallState, ChangedState, change},
};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::eip2930::AccessList;
use alloy_primitives::{Bytes, U256};
use alloy_rpc_types_eth::{BlockOverrides, TransactionRequest, state::StateOverride};
use cambium_node::BlockRef;
use revm::{
    DatabaseRef,
    context::{
        TxEnv,
        result::{EVMError, ExecutionResult, HaltReason, InvalidTransaction},
    },
    primitives::hardfork::SpecId,
};
use revm_inspectors::access_list::AccessListInspector;
use serde::Serialize;

/// Gas of a plain transfer.
const TRANSFER_GAS: u64 = 21_000;
/// Gas that a call with value has besides its own.
const STIPEND: u64 = 2_300;
/// Most gas of a transaction in Osaka (EIP-7825). From Amsterdam on it may have more, for state.
const TRANSACTION_GAS_MAX: u64 = 1 << 24;
/// The estimate of gas may be too high by this share.
const ESTIMATE_ERROR: f64 = 0.015;
/// Most runs until an access list has to be stable.
const LIST_RUNS: usize = 8;

pub(crate) fn add(methods: Methods) -> Methods {
    methods
        .with("eth_call(Transaction, Block?, State overrides?, Block overrides?) -> Return data", Kind::Execution, call)
        .with("eth_estimateGas(Transaction, Block?, State overrides?, Block overrides?) -> Gas used", Kind::Execution, estimate)
        .with("eth_createAccessList(Transaction, Block?, State overrides?, Block overrides?) -> Gas used", Kind::Execution, access_list)
}

/// Parameters that calls share, on the state that they name.
struct Prepared {
    request: TransactionRequest,
    state: ChangedState,
    env: CallEnv,
}

impl Prepared {
    fn of(call: &Call<'_>, params: &mut Params<'_>) -> Result<Self, RpcError> {
        let request = params.required()?;
        let block = block_id::or_latest(call, params)?;
        let changes: Option<StateOverride> = params.optional()?;
        let block_changes: Option<BlockOverrides> = params.optional()?;
        params.end()?;
        Self::on(call, request, block, changes, block_changes)
    }

    fn on(
        call: &Call<'_>,
        request: TransactionRequest,
        block: BlockRef,
        changes: Option<StateOverride>,
        block_changes: Option<BlockOverrides>,
    ) -> Result<Self, RpcError> {
        let (_, header) = call.node.header(block)?;
        let mut env = CallEnv::new(call.node.chain()?.spec(), &header);
        let mut below = CallState::new(call.node.state_at(block)?, call.cancel.clone());
        if let Some(changes) = block_changes {
            below.set_hashes(env.change(changes));
        }
        let mut state = ChangedState::new(below);
        if let Some(changes) = changes {
            change(&mut state, &mut env.precompiles, changes)?;
        }
        Ok(Self {
            request,
            state,
            env,
        })
    }
}

fn call(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let Prepared {
        request,
        mut state,
        mut env,
    } = Prepared::of(call, &mut params)?;
    let transaction = env.transaction(&request, call.limits().call_gas)?;
    let result = run(&mut state, &env, transaction).map_err(cannot_run)?;
    match not_successful(&result) {
        Some(error) => Err(error),
        None => reply.value(&output(result)),
    }
}

fn output(result: ExecutionResult) -> Bytes {
    result.into_output().unwrap_or_default()
}

fn estimate(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let gas = Prepared::of(call, &mut params)?.estimate(call)?;
    reply.value(&Quantity::from(gas))
}

/// The least gas, in gas, with which a call succeeds after the head, or a little more.
pub(crate) fn estimate_gas(call: &Call<'_>, request: TransactionRequest) -> Result<u64, RpcError> {
    Prepared::on(call, request, BlockRef::Latest, None, None)?.estimate(call)
}

impl Prepared {
    fn estimate(self, call: &Call<'_>) -> Result<u64, RpcError> {
        let Self {
            request,
            mut state,
            mut env,
        } = self;
        let mut most = match request.gas {
            Some(gas) if gas >= TRANSFER_GAS => gas,
            _ => env.block.gas_limit,
        };
        env.count_gas_as_blocks();
        let has_most = env.rules.is(SpecId::OSAKA) && !env.rules.is(SpecId::AMSTERDAM);
        if has_most {
            most = most.min(TRANSACTION_GAS_MAX);
        }
        let mut transaction = env.transaction(&request, u64::MAX)?;
        if let Some(affordable) = affordable(&state, &transaction)? {
            most = most.min(affordable);
        }
        most = most.min(call.limits().call_gas);
        let is_plain = is_plain_transfer(&state, &request)?;
        let mut attempt = |gas: u64| {
            transaction.gas_limit = gas;
            let result = run(&mut state, &env, transaction.clone());
            match result {
                Err(EVMError::Transaction(
                    InvalidTransaction::CallGasCostMoreThanGasLimit { .. }
                    | InvalidTransaction::GasFloorMoreThanGasLimit { .. },
                )) => Ok(None),
                result => result.map(Some).map_err(cannot_run),
            }
        };
        let is_success = |result: &Option<ExecutionResult>| {
            result.as_ref().is_some_and(ExecutionResult::is_success)
        };
        if is_plain && most >= TRANSFER_GAS && is_success(&attempt(TRANSFER_GAS)?) {
            return Ok(TRANSFER_GAS);
        }
        let first = match attempt(most)? {
            Some(result) => result,
            None => return Err(too_little(most)),
        };
        let gas = match &first {
            ExecutionResult::Success { gas, .. } => *gas,
            ExecutionResult::Halt {
                reason: HaltReason::OutOfGas(_),
                ..
            } => return Err(too_little(most)),
            result => {
                let error = not_successful(result);
                return Err(error.unwrap_or_else(|| RpcError::internal("a call without an end")));
            }
        };
        let mut lo = gas.tx_gas_used().saturating_sub(1);
        let mut hi = most;
        let guess = (gas.total_gas_spent() + STIPEND).saturating_mul(64) / 63;
        if guess < hi {
            match is_success(&attempt(guess)?) {
                true => hi = guess,
                false => lo = guess,
            }
        }
        while lo + 1 < hi {
            call.cancel.check()?;
            if (hi - lo) as f64 / (hi as f64) < ESTIMATE_ERROR {
                break;
            }
            let middle = (lo + (hi - lo) / 2).min(lo.saturating_mul(2));
            match is_success(&attempt(middle)?) {
                true => hi = middle,
                false => lo = middle,
            }
        }
        Ok(hi)
    }
}

fn too_little(most: u64) -> RpcError {
    RpcError::server(format!("gas required exceeds allowance ({most})"))
}

/// Whether a call is a transfer to an account without code.
fn is_plain_transfer(state: &ChangedState, request: &TransactionRequest) -> Result<bool, RpcError> {
    let has_input = request.input.input().is_some_and(|input| !input.is_empty());
    let Some(to) = request.to.and_then(|to| to.to().copied()) else {
        return Ok(false);
    };
    if has_input || request.authorization_list.is_some() {
        return Ok(false);
    }
    let account = state.basic_ref(to)?;
    Ok(account.is_none_or(|account| account.is_empty_code_hash()))
}

/// The gas that the sender can pay for; `None` if gas has no price.
fn affordable(state: &ChangedState, transaction: &TxEnv) -> Result<Option<u64>, RpcError> {
    if transaction.gas_price == 0 {
        return Ok(None);
    }
    let sender = state.basic_ref(transaction.caller)?;
    let balance = sender.unwrap_or_default().balance;
    let rest = balance.checked_sub(transaction.value);
    let rest = rest.ok_or_else(|| RpcError::server("insufficient funds for transfer"))?;
    Ok(Some(
        (rest / U256::from(transaction.gas_price)).saturating_to(),
    ))
}

/// The answer of `eth_createAccessList`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListObject {
    access_list: AccessList,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    gas_used: Quantity,
}

fn access_list(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let Prepared {
        mut request,
        mut state,
        mut env,
    } = Prepared::of(call, &mut params)?;
    env.count_gas_as_blocks();
    let mut list = request.access_list.take().unwrap_or_default();
    for _ in 0..LIST_RUNS {
        request.access_list = Some(list.clone());
        let transaction = env.transaction(&request, call.limits().call_gas)?;
        let inspector = AccessListInspector::new(list.clone());
        let (run, inspector) = inspect(&mut state, &env, transaction, inspector, None);
        let result = run.map_err(cannot_run)?.done.result;
        let found = inspector.into_access_list();
        let is_stable = found == list;
        list = found;
        if is_stable {
            let error = match &result {
                ExecutionResult::Success { .. } => None,
                ExecutionResult::Revert { .. } => Some("execution reverted".to_owned()),
                ExecutionResult::Halt { reason, .. } => Some(halted(reason)),
            };
            return reply.value(&ListObject {
                access_list: list,
                error,
                gas_used: Quantity::from(result.tx_gas_used()),
            });
        }
    }
    Err(RpcError::server("the access list does not become stable"))
}

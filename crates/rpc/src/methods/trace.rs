//! Traces: transactions of blocks executed again, step by step (`debug_trace*`).
//!
//! Each transaction is traced and sent before the next one is: the memory for an answer is that for one transaction, which is
//! bounded as well.

use super::{
    block_id,
    blocks::{by_hash, by_number},
    budget::{Budget, Kept, TRACE_BYTES},
    call::{CallEnv, CallState, ChangedState, change, commit, inspect},
    replay::{Replay, failed},
};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_consensus::Header;
use alloy_eips::BlockId;
use alloy_primitives::{B256, Bytes};
use alloy_rlp::Decodable;
use alloy_rpc_types_eth::{BlockOverrides, TransactionRequest, state::StateOverride};
use alloy_rpc_types_trace::geth::{GethDebugTracingOptions, GethTrace};
use cambium_chain::{Block, transaction_env};
use cambium_node::BlockRef;
use revm::context::TxEnv;
use revm_inspectors::tracing::{
    DebugInspector, TraceLimitBehavior, TraceLimits, TransactionContext,
};
use serde::{Deserialize, Serialize};

/// The gas limit of a block is at most this share of it above its parent's.
const GAS_STEP: u64 = 1024;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "debug_traceTransaction(Transaction hash, TraceConfig?) -> Transaction trace",
            Kind::Scan,
            transaction,
        )
        .with(
            "debug_traceBlockByNumber(Block, TraceConfig?) -> Block trace",
            Kind::Scan,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                blocks(call, block, params, reply)
            },
        )
        .with(
            "debug_traceBlockByHash(Block hash, TraceConfig?) -> Block trace",
            Kind::Scan,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                blocks(call, block, params, reply)
            },
        )
        .with(
            "debug_traceBlock(Block RLP, TraceConfig?) -> Block trace",
            Kind::Scan,
            encoded,
        )
        .with(
            "debug_traceCall(Transaction, Block?, TraceConfig?) -> Transaction trace",
            Kind::Scan,
            traced_call,
        )
}

/// The trace of a transaction among others.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfBlock {
    tx_hash: B256,
    result: GethTrace,
}

fn options(params: &mut Params<'_>) -> Result<GethDebugTracingOptions, RpcError> {
    let options = params.optional()?.unwrap_or_default();
    params.end()?;
    Ok(options)
}

/// A tracer for one transaction, and what it keeps of each step.
fn inspector(options: &GethDebugTracingOptions) -> Result<(Kept, DebugInspector), RpcError> {
    let limits = TraceLimits::default()
        .set_max_recorded_bytes(Some(TRACE_BYTES))
        .set_behavior(TraceLimitBehavior::Halt);
    let inspector = DebugInspector::new(options.clone())
        .map_err(|error| RpcError::params(format!("the tracer: {error}")))?;
    let all = Kept {
        steps: true,
        stack: true,
        memory: true,
        storage: true,
    };
    Ok(match inspector {
        DebugInspector::Default(own, config) => {
            let kept = Kept {
                steps: true,
                stack: !config.disable_stack.unwrap_or(false),
                memory: config.enable_memory.unwrap_or(false),
                storage: !config.disable_storage.unwrap_or(false),
            };
            (
                kept,
                DebugInspector::Default(own.with_limits(limits), config),
            )
        }
        DebugInspector::CallTracer(own, config) => {
            let own = own.with_limits(limits);
            (Kept::default(), DebugInspector::CallTracer(own, config))
        }
        DebugInspector::FlatCallTracer(own) => {
            let own = own.with_limits(limits);
            (Kept::default(), DebugInspector::FlatCallTracer(own))
        }
        DebugInspector::Erc7562Tracer(own, config) => {
            let own = own.with_limits(limits);
            (all, DebugInspector::Erc7562Tracer(own, config))
        }
        DebugInspector::Mux(..) => (all, inspector),
        other => (Kept::default(), other),
    })
}

impl Replay {
    /// Executes a transaction, and says how.
    fn trace(
        &mut self,
        transaction: TxEnv,
        options: &GethDebugTracingOptions,
        context: TransactionContext,
    ) -> Result<GethTrace, RpcError> {
        let (kept, inspector) = inspector(options)?;
        let budget = Budget::new(kept, self.cancel.clone());
        let (called, (budget, mut inspector)) = inspect(
            &mut self.state,
            &self.env,
            transaction.clone(),
            (budget, inspector),
            None,
        );
        if let Some(error) = budget.over() {
            return Err(error);
        }
        if is_over(&inspector) {
            return Err(RpcError::new(
                RpcError::LIMIT,
                "the trace is too large: take `limit`, or another tracer",
            ));
        }
        let done = called.map_err(failed)?.done;
        let block = &self.env.block;
        let trace =
            inspector.get_result(Some(context), &transaction, block, &done, &mut self.state);
        let trace = trace.map_err(|error| RpcError::server(format!("the trace: {error}")))?;
        commit(&mut self.state, done.state);
        Ok(trace)
    }
}

/// Whether a tracer has more than its memory holds.
fn is_over(inspector: &DebugInspector) -> bool {
    match inspector {
        DebugInspector::Default(own, _)
        | DebugInspector::CallTracer(own, _)
        | DebugInspector::FlatCallTracer(own)
        | DebugInspector::Erc7562Tracer(own, _) => own.limit_exceeded(),
        _ => false,
    }
}

fn transaction(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let hash = params.hash()?;
    let options = options(&mut params)?;
    let found = call.node.transaction(hash)?;
    let found = found.ok_or_else(|| RpcError::server("transaction not found"))?;
    let block = call.node.block(BlockRef::Hash(found.block.hash))?.block;
    let senders = call.node.chain()?.senders_of(&block)?;
    let mut replay = Replay::of(call, &block)?;
    let own = block.body.transactions.iter().zip(senders);
    for (index, (own, sender)) in own.enumerate() {
        call.cancel.check()?;
        let env = transaction_env(own, sender);
        if index < found.index {
            replay.run(env)?;
            continue;
        }
        let context = TransactionContext {
            block_hash: Some(found.block.hash),
            tx_index: Some(index),
            tx_hash: Some(hash),
        };
        return reply.value(&replay.trace(env, &options, context)?);
    }
    Err(RpcError::internal("the transaction is not in its block"))
}

fn blocks(
    call: &Call<'_>,
    block: BlockRef,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let options = options(&mut params)?;
    let found = block_id::block(call, block)?;
    let found = found.ok_or_else(|| RpcError::server(format!("block {block} not found")))?;
    trace_block(call, &found.block, &options, reply)
}

/// A block that comes with the call. Its parent has to be here.
fn encoded(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let rlp: Bytes = params.required()?;
    let options = options(&mut params)?;
    let block = Block::decode(&mut &rlp[..])
        .map_err(|error| RpcError::params(format!("could not decode block: {error}")))?;
    check_header(call, &block.header)?;
    trace_block(call, &block, &options, reply)
}

/// Refuses the header of a stranger whose gas or time no child of its parent can have.
fn check_header(call: &Call<'_>, header: &Header) -> Result<(), RpcError> {
    let (_, parent) = call.node.header(BlockRef::Hash(header.parent_hash))?;
    let gas_most = parent.gas_limit + parent.gas_limit / GAS_STEP;
    let is_child = header.number == parent.number + 1
        && header.timestamp > parent.timestamp
        && header.gas_limit <= gas_most;
    match is_child {
        true => Ok(()),
        false => Err(RpcError::server(
            "number, timestamp or gas limit of the block do not follow from its parent's",
        )),
    }
}

fn trace_block(
    call: &Call<'_>,
    block: &Block,
    options: &GethDebugTracingOptions,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let mut replay = Replay::of(call, block)?;
    let senders = call.node.chain()?.senders_of(block)?;
    let block_hash = Some(block.header.hash_slow());
    let mut list = reply.list()?;
    let own = block.body.transactions.iter().zip(senders);
    for (index, (own, sender)) in own.enumerate() {
        call.cancel.check()?;
        let context = TransactionContext {
            block_hash,
            tx_index: Some(index),
            tx_hash: Some(*own.hash()),
        };
        let result = replay.trace(transaction_env(own, sender), options, context)?;
        list.item(&OfBlock {
            tx_hash: *own.hash(),
            result,
        })?;
    }
    list.end()
}

/// Options of `debug_traceCall`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CallOptions {
    #[serde(flatten)]
    tracing: GethDebugTracingOptions,
    state_overrides: Option<StateOverride>,
    block_overrides: Option<BlockOverrides>,
}

fn traced_call(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let request: TransactionRequest = params.required()?;
    let id: Option<BlockId> = params.optional()?;
    let options: CallOptions = params.optional()?.unwrap_or_default();
    params.end()?;
    let block = match id {
        None => BlockRef::Latest,
        Some(id) => block_id::block_ref(call, id)?,
    };
    let (_, header) = call.node.header(block)?;
    let mut env = CallEnv::new(call.node.chain()?.spec(), &header);
    let mut below = CallState::new(call.node.state_at(block)?, call.cancel.clone());
    if let Some(changes) = options.block_overrides {
        below.set_hashes(env.change(changes));
    }
    let mut state = ChangedState::new(below);
    if let Some(changes) = options.state_overrides {
        change(&mut state, &mut env.precompiles, changes)?;
    }
    let transaction = env.transaction(&request, call.limits().call_gas)?;
    let mut replay = Replay {
        state,
        env,
        cancel: call.cancel.clone(),
    };
    let trace = replay.trace(transaction, &options.tracing, TransactionContext::default())?;
    reply.value(&trace)
}

//! `eth_simulateV1`: blocks of calls on top of a block, which are executed and not kept.
//!
//! | file | content |
//! |---|---|
//! | `plan` | the blocks that a request asks for, with those between them |
//! | `call` | from a call to a transaction, and why it may not be one |
//! | `transfers` | logs of ether transfers |
//! | `state` | values and trie of the state so far |
//! | `block` | execution of a block |

mod plan;
mod call;
mod transfers;
mod state;
mod block;

pub(super) use call::{Defaults, transaction};

use super::block_id;
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use block::{Options, Parent, simulate};
use cambium_node::BlockRef;
use plan::planned;
use serde::Deserialize;
use serde_json::value::RawValue;
use state::SimulatedState;

pub(super) fn add(methods: Methods) -> Methods {
    methods.with(
        "eth_simulateV1(Payload, Block tag?) -> Result of calls",
        Kind::Execution,
        run,
    )
}

/// The first parameter. Blocks and calls are parsed one by one when their turn comes: there may be very many.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a> {
    #[serde(borrow, default)]
    block_state_calls: Vec<&'a RawValue>,
    #[serde(default)]
    trace_transfers: bool,
    #[serde(default)]
    validation: bool,
    #[serde(default)]
    return_full_transactions: bool,
}

fn run(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let payload: Payload<'_> = params.required()?;
    let base = block_id::or_latest(call, &mut params)?;
    params.end()?;
    let below = call.node.provable_state_at(base).map_err(RpcError::from);
    let below = below.map_err(|error| match error.code {
        RpcError::NOT_FOUND => RpcError::server("header not found"),
        RpcError::PRUNED => RpcError::new(
            error.code,
            format!("a state root is needed, and the trie below it is not kept: {error}"),
        ),
        _ => error,
    })?;
    let base = call.node.block(BlockRef::Hash(below.block().hash))?;
    let mut parent = Parent {
        hash: base.id.hash,
        header: base.block.header,
    };
    let most = call.limits().simulated_blocks;
    let blocks = planned(&payload.block_state_calls, &parent.header, most)?;
    let mut options = Options {
        call,
        spec: call.node.chain()?.spec(),
        traces_transfers: payload.trace_transfers,
        validates: payload.validation,
        whole: payload.return_full_transactions,
        gas_left: call.limits().call_gas,
    };
    let mut state = SimulatedState::new(&below, call.cancel)?;
    let mut done = Vec::with_capacity(blocks.len());
    for block in blocks {
        call.cancel.check()?;
        let (simulated, own) = simulate(&mut options, &mut state, &parent, block)?;
        parent = own;
        done.push(simulated);
    }
    reply.value(&done)
}

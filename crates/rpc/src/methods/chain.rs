//! The chain as a whole.

use super::objects::Quantity;
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_primitives::{B256, U256};
use serde::Serialize;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with("eth_blockNumber", Kind::Value, |call, params, reply| {
            params.end()?;
            reply.value(&Quantity::from(call.node.head().number))
        })
        .with("eth_chainId", Kind::Value, |call, params, reply| {
            params.end()?;
            reply.value(&Quantity::from(call.node.chain()?.spec().chain_id))
        })
        .with("eth_capabilities", Kind::Quick, capabilities)
        .with("eth_syncing", Kind::Quick, |_, params, reply| {
            params.end()?;
            reply.value(&false)
        })
        .with("eth_accounts", Kind::Quick, |_, params, reply| {
            params.end()?;
            reply.value(&[(); 0])
        })
        .with("eth_mining", Kind::Quick, |_, params, reply| {
            params.end()?;
            reply.value(&false)
        })
        .with("eth_hashrate", Kind::Quick, |_, params, reply| {
            params.end()?;
            reply.value(&U256::ZERO)
        })
}

/// What the database has of one kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    disabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_block: Option<Quantity>,
}

impl Kept {
    fn from(oldest: Option<u64>) -> Self {
        Self {
            disabled: oldest.is_none(),
            oldest_block: oldest.map(Quantity::from),
        }
    }
}

#[derive(Serialize)]
struct Head {
    number: Quantity,
    hash: B256,
}

/// The answer of `eth_capabilities`.
#[derive(Serialize)]
struct Capabilities {
    head: Head,
    state: Kept,
    tx: Kept,
    logs: Kept,
    receipts: Kept,
    blocks: Kept,
    stateproofs: Kept,
}

/// What is kept for any time to come: old states that the block log can still restore do not count.
fn capabilities(
    call: &Call<'_>,
    params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    params.end()?;
    let head = call.node.head();
    let history = call.node.history()?;
    let values = history.map_or(head.number, |history| history.blocks().0.number);
    let archive = history.filter(|history| history.has_nodes());
    let proofs = archive.map_or(head.number, |history| history.blocks().0.number);
    let index = call.node.index()?;
    let indexed = index.map(|index| index.stats().oldest);
    let first = call.node.db().genesis().number;
    reply.value(&Capabilities {
        head: Head {
            number: Quantity::from(head.number),
            hash: head.hash,
        },
        state: Kept::from(Some(values)),
        tx: Kept::from(indexed),
        logs: Kept::from(indexed),
        receipts: Kept::from(indexed),
        blocks: Kept::from(Some(first)),
        stateproofs: Kept::from(Some(proofs)),
    })
}

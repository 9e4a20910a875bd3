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
use cambium_history::History;
use serde::Serialize;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_blockNumber() -> Block number",
            Kind::Value,
            |call, params, reply| {
                params.end()?;
                reply.value(&Quantity::from(call.node.head().number))
            },
        )
        .with(
            "eth_chainId() -> Chain ID",
            Kind::Value,
            |call, params, reply| {
                params.end()?;
                reply.value(&Quantity::from(call.node.chain()?.spec().chain_id))
            },
        )
        .with(
            "eth_capabilities() -> Capabilities",
            Kind::Quick,
            capabilities,
        )
        .with(
            "eth_syncing() -> Syncing status",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                reply.value(&false)
            },
        )
        .with(
            "eth_accounts() -> Accounts",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                reply.value(&[(); 0])
            },
        )
        .with(
            "eth_mining() -> Mining status",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                reply.value(&false)
            },
        )
        .with(
            "eth_hashrate() -> Hash rate",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                reply.value(&U256::ZERO)
            },
        )
}

/// What the database has of one kind.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    disabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_block: Option<Quantity>,
    /// What is older leaves; nothing does if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    delete_strategy: Option<Window>,
}

/// The newest blocks are kept.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Window {
    r#type: &'static str,
    retention_blocks: Quantity,
}

impl Kept {
    fn from(oldest: Option<u64>) -> Self {
        Self {
            disabled: oldest.is_none(),
            oldest_block: oldest.map(Quantity::from),
            delete_strategy: None,
        }
    }

    /// Of the newest blocks up to the head, as many as `blocks`.
    fn newest(blocks: u64, head: u64, first: u64) -> Self {
        Self {
            delete_strategy: Some(Window {
                r#type: "window",
                retention_blocks: Quantity::from(blocks),
            }),
            ..Self::from(Some((head + 1).saturating_sub(blocks).max(first)))
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
    let db = call.node.db();
    let first = db.genesis().number;
    let history = call.node.history()?;
    let archive = history.filter(|history| history.has_nodes());
    let of_history = |history: Option<&History>| match history {
        Some(history) => Kept::from(Some(history.blocks().0.number)),
        None => Kept::newest(1, head.number, first),
    };
    let index = call.node.index()?;
    let indexed = index.map(|index| index.stats().oldest);
    // The index has blocks that have left the log, and a reader does not know what its writer keeps.
    let blocks = match (db.options().keep_blocks, indexed) {
        (_, Some(oldest)) if oldest <= first => Kept::from(Some(first)),
        (Some(kept), _) => Kept::newest(kept.saturating_add(1), head.number, first),
        (None, _) => Kept::from(Some(first)),
    };
    reply.value(&Capabilities {
        head: Head {
            number: Quantity::from(head.number),
            hash: head.hash,
        },
        state: of_history(history),
        tx: Kept::from(indexed),
        logs: Kept::from(indexed),
        receipts: Kept::from(indexed),
        blocks,
        stateproofs: of_history(archive),
    })
}

//! Blocks, and their receipts.

use super::{
    block_id::{self, of_tag},
    objects::{self, InBlock, Quantity, Received},
};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::{BlockId, BlockNumberOrTag};
use alloy_primitives::U64;
use cambium_node::{BlockRef, FoundBlock};

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_getBlockByNumber(Block, Hydrated transactions?) -> Block information",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                block_reply(call, block, params, reply)
            },
        )
        .with(
            "eth_getBlockByHash(Block hash, Hydrated transactions?) -> Block information",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                block_reply(call, block, params, reply)
            },
        )
        .with(
            "eth_getHeaderByNumber(Block) -> Header",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                header_reply(call, block, &params, reply)
            },
        )
        .with(
            "eth_getHeaderByHash(Block hash) -> Header",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                header_reply(call, block, &params, reply)
            },
        )
        .with(
            "eth_getBlockTransactionCountByNumber(Block) -> Transaction count",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                count(call, block, &params, reply, |found| {
                    found.block.body.transactions.len()
                })
            },
        )
        .with(
            "eth_getBlockTransactionCountByHash(Block hash) -> Transaction count",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                count(call, block, &params, reply, |found| {
                    found.block.body.transactions.len()
                })
            },
        )
        .with(
            "eth_getUncleCountByBlockNumber(Block) -> Uncle count",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                count(call, block, &params, reply, |found| {
                    found.block.body.ommers.len()
                })
            },
        )
        .with(
            "eth_getUncleCountByBlockHash(Block hash) -> Uncle count",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                count(call, block, &params, reply, |found| {
                    found.block.body.ommers.len()
                })
            },
        )
        .with(
            "eth_getUncleByBlockNumberAndIndex(Block, Uncle index) -> Uncle",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                uncle(call, block, params, reply)
            },
        )
        .with(
            "eth_getUncleByBlockHashAndIndex(Block hash, Uncle index) -> Uncle",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                uncle(call, block, params, reply)
            },
        )
        .with(
            "eth_getBlockReceipts(Block) -> Receipts information",
            Kind::Execution,
            receipts,
        )
}

pub(super) fn by_number(params: &mut Params<'_>) -> Result<BlockRef, RpcError> {
    Ok(of_tag(params.required::<BlockNumberOrTag>()?))
}

pub(super) fn by_hash(params: &mut Params<'_>) -> Result<BlockRef, RpcError> {
    Ok(BlockRef::Hash(params.hash()?))
}

fn block_reply(
    call: &Call<'_>,
    block: BlockRef,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let whole = params.optional()?.unwrap_or(false);
    params.end()?;
    match block_id::block(call, block)? {
        Some(found) => reply.value(&objects::block(call, found, whole)?),
        None => reply.value(&()),
    }
}

fn header_reply(
    call: &Call<'_>,
    block: BlockRef,
    params: &Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    params.end()?;
    match block_id::block(call, block)? {
        Some(found) => reply.value(&objects::header(found.id, found.block.header, None)),
        None => reply.value(&()),
    }
}

fn count(
    call: &Call<'_>,
    block: BlockRef,
    params: &Params<'_>,
    reply: &mut Reply<'_>,
    of: impl Fn(&FoundBlock) -> usize,
) -> Result<(), RpcError> {
    params.end()?;
    match block_id::block(call, block)? {
        Some(found) => reply.value(&Quantity::from(of(&found) as u64)),
        None => reply.value(&()),
    }
}

fn uncle(
    call: &Call<'_>,
    block: BlockRef,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let index: U64 = params.required()?;
    params.end()?;
    let Some(found) = block_id::block(call, block)? else {
        return reply.value(&());
    };
    match found.block.body.ommers.get(index.to::<usize>()) {
        None => reply.value(&()),
        Some(ommer) => {
            let header = alloy_rpc_types_eth::Header::new(ommer.clone());
            let block: alloy_rpc_types_eth::Block =
                alloy_rpc_types_eth::Block::uncle_from_header(header.inner);
            reply.value(&block)
        }
    }
}

fn receipts(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let id: BlockId = params.required()?;
    params.end()?;
    let block = block_id::block_ref(call, id)?;
    let Some(FoundBlock { id, block, .. }) = block_id::block(call, block)? else {
        return reply.value(&());
    };
    let chain = call.node.chain()?;
    let receipts = chain.receipts(id)?;
    let senders = chain.senders_of(&block)?;
    let (mut gas_before, mut first_log) = (0, 0);
    let mut list = reply.list()?;
    let all = receipts
        .into_iter()
        .zip(&block.body.transactions)
        .zip(senders);
    for (index, ((receipt, transaction), sender)) in all.enumerate() {
        let (gas, logs) = (receipt.cumulative_gas_used(), receipt.logs().len());
        let of = Received {
            at: InBlock {
                block: id,
                header: &block.header,
                index,
            },
            transaction,
            sender,
            gas_used: gas.saturating_sub(gas_before),
            first_log,
        };
        list.item(&objects::receipt(chain.spec(), receipt, &of))?;
        (gas_before, first_log) = (gas, first_log + logs);
    }
    list.end()
}

//! Transactions and their receipts.

use super::{
    block_id,
    blocks::{by_hash, by_number},
    objects::{self, InBlock, Received},
    pool,
};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    pool::PooledTransaction,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{Address, B256, Bytes, U64};
use cambium_chain::{Transaction, recover_senders};
use cambium_node::{BlockRef, FoundBlock};
use std::sync::Arc;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_getTransactionByHash(Transaction hash) -> Transaction information",
            Kind::Quick,
            |call, mut params, reply| {
                let hash = params.hash()?;
                params.end()?;
                if let Some(waiting) = waiting(call, &hash)? {
                    return reply.value(&pool::pending_object(&waiting));
                }
                let Some(found) = call.node.transaction(hash)? else {
                    return reply.value(&());
                };
                let (_, header) = call.node.header(BlockRef::Hash(found.block.hash))?;
                let at = InBlock {
                    block: found.block,
                    header: &header,
                    index: found.index,
                };
                reply.value(&objects::transaction(found.transaction, found.sender, at))
            },
        )
        .with(
            "eth_getTransactionByBlockNumberAndIndex(Block, Transaction index) -> Transaction information",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                match in_block(call, block, params)? {
                    Some((found, index, sender)) => reply.value(&object(&found, index, sender)),
                    None => reply.value(&()),
                }
            },
        )
        .with(
            "eth_getTransactionByBlockHashAndIndex(Block hash, Transaction index) -> Transaction information",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                match in_block(call, block, params)? {
                    Some((found, index, sender)) => reply.value(&object(&found, index, sender)),
                    None => reply.value(&()),
                }
            },
        )
        .with("eth_getTransactionReceipt(Transaction hash) -> Receipt information", Kind::Execution, receipt)
        .with("eth_getRawTransactionByHash(Transaction hash) -> EIP-2718 binary-encoded transaction", Kind::Quick, raw)
        .with("debug_getRawTransaction(Transaction hash) -> EIP-2718 binary-encoded transaction", Kind::Quick, raw)
        .with(
            "eth_getRawTransactionByBlockNumberAndIndex(Block, Transaction index) -> EIP-2718 binary-encoded transaction",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_number(&mut params)?;
                raw_reply(in_block(call, block, params)?, reply)
            },
        )
        .with(
            "eth_getRawTransactionByBlockHashAndIndex(Block hash, Transaction index) -> EIP-2718 binary-encoded transaction",
            Kind::Quick,
            |call, mut params, reply| {
                let block = by_hash(&mut params)?;
                raw_reply(in_block(call, block, params)?, reply)
            },
        )
}

/// A transaction that waits for a block.
fn waiting(call: &Call<'_>, hash: &B256) -> Result<Option<Arc<PooledTransaction>>, RpcError> {
    match call.served.pool() {
        Some(pool) => pool.get(call.node, hash),
        None => Ok(None),
    }
}

fn object(found: &FoundBlock, index: usize, sender: Address) -> objects::TransactionObject {
    let at = InBlock {
        block: found.id,
        header: &found.block.header,
        index,
    };
    objects::transaction(found.block.body.transactions[index].clone(), sender, at)
}

/// A block, and the place of a transaction that is in it, with its sender.
fn in_block(
    call: &Call<'_>,
    block: BlockRef,
    mut params: Params<'_>,
) -> Result<Option<(FoundBlock, usize, Address)>, RpcError> {
    let index: U64 = params.required()?;
    params.end()?;
    let Some(found) = block_id::block(call, block)? else {
        return Ok(None);
    };
    let Some(index) = usize::try_from(index.to::<u64>())
        .ok()
        .filter(|index| *index < found.block.body.transactions.len())
    else {
        return Ok(None);
    };
    let low = call
        .node
        .chain()?
        .spec()
        .has_low_signatures(&found.block.header);
    let own: &Transaction = &found.block.body.transactions[index];
    let sender = recover_senders(std::slice::from_ref(own), low).map_err(RpcError::internal)?;
    Ok(Some((found, index, sender[0])))
}

fn receipt(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let hash = params.hash()?;
    params.end()?;
    let Some(own) = call.node.receipt(hash)? else {
        return reply.value(&());
    };
    let (_, header) = call.node.header(BlockRef::Hash(own.found.block.hash))?;
    let of = Received {
        at: InBlock {
            block: own.found.block,
            header: &header,
            index: own.found.index,
        },
        transaction: &own.found.transaction,
        sender: own.found.sender,
        gas_used: own.gas_used,
        first_log: own.first_log,
    };
    reply.value(&objects::receipt(
        call.node.chain()?.spec(),
        own.receipt,
        &of,
    ))
}

fn raw(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let hash = params.hash()?;
    params.end()?;
    if let Some(waiting) = waiting(call, &hash)? {
        return reply.value(&Bytes::from(waiting.transaction.encoded_2718()));
    }
    let encoded = call.node.transaction(hash)?;
    let encoded = encoded.map(|found| found.transaction.encoded_2718());
    reply.value(&Bytes::from(encoded.unwrap_or_default()))
}

fn raw_reply(
    found: Option<(FoundBlock, usize, Address)>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let encoded =
        found.map(|(found, index, _)| found.block.body.transactions[index].encoded_2718());
    reply.value(&Bytes::from(encoded.unwrap_or_default()))
}

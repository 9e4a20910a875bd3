//! What the chain has, as it was encoded.

use super::block_id;
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    table::{Call, Methods},
};
use alloy_eips::{BlockId, eip2718::Encodable2718};
use alloy_primitives::Bytes;
use cambium_chain::WitnessForm;
use cambium_node::FoundBlock;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "debug_getRawBlock(Block) -> Block RLP",
            Kind::Quick,
            |call, params, reply| {
                reply.value(&Bytes::from(alloy_rlp::encode(&named(call, params)?.block)))
            },
        )
        .with(
            "debug_executionWitness(Block) -> Execution witness",
            Kind::Scan,
            |call, mut params, reply| {
                let id: BlockId = params.required()?;
                params.end()?;
                let block = block_id::block_ref(call, id)?;
                let witness = call.node.witness(block)?;
                reply.value(&witness.to_json(WitnessForm::Reth))
            },
        )
        .with(
            "debug_getRawHeader(Block) -> Header RLP",
            Kind::Quick,
            |call, params, reply| {
                reply.value(&Bytes::from(alloy_rlp::encode(
                    &named(call, params)?.block.header,
                )))
            },
        )
        .with(
            "debug_getRawReceipts(Block) -> Receipts",
            Kind::Execution,
            |call, params, reply| {
                let found = named(call, params)?;
                let receipts = call.node.chain()?.receipts(found.id)?;
                let mut list = reply.list()?;
                for receipt in receipts {
                    list.item(&Bytes::from(receipt.encoded_2718()))?;
                }
                list.end()
            },
        )
}

/// The block that the only parameter names.
fn named(call: &Call<'_>, mut params: Params<'_>) -> Result<FoundBlock, RpcError> {
    let id: BlockId = params.required()?;
    params.end()?;
    let block = block_id::block_ref(call, id)?;
    Ok(call.node.block(block)?)
}

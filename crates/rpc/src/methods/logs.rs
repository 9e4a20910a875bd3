//! Logs that pass a filter.

use super::{block_id::of_tag, objects};
use crate::{
    error::RpcError,
    filter::{Blocks, FilterObject},
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::BlockNumberOrTag;
use alloy_primitives::B256;
use cambium_index::LogFilter;
use cambium_node::{BlockRef, FoundLog, Node};
use cambium_primitives::BlockNumber;
use std::ops::RangeInclusive;

pub(super) fn add(methods: Methods) -> Methods {
    methods.with("eth_getLogs(Filter?) -> Log objects", Kind::Scan, logs)
}

/// A range of blocks that exist, and are not too many.
pub(crate) fn range(
    call: &Call<'_>,
    from: Option<BlockNumberOrTag>,
    to: Option<BlockNumberOrTag>,
) -> Result<RangeInclusive<BlockNumber>, RpcError> {
    let head = call.node.head().number;
    let number = |tag: Option<BlockNumberOrTag>| match tag.map(of_tag) {
        None | Some(BlockRef::Latest) => Ok(head),
        Some(BlockRef::Number(number)) => Ok(number),
        Some(block) => Ok::<_, RpcError>(call.node.id(block)?.number),
    };
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(RpcError::params("invalid block range params"));
    }
    if to > head {
        return Err(RpcError::params(
            "block range extends beyond current head block",
        ));
    }
    let most = call.limits().log_blocks;
    if to - from >= most {
        let what = format!("the range has {} blocks, {most} at most", to - from + 1);
        return Err(RpcError::new(RpcError::LIMIT, what));
    }
    Ok(from..=to)
}

fn logs(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let filter: FilterObject = params.optional()?.unwrap_or_default();
    params.end()?;
    let (filter, blocks) = filter.checked(call.limits().alternatives)?;
    match blocks {
        Blocks::One(hash) => {
            let found = of_block(call.node, hash, &filter)?;
            reply.value(&found)
        }
        Blocks::Range(from, to) => {
            let range = range(call, from, to)?;
            in_range(call, &filter, range, reply)
        }
    }
}

/// The logs of a range of blocks, as they are found.
pub(crate) fn in_range(
    call: &Call<'_>,
    filter: &LogFilter,
    range: RangeInclusive<BlockNumber>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let most = call.limits().logs;
    let mut list = reply.list()?;
    let stops = || call.cancel.check().is_err();
    let mut logs = call.node.logs(filter, range)?.until(&stops);
    let mut count = 0;
    while let Some(found) = logs.next() {
        call.cancel.check()?;
        let found = found?;
        if count == most {
            let what = format!(
                "query returned more than {most} results: ask for fewer blocks than up to {}",
                found.block.number
            );
            return Err(RpcError::new(RpcError::LIMIT, what));
        }
        count += 1;
        list.item(&objects::log(found, logs.timestamp()))?;
    }
    call.cancel.check()?;
    list.end()
}

/// The logs of one block, on any branch. They take no index.
pub(crate) fn of_block(
    node: &Node,
    hash: B256,
    filter: &LogFilter,
) -> Result<Vec<alloy_rpc_types_eth::Log>, RpcError> {
    let block = node.block(BlockRef::Hash(hash)).map_err(RpcError::from);
    let block = block.map_err(|error| match error.is_not_there() {
        true => RpcError::server("unknown block"),
        false => error,
    })?;
    let receipts = node.chain()?.receipts(block.id)?;
    let mut logs = Vec::new();
    let mut log_index = 0;
    let all = receipts.iter().zip(&block.block.body.transactions);
    for (transaction_index, (receipt, transaction)) in all.enumerate() {
        for log in receipt.logs() {
            if filter.passes(&log.address, log.topics()) {
                let found = FoundLog {
                    block: block.id,
                    transaction: *transaction.hash(),
                    transaction_index,
                    log_index,
                    log: log.clone(),
                };
                logs.push(objects::log(found, block.block.header.timestamp));
            }
            log_index += 1;
        }
    }
    Ok(logs)
}

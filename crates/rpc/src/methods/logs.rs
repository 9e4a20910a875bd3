//! Logs that pass a filter.

use super::{block_id::of_tag, objects};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::BlockNumberOrTag;
use alloy_primitives::{Address, B256};
use cambium_index::LogFilter;
use cambium_node::{BlockRef, FoundLog};
use cambium_primitives::BlockNumber;
use serde::Deserialize;
use std::collections::HashMap;

/// Places of topics.
const TOPICS: usize = 4;

pub(super) fn add(methods: Methods) -> Methods {
    methods.with("eth_getLogs", Kind::Scan, logs)
}

/// One value, or any of several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// A filter as clients send it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FilterObject {
    from_block: Option<BlockNumberOrTag>,
    to_block: Option<BlockNumberOrTag>,
    block_hash: Option<B256>,
    address: Option<OneOrMany<Address>>,
    topics: Option<Vec<Option<OneOrMany<Option<B256>>>>>,
}

/// Which blocks are looked at.
pub(crate) enum Blocks {
    One(B256),
    Range(Option<BlockNumberOrTag>, Option<BlockNumberOrTag>),
}

impl FilterObject {
    /// What it asks for, if it is within the limits.
    pub(crate) fn checked(self, alternatives: usize) -> Result<(LogFilter, Blocks), RpcError> {
        let Self {
            from_block,
            to_block,
            block_hash,
            address,
            topics,
        } = self;
        let blocks = match block_hash {
            Some(_) if from_block.is_some() || to_block.is_some() => {
                return Err(RpcError::params(
                    "invalid argument 0: cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other",
                ));
            }
            Some(hash) => Blocks::One(hash),
            None => Blocks::Range(from_block, to_block),
        };
        let mut filter = LogFilter {
            addresses: address.map(OneOrMany::into_vec).unwrap_or_default(),
            ..LogFilter::default()
        };
        let topics = topics.unwrap_or_default();
        if topics.len() > TOPICS {
            return Err(RpcError::params(format!("exceed max topics: {TOPICS}")));
        }
        for (at, any) in topics.into_iter().enumerate() {
            let any = any.map(OneOrMany::into_vec).unwrap_or_default();
            // A null among alternatives lets everything pass.
            filter.topics[at] = any.into_iter().collect::<Option<_>>().unwrap_or_default();
        }
        let mut lengths = vec![("addresses", filter.addresses.len())];
        lengths.extend(filter.topics.iter().map(|any| ("topics", any.len())));
        for (what, length) in lengths {
            if length > alternatives {
                return Err(RpcError::params(format!(
                    "too many {what}: {length}, {alternatives} at most"
                )));
            }
        }
        Ok((filter, blocks))
    }
}

/// A range of blocks that exist, and are not too many.
pub(crate) fn range(
    call: &Call<'_>,
    from: Option<BlockNumberOrTag>,
    to: Option<BlockNumberOrTag>,
) -> Result<std::ops::RangeInclusive<BlockNumber>, RpcError> {
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
            let found = of_block(call, hash, &filter)?;
            reply.value(&found)
        }
        Blocks::Range(from, to) => {
            let range = range(call, from, to)?;
            let most = call.limits().logs;
            let mut list = reply.list()?;
            let mut timestamps = HashMap::new();
            for (count, found) in call.node.logs(&filter, range)?.enumerate() {
                call.cancel.check()?;
                let found = found?;
                if count == most {
                    let what = format!(
                        "query returned more than {most} results: ask for fewer blocks than up to {}",
                        found.block.number
                    );
                    return Err(RpcError::new(RpcError::LIMIT, what));
                }
                let timestamp = match timestamps.get(&found.block) {
                    Some(timestamp) => *timestamp,
                    None => {
                        let block = call.node.block(BlockRef::Hash(found.block.hash))?;
                        timestamps.clear();
                        timestamps.insert(found.block, block.block.header.timestamp);
                        block.block.header.timestamp
                    }
                };
                list.item(&objects::log(found, timestamp))?;
            }
            list.end()
        }
    }
}

/// The logs of one block, on any branch. They take no index.
pub(crate) fn of_block(
    call: &Call<'_>,
    hash: B256,
    filter: &LogFilter,
) -> Result<Vec<alloy_rpc_types_eth::Log>, RpcError> {
    let block = call
        .node
        .block(BlockRef::Hash(hash))
        .map_err(RpcError::from);
    let block = block.map_err(|error| match error.is_not_there() {
        true => RpcError::server("unknown block"),
        false => error,
    })?;
    let receipts = call.node.chain()?.receipts(block.id)?;
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

//! Filters of logs, as clients send them.

use crate::error::RpcError;
use alloy_eips::BlockNumberOrTag;
use alloy_primitives::{Address, B256};
use cambium_index::LogFilter;
use serde::Deserialize;

/// Places of topics.
const TOPICS: usize = 4;

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
            if any.len() > alternatives {
                return Err(too_many("topics", any.len(), alternatives));
            }
            // A null among alternatives lets everything pass.
            filter.topics[at] = any.into_iter().collect::<Option<_>>().unwrap_or_default();
        }
        let length = filter.addresses.len();
        if length > alternatives {
            return Err(too_many("addresses", length, alternatives));
        }
        Ok((filter, blocks))
    }
}

/// Addresses and topics of a filter.
pub(crate) fn alternatives(filter: &LogFilter) -> usize {
    filter.addresses.len() + filter.topics.iter().map(Vec::len).sum::<usize>()
}

fn too_many(what: &str, length: usize, most: usize) -> RpcError {
    RpcError::params(format!("too many {what}: {length}, {most} at most"))
}

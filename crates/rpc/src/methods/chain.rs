//! The chain as a whole.

use super::objects::Quantity;
use crate::{limits::Kind, table::Methods};
use alloy_primitives::U256;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with("eth_blockNumber", Kind::Quick, |call, params, reply| {
            params.end()?;
            reply.value(&Quantity::from(call.node.head().number))
        })
        .with("eth_chainId", Kind::Quick, |call, params, reply| {
            params.end()?;
            reply.value(&Quantity::from(call.node.chain()?.spec().chain_id))
        })
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

//! Fees: what the next block asks for, and what those before have paid.

use super::{
    block_id::of_tag,
    objects::{Count, Quantity, blob_fee},
};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_consensus::{Header, Transaction as _};
use alloy_eips::{BlockNumberOrTag, eip1559::BaseFeeParams};
use cambium_node::{BlockRef, FoundBlock};
use cambium_primitives::BlockId;
use serde::Serialize;

/// Blocks of which tips are looked at.
const TIP_BLOCKS: u64 = 20;
/// Tips of each that are.
const TIPS_OF_BLOCK: usize = 3;
/// The tip of all of these, sorted, in per cent.
const TIP_PERCENTILE: usize = 60;
/// Tips below it say nothing, in wei.
const TIP_LEAST: u128 = 2;
/// The most that is proposed, in wei.
const TIP_MOST: u128 = 500_000_000_000;
/// What is proposed where no block says anything, in wei.
const TIP_DEFAULT: u128 = 1_000_000_000;
/// Most percentiles.
const PERCENTILES: usize = 100;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_gasPrice() -> Gas price",
            Kind::Quick,
            |call, params, reply| {
                params.end()?;
                let (id, head) = call.node.header(BlockRef::Latest)?;
                let tip = tip(call, id)?;
                let base = head.base_fee_per_gas.unwrap_or_default();
                reply.value(&Quantity(tip + u128::from(base)))
            },
        )
        .with(
            "eth_maxPriorityFeePerGas() -> Max priority fee per gas",
            Kind::Quick,
            |call, params, reply| {
                params.end()?;
                reply.value(&Quantity(tip(call, call.node.head())?))
            },
        )
        .with(
            "eth_baseFee() -> Base fee",
            Kind::Quick,
            |call, params, reply| {
                params.end()?;
                let (_, head) = call.node.header(BlockRef::Latest)?;
                let fee = next_base_fee(&head);
                reply.value(&fee.map(Quantity::from))
            },
        )
        .with(
            "eth_blobBaseFee() -> Blob gas base fee",
            Kind::Quick,
            |call, params, reply| {
                params.end()?;
                let (_, head) = call.node.header(BlockRef::Latest)?;
                let fee = blob_fee(call.node.chain()?.spec(), &head);
                reply.value(&Quantity(fee.unwrap_or_default()))
            },
        )
        .with(
            "eth_feeHistory(blockCount, newestBlock, rewardPercentiles?) -> Fee history result",
            Kind::Scan,
            history,
        )
}

/// The base fee of the block after one with this header.
pub(super) fn next_base_fee(header: &Header) -> Option<u64> {
    header.next_block_base_fee(BaseFeeParams::ethereum())
}

/// A tip that gets a transaction into one of the next blocks, by those before.
pub(super) fn tip(call: &Call<'_>, head: BlockId) -> Result<u128, RpcError> {
    if let Some((block, tip)) = *call.served.tip.lock()
        && block == head.hash
    {
        return Ok(tip);
    }
    let mut tips = Vec::new();
    let first = call.node.db().genesis().number;
    let last = head.number;
    for number in (first.max((last + 1).saturating_sub(TIP_BLOCKS))..=last).rev() {
        call.cancel.check()?;
        let block = call.node.block(BlockRef::Number(number))?.block;
        let base = block.header.base_fee_per_gas;
        let own = block.body.transactions.iter();
        let mut own: Vec<_> = own
            .filter_map(|own| own.effective_tip_per_gas(base.unwrap_or_default()))
            .filter(|tip| *tip >= TIP_LEAST)
            .collect();
        own.sort_unstable();
        tips.extend(own.into_iter().take(TIPS_OF_BLOCK));
    }
    tips.sort_unstable();
    let tip = match tips.len() {
        0 => TIP_DEFAULT,
        count => tips[(count - 1) * TIP_PERCENTILE / 100],
    };
    let tip = tip.min(TIP_MOST);
    *call.served.tip.lock() = Some((head.hash, tip));
    Ok(tip)
}

/// The answer of `eth_feeHistory`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct History {
    oldest_block: Quantity,
    #[serde(skip_serializing_if = "Option::is_none")]
    reward: Option<Vec<Vec<Quantity>>>,
    base_fee_per_gas: Vec<Quantity>,
    gas_used_ratio: Vec<f64>,
    base_fee_per_blob_gas: Vec<Quantity>,
    blob_gas_used_ratio: Vec<f64>,
}

fn history(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let count = params.required::<Count>()?.get();
    let newest: BlockNumberOrTag = params.required()?;
    let percentiles: Option<Vec<f64>> = params.optional()?;
    params.end()?;
    check_percentiles(percentiles.as_deref().unwrap_or_default())?;
    let newest = match of_tag(newest) {
        BlockRef::Number(number) => number,
        block => call.node.id(block)?.number,
    };
    let (first, head) = (call.node.db().genesis().number, call.node.head().number);
    if newest > head {
        return Err(RpcError::params(format!(
            "request beyond head block: requested {newest}, head {head}"
        )));
    }
    let count = count
        .min(call.limits().fee_blocks)
        .min(newest + 1 - first.min(newest));
    let oldest = newest + 1 - count;
    let chain = call.node.chain()?;
    let spec = chain.spec();
    let mut all = History {
        oldest_block: Quantity::from(if count == 0 { 0 } else { oldest }),
        reward: percentiles.as_ref().map(|_| Vec::new()),
        base_fee_per_gas: Vec::new(),
        gas_used_ratio: Vec::new(),
        base_fee_per_blob_gas: Vec::new(),
        blob_gas_used_ratio: Vec::new(),
    };
    for number in oldest..oldest + count {
        call.cancel.check()?;
        let found = call.node.block(BlockRef::Number(number))?;
        let header = &found.block.header;
        let base_fee = header.base_fee_per_gas.unwrap_or_default();
        all.base_fee_per_gas.push(base_fee.into());
        all.gas_used_ratio
            .push(ratio(header.gas_used, header.gas_limit));
        let blob_fee_of = blob_fee(spec, header).unwrap_or_default();
        all.base_fee_per_blob_gas.push(Quantity(blob_fee_of));
        let most = spec.blob_params_at(header.timestamp);
        let most = most.map_or(0, |params| params.max_blob_gas_per_block());
        all.blob_gas_used_ratio
            .push(ratio(header.blob_gas_used.unwrap_or_default(), most));
        if let (Some(reward), Some(percentiles)) = (&mut all.reward, &percentiles) {
            reward.push(rewards(call, &found, percentiles)?);
        }
        if number == newest {
            let next = next_base_fee(header).unwrap_or_default();
            all.base_fee_per_gas.push(next.into());
            let params = spec.blob_params_at(header.timestamp);
            let next = params.and_then(|params| {
                let excess = params.next_block_excess_blob_gas_osaka(
                    header.excess_blob_gas?,
                    header.blob_gas_used?,
                    base_fee,
                );
                Some(params.calc_blob_fee(excess))
            });
            all.base_fee_per_blob_gas
                .push(Quantity(next.unwrap_or_default()));
        }
    }
    reply.value(&all)
}

fn check_percentiles(percentiles: &[f64]) -> Result<(), RpcError> {
    if percentiles.len() > PERCENTILES {
        return Err(RpcError::params(format!(
            "over the query limit {PERCENTILES}: {} percentiles",
            percentiles.len()
        )));
    }
    for (at, percentile) in percentiles.iter().enumerate() {
        if !(0.0..=100.0).contains(percentile) {
            return Err(RpcError::params(format!(
                "invalid reward percentile: {percentile}"
            )));
        }
        if at > 0 && *percentile < percentiles[at - 1] {
            return Err(RpcError::params(format!(
                "invalid reward percentile: {percentile} comes after {}",
                percentiles[at - 1]
            )));
        }
    }
    Ok(())
}

fn ratio(used: u64, most: u64) -> f64 {
    match most {
        0 => 0.0,
        most => used as f64 / most as f64,
    }
}

/// The tips at percentiles of the gas of a block.
fn rewards(
    call: &Call<'_>,
    found: &FoundBlock,
    percentiles: &[f64],
) -> Result<Vec<Quantity>, RpcError> {
    let block = &found.block;
    if block.body.transactions.is_empty() || percentiles.is_empty() {
        return Ok(vec![Quantity(0); percentiles.len()]);
    }
    let receipts = call.node.chain()?.receipts(found.id)?;
    let base_fee = block.header.base_fee_per_gas.unwrap_or_default();
    let mut before = 0;
    let own = block.body.transactions.iter().zip(&receipts);
    let mut tips: Vec<_> = own
        .map(|(own, receipt)| {
            let gas = receipt.cumulative_gas_used() - before;
            before = receipt.cumulative_gas_used();
            (own.effective_tip_per_gas(base_fee).unwrap_or_default(), gas)
        })
        .collect();
    tips.sort_unstable();
    let (mut at, mut gas) = (0, tips[0].1);
    let rewards = percentiles.iter().map(|percentile| {
        let wanted = (block.header.gas_used as f64 * percentile / 100.0) as u64;
        while gas < wanted && at + 1 < tips.len() {
            at += 1;
            gas += tips[at].1;
        }
        Quantity(tips[at].0)
    });
    Ok(rewards.collect())
}

//! The forks of a chain: `eth_config` (EIP-7910).

use super::objects::Quantity;
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::{
    eip2935::HISTORY_STORAGE_ADDRESS, eip4788::BEACON_ROOTS_ADDRESS,
    eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
    eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
};
use alloy_primitives::{Address, B256, Bytes};
use cambium_chain::{ChainSpec, Fork};
use cambium_node::BlockRef;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn add(methods: Methods) -> Methods {
    methods.with("eth_config() -> Configuration", Kind::Quick, config)
}

/// What is in force from a time on.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    activation_time: u64,
    blob_schedule: Option<Blobs>,
    chain_id: Quantity,
    fork_id: Bytes,
    precompiles: BTreeMap<&'static str, Address>,
    system_contracts: BTreeMap<&'static str, Address>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blobs {
    target: u64,
    max: u64,
    base_fee_update_fraction: u64,
}

#[derive(Serialize)]
struct Configs {
    current: Option<Config>,
    next: Option<Config>,
    last: Option<Config>,
}

fn config(call: &Call<'_>, params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    params.end()?;
    let spec = call.node.chain()?.spec();
    let (first, genesis) = call.node.header(BlockRef::Earliest)?;
    if first.number != 0 {
        return Err(RpcError::server(
            "the database begins after the genesis block, by which forks are named",
        ));
    }
    let now = call.node.header(BlockRef::Latest)?.1.timestamp;
    let times = times(spec);
    let from_cancun: Vec<_> = times
        .iter()
        .copied()
        .filter(|time| spec.cancun_time.is_some_and(|cancun| *time >= cancun))
        .collect();
    let at = |time: u64| of(spec, first.hash, genesis.timestamp, time);
    let next = from_cancun.iter().find(|time| **time > now);
    let is_last = |time: &&u64| next.is_some() && **time > now;
    reply.value(&Configs {
        current: from_cancun
            .iter()
            .rfind(|time| **time <= now)
            .map(|time| at(*time)),
        next: next.map(|time| at(*time)),
        last: from_cancun.last().filter(is_last).map(|time| at(*time)),
    })
}

/// The times at which forks begin.
fn times(spec: &ChainSpec) -> BTreeSet<u64> {
    let named = [
        spec.shanghai_time,
        spec.cancun_time,
        spec.prague_time,
        spec.osaka_time,
        spec.amsterdam_time,
    ];
    named.into_iter().chain(spec.bpo_times).flatten().collect()
}

/// The blocks at which forks begin.
fn blocks(spec: &ChainSpec) -> BTreeSet<u64> {
    [
        spec.homestead_block,
        spec.dao_fork_block,
        spec.eip150_block,
        spec.eip155_block,
        spec.eip158_block,
        spec.byzantium_block,
        spec.constantinople_block,
        spec.petersburg_block,
        spec.istanbul_block,
        spec.muir_glacier_block,
        spec.berlin_block,
        spec.london_block,
        spec.arrow_glacier_block,
        spec.gray_glacier_block,
        spec.merge_netsplit_block,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The name of the rules at a time (EIP-2124, EIP-6122).
fn fork_id(spec: &ChainSpec, genesis: B256, begun: u64, time: u64) -> Bytes {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(genesis.as_slice());
    let by_number = blocks(spec).into_iter().filter(|block| *block > 0);
    let by_time = times(spec)
        .into_iter()
        .filter(|own| *own > begun && *own <= time);
    for point in by_number.chain(by_time) {
        hasher.update(&point.to_be_bytes());
    }
    Bytes::copy_from_slice(&hasher.finalize().to_be_bytes())
}

fn of(spec: &ChainSpec, genesis: B256, begun: u64, time: u64) -> Config {
    let fork = spec.fork_at(u64::MAX, time, true);
    let blobs = spec.blob_params_at(time);
    Config {
        activation_time: time,
        blob_schedule: blobs.map(|params| Blobs {
            target: params.target_blob_count,
            max: params.max_blob_count,
            base_fee_update_fraction: u64::try_from(params.update_fraction).unwrap_or(u64::MAX),
        }),
        chain_id: Quantity::from(spec.chain_id),
        fork_id: fork_id(spec, genesis, begun, time),
        precompiles: precompiles(fork),
        system_contracts: system_contracts(spec, fork),
    }
}

fn precompiles(fork: Fork) -> BTreeMap<&'static str, Address> {
    let mut all = vec![
        ("ECREC", 0x01),
        ("SHA256", 0x02),
        ("RIPEMD160", 0x03),
        ("ID", 0x04),
        ("MODEXP", 0x05),
        ("BN254_ADD", 0x06),
        ("BN254_MUL", 0x07),
        ("BN254_PAIRING", 0x08),
        ("BLAKE2F", 0x09),
        ("KZG_POINT_EVALUATION", 0x0a),
    ];
    if fork >= Fork::Prague {
        all.extend([
            ("BLS12_G1ADD", 0x0b),
            ("BLS12_G1MSM", 0x0c),
            ("BLS12_G2ADD", 0x0d),
            ("BLS12_G2MSM", 0x0e),
            ("BLS12_PAIRING_CHECK", 0x0f),
            ("BLS12_MAP_FP_TO_G1", 0x10),
            ("BLS12_MAP_FP2_TO_G2", 0x11),
        ]);
    }
    if fork >= Fork::Osaka {
        all.push(("P256VERIFY", 0x100));
    }
    let address = |(name, number): (&'static str, u16)| {
        let mut address = Address::ZERO;
        address[18..].copy_from_slice(&number.to_be_bytes());
        (name, address)
    };
    all.into_iter().map(address).collect()
}

fn system_contracts(spec: &ChainSpec, fork: Fork) -> BTreeMap<&'static str, Address> {
    let mut all = BTreeMap::from([("BEACON_ROOTS_ADDRESS", BEACON_ROOTS_ADDRESS)]);
    if fork >= Fork::Prague {
        all.extend([
            (
                "CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS",
                CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
            ),
            ("DEPOSIT_CONTRACT_ADDRESS", spec.deposit_contract),
            ("HISTORY_STORAGE_ADDRESS", HISTORY_STORAGE_ADDRESS),
            (
                "WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS",
                WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
            ),
        ]);
    }
    all
}

//! What a header must be, given its parent and the chain's forks.
//!
//! Every field is checked that does not depend on executing the block; those are compared in
//! [`verify_outcome`](crate::verify_outcome). Deliberately absent: proof-of-work seals (the
//! ethash of `mix_hash` and `nonce`). A chain is imported because its operator trusts where it comes from, or a consensus client vouches for
//! its head; the difficulty formula is still enforced.

use crate::{ChainSpec, Fork, difficulty::difficulty};
use alloy_consensus::{Header, constants::EMPTY_OMMER_ROOT_HASH};
use alloy_eips::{eip1559::INITIAL_BASE_FEE, eip4844::DATA_GAS_PER_BLOB, eip7840::BlobParams};
use alloy_primitives::{B64, B256, Bytes, U256};

/// What the ten blocks from the DAO fork on carry as extra data.
pub const DAO_EXTRA_DATA: &[u8] = b"dao-hard-fork";

/// Bytes of extra data, at most.
const EXTRA_DATA_BYTES_MAX: usize = 32;
/// No gas limit is lower.
const GAS_LIMIT_MIN: u64 = 5_000;
/// No gas limit is higher (EIP-1985).
const GAS_LIMIT_MAX: u64 = i64::MAX as u64;
/// A gas limit differs from its parent's by less than this fraction.
const GAS_LIMIT_FRACTION: u64 = 1_024;
/// The base fee moves by this fraction, at most.
const BASE_FEE_FRACTION: u128 = 8;
/// The gas limit grows by this factor at London, so that the target stays (EIP-1559).
const ELASTICITY: u64 = 2;

/// What is wrong with a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum HeaderError {
    #[error("parentHash is {got}, the parent's hash is {expected}")]
    ParentHash { got: B256, expected: B256 },
    #[error("number is {got}, one more than the parent's is {expected}")]
    Number { got: u64, expected: u64 },
    #[error("the parent's number is {parent}, after which there is none")]
    NoNumber { parent: u64 },
    #[error("timestamp is {got}, not after the parent's {parent}")]
    Timestamp { got: u64, parent: u64 },
    #[error("gasLimit is {got}, not from {min} to {max}")]
    GasLimit { got: u64, min: u64, max: u64 },
    #[error("gasUsed is {got}, over the gasLimit of {limit}")]
    GasUsedOverLimit { got: u64, limit: u64 },
    #[error("extraData has {got} bytes, over the {max} allowed")]
    ExtraDataLength { got: usize, max: usize },
    #[error("extraData is {got}, the DAO fork demands 0x64616f2d686172642d666f726b")]
    DaoExtraData { got: Bytes },
    #[error("extraData is the mark of the DAO fork, which the chain opposes")]
    DaoMark,
    #[error("difficulty is {got}, the parent's makes it {expected}")]
    Difficulty { got: U256, expected: U256 },
    #[error("nonce is {got}, a proof-of-stake block's is zero")]
    Nonce { got: B64 },
    #[error("sha3Uncles is {got}, a proof-of-stake block has no uncles")]
    Ommers { got: B256 },
    #[error("{field} is missing, though the fork of the block has it")]
    Missing { field: &'static str },
    #[error("{field} is there, though the fork of the block has no such field")]
    Unexpected { field: &'static str },
    #[error("baseFeePerGas is {got}, the parent makes it {expected}")]
    BaseFee { got: u64, expected: u64 },
    #[error("blobGasUsed is {got}, not a multiple of {DATA_GAS_PER_BLOB} up to {max}")]
    BlobGasUsed { got: u64, max: u64 },
    #[error("excessBlobGas is {got}, the parent makes it {expected}")]
    ExcessBlobGas { got: u64, expected: u64 },
}

/// Checks all of a header that depends on its parent and the chain's forks alone. `parent_hash`
/// is the hash of `parent`; whether the block is `post_merge` follows from its parent's total
/// difficulty ([`ChainSpec::is_post_merge`]).
pub fn validate_header(
    spec: &ChainSpec,
    header: &Header,
    parent: &Header,
    parent_hash: B256,
    post_merge: bool,
) -> Result<(), HeaderError> {
    check_place(header, parent, parent_hash)?;
    let fork = spec.fork_at(header.number, header.timestamp, post_merge);
    check_fields(spec, fork, header)?;
    check_gas(fork, header, parent)?;
    check_extra_data(spec, header)?;
    check_seal(spec, header, parent, post_merge)?;
    check_blob_gas(spec, fork, header, parent)
}

fn check_place(header: &Header, parent: &Header, parent_hash: B256) -> Result<(), HeaderError> {
    let got = header.parent_hash;
    if got != parent_hash {
        return Err(HeaderError::ParentHash {
            got,
            expected: parent_hash,
        });
    }
    let parent_number = parent.number;
    let expected = parent_number.checked_add(1).ok_or(HeaderError::NoNumber {
        parent: parent_number,
    })?;
    let got = header.number;
    if got != expected {
        return Err(HeaderError::Number { got, expected });
    }
    let got = header.timestamp;
    if got <= parent.timestamp {
        return Err(HeaderError::Timestamp {
            got,
            parent: parent.timestamp,
        });
    }
    Ok(())
}

/// Each field that a fork brings must be there from that fork on, and not before.
fn check_fields(spec: &ChainSpec, fork: Fork, header: &Header) -> Result<(), HeaderError> {
    let fields = [
        (
            "baseFeePerGas",
            header.base_fee_per_gas.is_some(),
            fork >= Fork::London,
        ),
        (
            "withdrawalsRoot",
            header.withdrawals_root.is_some(),
            fork >= Fork::Shanghai,
        ),
        (
            "blobGasUsed",
            header.blob_gas_used.is_some(),
            fork >= Fork::Cancun,
        ),
        (
            "excessBlobGas",
            header.excess_blob_gas.is_some(),
            fork >= Fork::Cancun,
        ),
        (
            "parentBeaconBlockRoot",
            header.parent_beacon_block_root.is_some(),
            fork >= Fork::Cancun,
        ),
        (
            "requestsHash",
            header.requests_hash.is_some(),
            fork >= Fork::Prague,
        ),
        (
            "blockAccessListHash",
            header.block_access_list_hash.is_some(),
            fork >= Fork::Amsterdam,
        ),
        (
            "slotNumber",
            header.slot_number.is_some(),
            spec.has_slot_number(fork),
        ),
    ];
    for (field, present, wanted) in fields {
        match (present, wanted) {
            (false, true) => return Err(HeaderError::Missing { field }),
            (true, false) => return Err(HeaderError::Unexpected { field }),
            _ => {}
        }
    }
    Ok(())
}

fn check_gas(fork: Fork, header: &Header, parent: &Header) -> Result<(), HeaderError> {
    let (got, limit) = (header.gas_used, header.gas_limit);
    if got > limit {
        return Err(HeaderError::GasUsedOverLimit { got, limit });
    }
    let first_of_london = fork >= Fork::London && parent.base_fee_per_gas.is_none();
    let factor = if first_of_london { ELASTICITY } else { 1 };
    let base = parent.gas_limit.saturating_mul(factor);
    let room = (base / GAS_LIMIT_FRACTION).saturating_sub(1);
    let min = base.saturating_sub(room).max(GAS_LIMIT_MIN);
    let max = base.saturating_add(room).min(GAS_LIMIT_MAX);
    if limit < min || limit > max {
        return Err(HeaderError::GasLimit {
            got: limit,
            min,
            max,
        });
    }
    if let Some(got) = header.base_fee_per_gas {
        let expected = base_fee(parent);
        if got != expected {
            return Err(HeaderError::BaseFee { got, expected });
        }
    }
    Ok(())
}

/// The base fee of the block after `parent`, in London or later (EIP-1559).
///
/// The same as `alloy_eips::eip1559::calc_next_block_base_fee`, which overflows where the parent's
/// base fee is near the maximum, as a genesis file may have it. This saturates.
fn base_fee(parent: &Header) -> u64 {
    let Some(base_fee) = parent.base_fee_per_gas else {
        return INITIAL_BASE_FEE;
    };
    let target = parent.gas_limit / ELASTICITY;
    let (over, distance) = match parent.gas_used.checked_sub(target) {
        Some(distance) => (true, distance),
        None => (false, target - parent.gas_used),
    };
    if target == 0 || distance == 0 {
        return base_fee;
    }
    let change = u128::from(base_fee) * u128::from(distance) / u128::from(target);
    let change = u64::try_from(change / BASE_FEE_FRACTION).unwrap_or(u64::MAX);
    match over {
        true => base_fee.saturating_add(change.max(1)),
        false => base_fee.saturating_sub(change),
    }
}

fn check_extra_data(spec: &ChainSpec, header: &Header) -> Result<(), HeaderError> {
    let got = header.extra_data.len();
    if got > EXTRA_DATA_BYTES_MAX {
        return Err(HeaderError::ExtraDataLength {
            got,
            max: EXTRA_DATA_BYTES_MAX,
        });
    }
    let is_marked = *header.extra_data == *DAO_EXTRA_DATA;
    match (spec.dao_mark(header.number), is_marked) {
        (Some(true), false) => Err(HeaderError::DaoExtraData {
            got: header.extra_data.clone(),
        }),
        (Some(false), true) => Err(HeaderError::DaoMark),
        _ => Ok(()),
    }
}

fn check_seal(
    spec: &ChainSpec,
    header: &Header,
    parent: &Header,
    post_merge: bool,
) -> Result<(), HeaderError> {
    let got = header.difficulty;
    let expected = if post_merge {
        U256::ZERO
    } else {
        difficulty(spec, parent, header.timestamp)
    };
    if got != expected {
        return Err(HeaderError::Difficulty { got, expected });
    }
    if post_merge && header.nonce != B64::ZERO {
        return Err(HeaderError::Nonce { got: header.nonce });
    }
    if post_merge && header.ommers_hash != EMPTY_OMMER_ROOT_HASH {
        return Err(HeaderError::Ommers {
            got: header.ommers_hash,
        });
    }
    Ok(())
}

fn check_blob_gas(
    spec: &ChainSpec,
    fork: Fork,
    header: &Header,
    parent: &Header,
) -> Result<(), HeaderError> {
    let (Some(used), Some(excess)) = (header.blob_gas_used, header.excess_blob_gas) else {
        return Ok(());
    };
    let Some(params) = spec
        .blob_params_at(header.timestamp)
        .filter(|_| fork >= Fork::Cancun)
    else {
        return Ok(());
    };
    let max = params.max_blob_gas_per_block();
    if used > max || used % DATA_GAS_PER_BLOB != 0 {
        return Err(HeaderError::BlobGasUsed { got: used, max });
    }
    let expected = excess_blob_gas(&params, parent);
    if excess != expected {
        return Err(HeaderError::ExcessBlobGas {
            got: excess,
            expected,
        });
    }
    Ok(())
}

/// The excess blob gas of the block after `parent`, by its own fork's parameters (EIP-4844; the
/// reserve price is EIP-7918's, and has a cost of zero before Osaka).
///
/// The same as `BlobParams::next_block_excess_blob_gas_osaka`, which overflows where a genesis file
/// has an excess near the maximum or a target over the limit, and divides by a limit of zero. This
/// saturates.
fn excess_blob_gas(params: &BlobParams, parent: &Header) -> u64 {
    let excess = parent.excess_blob_gas.unwrap_or(0);
    let used = parent.blob_gas_used.unwrap_or(0);
    let sum = excess.saturating_add(used);
    let target = params.target_blob_gas_per_block();
    if sum < target {
        return 0;
    }
    let reserve = u128::from(params.blob_base_cost)
        .saturating_mul(u128::from(parent.base_fee_per_gas.unwrap_or(0)));
    let price = u128::from(DATA_GAS_PER_BLOB).saturating_mul(params.calc_blob_fee(excess));
    if reserve <= price {
        return sum - target;
    }
    let (max, target) = (params.max_blob_count, params.target_blob_count);
    let scaled = u128::from(used) * u128::from(max.saturating_sub(target)) / u128::from(max.max(1));
    excess.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX))
}

//! Validation of a header against its parent and the chain's forks.
//!
//! Every field is checked that does not depend on executing the block;
//! [`verify_outcome`](crate::verify_outcome) compares the others. Deliberately absent:
//! proof-of-work seals (ethash of `mix_hash` and `nonce`). An operator imports a chain from a
//! trusted source, or a consensus client vouches for its head. The difficulty formula is enforced.

use crate::{ChainSpec, Fork, difficulty::difficulty};
use alloy_consensus::{
    Header,
    constants::{EMPTY_OMMER_ROOT_HASH, EMPTY_ROOT_HASH},
};
use alloy_eips::{
    eip1559::INITIAL_BASE_FEE, eip4844::DATA_GAS_PER_BLOB, eip7685::EMPTY_REQUESTS_HASH,
    eip7840::BlobParams,
};
use alloy_primitives::{B64, B256, Bytes, U256};

/// Extra data of the first ten blocks of the DAO fork.
pub const DAO_EXTRA_DATA: &[u8] = b"dao-hard-fork";

/// Maximum size of extra data in bytes.
const EXTRA_DATA_BYTES_MAX: usize = 32;
/// Minimum gas limit.
const GAS_LIMIT_MIN: u64 = 5_000;
/// Maximum gas limit (EIP-1985).
const GAS_LIMIT_MAX: u64 = i64::MAX as u64;
/// A gas limit differs from its parent's by less than the parent's divided by this.
const GAS_LIMIT_FRACTION: u64 = 1_024;
/// The base fee changes by at most the parent's base fee divided by this (EIP-1559).
const BASE_FEE_FRACTION: u128 = 8;
/// Ratio of gas limit and gas target from London on (EIP-1559).
const ELASTICITY: u64 = 2;

/// Why a header is invalid. Names of fields are those of JSON-RPC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum HeaderError {
    #[error("parentHash is {got}, the parent's hash is {expected}")]
    ParentHash { got: B256, expected: B256 },
    #[error("number is {got}, expected {expected} after the parent")]
    Number { got: u64, expected: u64 },
    #[error("the parent's number is {parent}, so it can't have a child")]
    NoNumber { parent: u64 },
    #[error("timestamp is {got}, not after the parent's {parent}")]
    Timestamp { got: u64, parent: u64 },
    #[error("gasLimit is {got}, outside the range from {min} to {max}")]
    GasLimit { got: u64, min: u64, max: u64 },
    #[error("gasUsed is {got}, over the gasLimit of {limit}")]
    GasUsedOverLimit { got: u64, limit: u64 },
    #[error("extraData has {got} bytes, over the limit of {max}")]
    ExtraDataLength { got: usize, max: usize },
    #[error("extraData is {got}, the DAO fork requires 0x64616f2d686172642d666f726b")]
    DaoExtraData { got: Bytes },
    #[error("extraData is the mark of the DAO fork, which this chain opposes")]
    DaoMark,
    #[error("difficulty is {got}, expected {expected} from the parent")]
    Difficulty { got: U256, expected: U256 },
    #[error("nonce is {got}, expected zero in a proof-of-stake block")]
    Nonce { got: B64 },
    #[error("sha3Uncles is {got}, but a proof-of-stake block has no ommers")]
    Ommers { got: B256 },
    #[error("{field} is missing, but the block's fork requires it")]
    Missing { field: &'static str },
    #[error("{field} is present, but the block's fork does not have it")]
    Unexpected { field: &'static str },
    #[error("baseFeePerGas is {got}, expected {expected} from the parent")]
    BaseFee { got: u64, expected: u64 },
    #[error("blobGasUsed is {got}, not a multiple of {DATA_GAS_PER_BLOB} up to {max}")]
    BlobGasUsed { got: u64, max: u64 },
    #[error("excessBlobGas is {got}, expected {expected} from the parent")]
    ExcessBlobGas { got: u64, expected: u64 },
}

/// Validates everything in a header that depends only on its parent and the chain's forks.
///
/// `parent_hash` is the hash of `parent`. `post_merge` follows from the parent's total difficulty
/// ([`ChainSpec::is_post_merge`]).
///
/// # Errors
///
/// If the header is invalid: the first fault found.
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

/// The header of a block past the merge, before its execution: every field that follows from the parent and the forks is what
/// [`validate_header`] expects. The gas limit goes towards `gas_limit` as far as it may.
pub(crate) fn draft_header(
    spec: &ChainSpec,
    parent: &Header,
    parent_hash: B256,
    timestamp: u64,
    gas_limit: u64,
) -> Header {
    let number = parent.number.saturating_add(1);
    let fork = spec.fork_at(number, timestamp, true);
    let (base, room) = gas_limit_around(fork, parent);
    let range = base.saturating_sub(room).max(GAS_LIMIT_MIN)
        ..=base
            .saturating_add(room)
            .clamp(GAS_LIMIT_MIN, GAS_LIMIT_MAX);
    let blobs = spec
        .blob_params_at(timestamp)
        .filter(|_| fork >= Fork::Cancun);
    Header {
        parent_hash,
        number,
        timestamp,
        difficulty: U256::ZERO,
        gas_limit: gas_limit.max(*range.start()).min(*range.end()),
        base_fee_per_gas: (fork >= Fork::London).then(|| base_fee(parent)),
        withdrawals_root: (fork >= Fork::Shanghai).then_some(EMPTY_ROOT_HASH),
        blob_gas_used: (fork >= Fork::Cancun).then_some(0),
        excess_blob_gas: (fork >= Fork::Cancun)
            .then(|| blobs.map_or(0, |params| excess_blob_gas(&params, parent))),
        parent_beacon_block_root: (fork >= Fork::Cancun).then_some(B256::ZERO),
        requests_hash: (fork >= Fork::Prague).then_some(EMPTY_REQUESTS_HASH),
        block_access_list_hash: (fork >= Fork::Amsterdam).then_some(B256::ZERO),
        slot_number: spec.has_slot_number(fork).then_some(0),
        ..Header::default()
    }
}

/// The parent's gas limit as a block of this fork sees it, and by how much its own may differ.
fn gas_limit_around(fork: Fork, parent: &Header) -> (u64, u64) {
    let first_of_london = fork >= Fork::London && parent.base_fee_per_gas.is_none();
    let factor = if first_of_london { ELASTICITY } else { 1 };
    let base = parent.gas_limit.saturating_mul(factor);
    (base, (base / GAS_LIMIT_FRACTION).saturating_sub(1))
}

/// Checks that each field is present exactly from the fork on that introduces it.
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
    let (base, room) = gas_limit_around(fork, parent);
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
/// Equal to `alloy_eips::eip1559::calc_next_block_base_fee`, except that this saturates. alloy's
/// overflows if the parent's base fee is near the maximum, which a genesis file may set.
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

/// The excess blob gas of the block after `parent` (EIP-4844), by the parameters of the block's own
/// fork. The reserve price is that of EIP-7918, with a base cost of zero before Osaka.
///
/// Equal to `BlobParams::next_block_excess_blob_gas_osaka`, except that this saturates. alloy's
/// panics or overflows if a genesis file sets an excess near the maximum, a blob target above the
/// maximum, or a maximum of zero.
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

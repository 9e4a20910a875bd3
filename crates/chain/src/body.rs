//! Validation of a block's body against its header and ancestors.

use crate::{Block, ChainSpec, Fork, HeaderError, validate_header};
use alloy_consensus::{
    Header,
    proofs::{calculate_ommers_root, calculate_transaction_root, calculate_withdrawals_root},
};
use alloy_primitives::{B256, keccak256};
use alloy_rlp::Encodable;
use cambium_primitives::{AccessList, AccessListError, AccessListLimits};

/// Maximum size of a block's RLP in bytes from Osaka on (EIP-7934): 10 MiB less a margin of 2 MiB.
pub const BLOCK_RLP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Minimum gas per byte of a transaction: the cost of a zero byte of data.
const GAS_PER_BYTE_MIN: u64 = 4;
/// Minimum gas of a transaction, after refunds.
const GAS_PER_TRANSACTION_MIN: u64 = 10_000;
/// Maximum bytes of a block that cost no gas: header, ommers, blob hashes, withdrawals.
const FREE_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of ommers in a block.
const OMMERS_MAX: usize = 2;

/// Number of ancestors, from the parent back, that [`validate_ommers`] uses.
pub const OMMER_ANCESTORS: usize = 7;

/// Why a block's body is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BodyError {
    #[error("transactionsRoot is {got}, but the transactions have {expected}")]
    TransactionsRoot { got: B256, expected: B256 },
    #[error("sha3Uncles is {got}, but the ommers have {expected}")]
    OmmersHash { got: B256, expected: B256 },
    #[error("withdrawalsRoot is {got}, but the withdrawals have {expected}")]
    WithdrawalsRoot { got: B256, expected: B256 },
    #[error("the block has withdrawals, but its header has no withdrawalsRoot")]
    UnexpectedWithdrawals,
    #[error("the header has a withdrawalsRoot, but the block has no withdrawals")]
    MissingWithdrawals,
    #[error("the block has {got} bytes, over the limit of {max}")]
    Size { got: usize, max: usize },
    #[error("the block has {got} bytes, but its gas limit pays for at most {max}")]
    UnpaidBytes { got: usize, max: u64 },
    #[error("the block has {got} transactions, but its gas limit pays for at most {max}")]
    UnpaidTransactions { got: usize, max: u64 },
    #[error("the block has {got} ommers, over the limit of {max}")]
    OmmerCount { got: usize, max: usize },
    #[error("ommer {hash} is listed twice")]
    OmmerTwice { hash: B256 },
    #[error("ommer {hash} is already an ommer of an ancestor")]
    OmmerUsed { hash: B256 },
    #[error("ommer {hash} is an ancestor")]
    OmmerIsAncestor { hash: B256 },
    #[error("ommer {hash} has parent {parent}, which is not an ancestor 2 to 7 generations back")]
    OmmerParent { hash: B256, parent: B256 },
    #[error("ommer {hash}: {error}")]
    OmmerHeader { hash: B256, error: HeaderError },
    #[error("blockAccessListHash is {got}, but the access list has {expected}")]
    AccessListHash { got: B256, expected: B256 },
    #[error("access list: {0}")]
    AccessList(#[from] AccessListError),
}

/// Checks a block's size and number of transactions against the protocol's limits and against what
/// its gas limit can pay for. Only the header need be decoded before, so the gas limit bounds the
/// cost of decoding the rest.
///
/// # Errors
///
/// If the block exceeds a limit.
pub fn validate_size(
    spec: &ChainSpec,
    header: &Header,
    rlp: &[u8],
    post_merge: bool,
) -> Result<(), BodyError> {
    let fork = spec.fork_at(header.number, header.timestamp, post_merge);
    let (got, max) = (rlp.len(), BLOCK_RLP_BYTES_MAX);
    if fork >= Fork::Osaka && got > max {
        return Err(BodyError::Size { got, max });
    }
    let max = (header.gas_limit / GAS_PER_BYTE_MIN).saturating_add(FREE_BYTES_MAX);
    if got as u64 > max {
        return Err(BodyError::UnpaidBytes { got, max });
    }
    // A block whose transactions can't be counted fails to decode later.
    let got = count_transactions(rlp).unwrap_or(0);
    let max = header.gas_limit / GAS_PER_TRANSACTION_MIN;
    if got as u64 > max {
        return Err(BodyError::UnpaidTransactions { got, max });
    }
    Ok(())
}

/// Number of items in the second list of a block's RLP.
fn count_transactions(mut rlp: &[u8]) -> Option<usize> {
    let mut block = alloy_rlp::Header::decode_bytes(&mut rlp, true).ok()?;
    alloy_rlp::Header::decode_bytes(&mut block, true).ok()?;
    let mut transactions = alloy_rlp::Header::decode_bytes(&mut block, true).ok()?;
    let mut count = 0;
    while !transactions.is_empty() {
        let item = alloy_rlp::Header::decode(&mut transactions).ok()?;
        transactions = transactions.get(item.payload_length..)?;
        count += 1;
    }
    Some(count)
}

/// Validates a block's size, and its body against the roots and hashes in its header. Ommers are
/// validated by [`validate_ommers`].
///
/// # Errors
///
/// If the body is invalid: the first fault found.
pub fn validate_body(spec: &ChainSpec, block: &Block, post_merge: bool) -> Result<(), BodyError> {
    let (header, body) = (&block.header, &block.body);
    let fork = spec.fork_at(header.number, header.timestamp, post_merge);
    let max = BLOCK_RLP_BYTES_MAX;
    let got = if fork >= Fork::Osaka {
        block.length()
    } else {
        0
    };
    if got > max {
        return Err(BodyError::Size { got, max });
    }
    let (got, expected) = (header.ommers_hash, calculate_ommers_root(&body.ommers));
    if got != expected {
        return Err(BodyError::OmmersHash { got, expected });
    }
    let expected = calculate_transaction_root(&body.transactions);
    let got = header.transactions_root;
    if got != expected {
        return Err(BodyError::TransactionsRoot { got, expected });
    }
    match (header.withdrawals_root, &body.withdrawals) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(BodyError::UnexpectedWithdrawals),
        (Some(_), None) => Err(BodyError::MissingWithdrawals),
        (Some(got), Some(withdrawals)) => {
            let expected = calculate_withdrawals_root(withdrawals);
            if got != expected {
                return Err(BodyError::WithdrawalsRoot { got, expected });
            }
            Ok(())
        }
    }
}

/// Decodes the access list of a block. It must match the hash in the header, be in canonical form,
/// with every index in range, and not exceed the size that the gas limit allows. Execution shows
/// whether its contents are correct. Before Amsterdam the header has no hash, and the size is
/// unlimited.
///
/// # Errors
///
/// If the list breaks one of these rules.
pub fn validate_access_list(
    header: &Header,
    transactions: usize,
    rlp: &[u8],
) -> Result<AccessList, BodyError> {
    let limits = match header.block_access_list_hash {
        None => AccessListLimits::of_transactions(transactions),
        Some(got) => {
            let expected = keccak256(rlp);
            if got != expected {
                return Err(BodyError::AccessListHash { got, expected });
            }
            AccessListLimits::of_block(transactions, header.gas_limit)
        }
    };
    Ok(AccessList::decode(rlp, &limits)?)
}

/// An ancestor of a block, for validating the block's ommers.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// Hash of the ancestor.
    pub hash: B256,
    /// Header of the ancestor.
    pub header: Header,
    /// Hashes of the ancestor's ommers.
    pub ommers: Vec<B256>,
}

/// Validates a block's ommers: at most two distinct, valid headers that are not ancestors or ommers
/// of an ancestor, and whose parents are ancestors. `ancestors` are those of the block, parent
/// first: at least [`OMMER_ANCESTORS`], or all that exist.
///
/// # Errors
///
/// If the ommers are invalid: the first fault found.
pub fn validate_ommers(
    spec: &ChainSpec,
    block: &Block,
    ancestors: &[Ancestor],
) -> Result<(), BodyError> {
    let ommers = &block.body.ommers;
    let (got, max) = (ommers.len(), OMMERS_MAX);
    if got > max {
        return Err(BodyError::OmmerCount { got, max });
    }
    let ancestors = &ancestors[..ancestors.len().min(OMMER_ANCESTORS)];
    let mut seen = Vec::with_capacity(got);
    for ommer in ommers {
        let hash = ommer.hash_slow();
        if seen.contains(&hash) {
            return Err(BodyError::OmmerTwice { hash });
        }
        seen.push(hash);
        if ancestors
            .iter()
            .any(|ancestor| ancestor.ommers.contains(&hash))
        {
            return Err(BodyError::OmmerUsed { hash });
        }
        if ancestors.iter().any(|ancestor| ancestor.hash == hash) {
            return Err(BodyError::OmmerIsAncestor { hash });
        }
        let parent = ommer.parent_hash;
        let Some(parent) = ancestors
            .iter()
            .skip(1)
            .find(|ancestor| ancestor.hash == parent)
        else {
            return Err(BodyError::OmmerParent { hash, parent });
        };
        validate_header(spec, ommer, &parent.header, parent.hash, false)
            .map_err(|error| BodyError::OmmerHeader { hash, error })?;
    }
    Ok(())
}

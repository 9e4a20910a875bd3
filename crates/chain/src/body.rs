//! What a block's body must be, given its header and its ancestors.

use crate::{Block, ChainSpec, Fork, HeaderError, validate_header};
use alloy_consensus::{
    Header,
    proofs::{calculate_ommers_root, calculate_transaction_root, calculate_withdrawals_root},
};
use alloy_primitives::{B256, keccak256};
use alloy_rlp::Encodable;
use cambium_primitives::{AccessList, AccessListError, AccessListLimits};

/// Bytes of a block's RLP, at most, from Osaka on (EIP-7934): 10 MiB with a margin of 2 MiB.
pub const BLOCK_RLP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What a byte of a transaction costs at least: a zero of its data.
const GAS_PER_BYTE_MIN: u64 = 4;
/// What a transaction costs at least, refunds included.
const GAS_PER_TRANSACTION_MIN: u64 = 10_000;
/// Bytes of a block that no gas is paid for: header, uncles, blob hashes, withdrawals.
const FREE_BYTES_MAX: u64 = 1 << 20;

/// Uncles in a block, at most.
const OMMERS_MAX: usize = 2;

/// How many ancestors, the parent first, [`validate_ommers`] looks at.
pub const OMMER_ANCESTORS: usize = 7;

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BodyError {
    #[error("transactionsRoot is {got}, the transactions' is {expected}")]
    TransactionsRoot { got: B256, expected: B256 },
    #[error("sha3Uncles is {got}, the uncles' is {expected}")]
    OmmersHash { got: B256, expected: B256 },
    #[error("withdrawalsRoot is {got}, the withdrawals' is {expected}")]
    WithdrawalsRoot { got: B256, expected: B256 },
    #[error("the block has withdrawals, its header no withdrawalsRoot")]
    UnexpectedWithdrawals,
    #[error("the header has a withdrawalsRoot, the block no withdrawals")]
    MissingWithdrawals,
    #[error("the block has {got} bytes, over the {max} allowed")]
    Size { got: usize, max: usize },
    #[error("the block has {got} bytes, and its gas limit pays for no more than {max}")]
    UnpaidBytes { got: usize, max: u64 },
    #[error("the block has {got} transactions, and its gas limit pays for no more than {max}")]
    UnpaidTransactions { got: usize, max: u64 },
    #[error("the block has {got} uncles, over the {max} allowed")]
    OmmerCount { got: usize, max: usize },
    #[error("uncle {hash} is listed twice")]
    OmmerTwice { hash: B256 },
    #[error("uncle {hash} is an uncle of an ancestor already")]
    OmmerUsed { hash: B256 },
    #[error("uncle {hash} is an ancestor")]
    OmmerIsAncestor { hash: B256 },
    #[error("uncle {hash} has parent {parent}, which is none of the ancestors from 2 to 7 back")]
    OmmerParent { hash: B256, parent: B256 },
    #[error("uncle {hash}: {error}")]
    OmmerHeader { hash: B256, error: HeaderError },
    #[error("blockAccessListHash is {got}, the access list's is {expected}")]
    AccessListHash { got: B256, expected: B256 },
    #[error("access list: {0}")]
    AccessList(#[from] AccessListError),
}

/// Checks that a block has no more bytes and transactions than are allowed, and than its gas limit
/// can pay for, before any of it but its header is decoded: so the gas limit bounds what decoding
/// takes.
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
    // What can't be counted can't be decoded either.
    let got = count_transactions(rlp).unwrap_or(0);
    let max = header.gas_limit / GAS_PER_TRANSACTION_MIN;
    if got as u64 > max {
        return Err(BodyError::UnpaidTransactions { got, max });
    }
    Ok(())
}

/// Items in the second list of a block's RLP.
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

/// Checks that the body is the one that the header names, and its size. Uncles themselves are
/// [`validate_ommers`]'s.
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

/// Decodes the access list that came with a block: it must be the one that the header names, in
/// canonical form, with no index that the block has not, and not larger than the gas limit allows.
/// Whether it is true is execution's to show. A block before Amsterdam names none, and its list is
/// of any size.
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

/// An earlier block, as far as uncles depend on it.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// Its hash.
    pub hash: B256,
    /// Its header.
    pub header: Header,
    /// The hashes of its uncles.
    pub ommers: Vec<B256>,
}

/// Checks a block's uncles: at most two, different, not used before, valid headers whose parents
/// are ancestors, but not themselves ancestors. `ancestors` are the block's, its parent first, at
/// least [`OMMER_ANCESTORS`] of them or all there are.
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

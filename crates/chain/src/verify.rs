//! Verification of an outcome against the block's header.

use alloy_consensus::{Header, proofs::calculate_receipt_root};
use alloy_primitives::{B256, Bloom, keccak256};
use cambium_evm::Outcome;
use cambium_primitives::{AccessList, AccessListDifference, AccessListLimits};

/// A field of the header, or the block's access list, differs from the result of execution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum VerifyError {
    #[error("gasUsed is {got} in the header, {expected} by execution")]
    GasUsed { got: u64, expected: u64 },
    #[error("blobGasUsed is {got} in the header, {expected} by execution")]
    BlobGasUsed { got: u64, expected: u64 },
    #[error("logsBloom hashes to {got} in the header, {expected} by execution")]
    LogsBloom { got: B256, expected: B256 },
    #[error("receiptsRoot is {got} in the header, {expected} by execution")]
    ReceiptsRoot { got: B256, expected: B256 },
    #[error("requestsHash is {got} in the header, {expected} by execution")]
    RequestsHash { got: B256, expected: B256 },
    #[error("blockAccessListHash is {got} in the header, {expected} by execution")]
    BlockAccessListHash { got: B256, expected: B256 },
    #[error("execution touches {items} accounts and slots, but the gas limit allows {max}")]
    BlockAccessListItems { items: u64, max: u64 },
    #[error("access list: {0}")]
    AccessList(Box<AccessListDifference>),
    #[error("execution did not record the access list")]
    NoAccessList,
    #[error("stateRoot is {got} in the header, {expected} by execution")]
    StateRoot { got: B256, expected: B256 },
}

/// Parts of an outcome that [`verify_outcome`] has verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the receipts root may be unverified"]
pub struct VerifiedOutcome {
    /// Whether the receipts root was verified. False before Byzantium if execution could not
    /// compute the state roots in receipts.
    pub receipts_root: bool,
}

/// Verifies an outcome, without the state root, against the block's header, and its access list
/// against `given`, the list that came with the block. `given` must have been validated by
/// [`validate_access_list`](crate::validate_access_list), which compares its hash with the header.
///
/// # Errors
///
/// If something differs: the first difference found.
pub fn verify_outcome(
    header: &Header,
    outcome: &Outcome,
    given: Option<&AccessList>,
) -> Result<VerifiedOutcome, VerifyError> {
    if let Some(given) = given {
        compare_access_lists(outcome.access_list.as_ref(), given)?;
    }
    let (got, expected) = (header.gas_used, outcome.gas_used);
    if got != expected {
        return Err(VerifyError::GasUsed { got, expected });
    }
    if let Some(got) = header.blob_gas_used
        && got != outcome.blob_gas_used
    {
        return Err(VerifyError::BlobGasUsed {
            got,
            expected: outcome.blob_gas_used,
        });
    }
    verify_bloom(header.logs_bloom, outcome.logs_bloom())?;
    if outcome.receipts_complete {
        let (got, expected) = (
            header.receipts_root,
            calculate_receipt_root(&outcome.receipts),
        );
        if got != expected {
            return Err(VerifyError::ReceiptsRoot { got, expected });
        }
    }
    if let Some(got) = header.requests_hash {
        let expected = outcome.requests.requests_hash();
        if got != expected {
            return Err(VerifyError::RequestsHash { got, expected });
        }
    }
    // A given list is known to have this hash, and to equal the outcome's.
    if given.is_none()
        && let Some(got) = header.block_access_list_hash
    {
        verify_access_list_hash(header, outcome.access_list.as_ref(), got)?;
    }
    Ok(VerifiedOutcome {
        receipts_root: outcome.receipts_complete,
    })
}

/// Compared first: where execution relies on the list, a wrong list causes all other differences.
fn compare_access_lists(
    expected: Option<&AccessList>,
    given: &AccessList,
) -> Result<(), VerifyError> {
    let expected = expected.ok_or(VerifyError::NoAccessList)?;
    match expected.first_difference(given) {
        Some(difference) => Err(VerifyError::AccessList(Box::new(difference))),
        None => Ok(()),
    }
}

/// Compared last: a different hash does not show what is wrong.
fn verify_access_list_hash(
    header: &Header,
    list: Option<&AccessList>,
    got: B256,
) -> Result<(), VerifyError> {
    let list = list.ok_or(VerifyError::NoAccessList)?;
    let items = list.counts().items();
    let max = AccessListLimits::of_block(0, header.gas_limit).items_max;
    if items > max {
        return Err(VerifyError::BlockAccessListItems { items, max });
    }
    let expected = list.hash();
    if got != expected {
        return Err(VerifyError::BlockAccessListHash { got, expected });
    }
    Ok(())
}

fn verify_bloom(got: Bloom, expected: Bloom) -> Result<(), VerifyError> {
    if got == expected {
        return Ok(());
    }
    Err(VerifyError::LogsBloom {
        got: keccak256(got),
        expected: keccak256(expected),
    })
}

/// Verifies the state root after a block against its header.
///
/// # Errors
///
/// If the roots differ.
pub fn verify_state_root(header: &Header, expected: B256) -> Result<(), VerifyError> {
    let got = header.state_root;
    if got != expected {
        return Err(VerifyError::StateRoot { got, expected });
    }
    Ok(())
}

//! Who signed each transaction.

use crate::Transaction;
use alloy_consensus::transaction::SignerRecoverable;
use alloy_primitives::Address;
use rayon::prelude::*;

/// A transaction whose signature is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transaction {index} has an invalid signature")]
pub struct SignatureError {
    /// Its place in the block.
    pub index: usize,
}

/// Transactions worth handing to another thread together: recovery takes some 30 us each.
const BATCH: usize = 4;

/// Recovers all senders in parallel. From Homestead on a signature's `s` must be in the lower
/// half (EIP-2): `homestead` says whether to demand it.
pub fn recover_senders(
    transactions: &[Transaction],
    homestead: bool,
) -> Result<Vec<Address>, SignatureError> {
    transactions
        .par_iter()
        .with_min_len(BATCH)
        .enumerate()
        .map(|(index, transaction)| {
            let sender = match homestead {
                true => transaction.recover_signer(),
                false => transaction.recover_signer_unchecked(),
            };
            sender.map_err(|_| SignatureError { index })
        })
        .collect()
}

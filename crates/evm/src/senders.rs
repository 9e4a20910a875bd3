//! Recovery of senders from signatures.

use crate::{Transaction, helpers::HELPERS};
use alloy_consensus::transaction::SignerRecoverable;
use alloy_primitives::Address;
use cambium_crew::threads;
use std::convert::Infallible;

/// No sender can be recovered from a transaction's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transaction {index} has an invalid signature")]
pub struct SignatureError {
    /// Index of the transaction in the block, from 0.
    pub index: usize,
}

/// Number of transactions that a thread takes at once: recovery takes about 30 us each.
const BATCH: usize = 4;

/// Recovers the sender of the transaction with index `index`. `homestead` requires the `s` of its signature to be in the lower half
/// of the curve's order (EIP-2).
///
/// # Errors
///
/// If the signature is invalid.
pub fn recover_sender(
    index: usize,
    transaction: &Transaction,
    homestead: bool,
) -> Result<Address, SignatureError> {
    let sender = match homestead {
        true => transaction.recover_signer(),
        false => transaction.recover_signer_unchecked(),
    };
    sender.map_err(|_| SignatureError { index })
}

/// Recovers the senders of some of a block's transactions on this thread, the first of which has the index `first`, as
/// [`recover_sender`].
///
/// # Errors
///
/// For the first signature that is invalid.
pub fn recover_part(
    first: usize,
    transactions: &[Transaction],
    homestead: bool,
) -> Result<Vec<Address>, SignatureError> {
    let numbered = transactions.iter().enumerate();
    numbered
        .map(|(index, transaction)| recover_sender(first + index, transaction, homestead))
        .collect()
}

/// Recovers the senders of all transactions in parallel, in order, as [`recover_sender`].
///
/// # Errors
///
/// For the first signature that is invalid.
pub fn recover_senders(
    transactions: &[Transaction],
    homestead: bool,
) -> Result<Vec<Address>, SignatureError> {
    let parts = transactions.chunks(BATCH).enumerate().collect();
    let recovered = HELPERS.each(threads() - 1, parts, |(part, transactions)| {
        // A result, so that the first error in order counts and not the first in time.
        Ok::<_, Infallible>(recover_part(part * BATCH, transactions, homestead))
    });
    let mut senders = Vec::with_capacity(transactions.len());
    for part in recovered.unwrap_or_else(|never| match never {}) {
        senders.extend(part?);
    }
    Ok(senders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_consensus::{SignableTransaction, TxLegacy};
    use alloy_primitives::{Signature, U256, uint};
    use secp256k1::{Message, SECP256K1, SecretKey};

    /// The order of the curve.
    const ORDER: U256 =
        uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

    fn signed(key: u8, nonce: u64) -> Transaction {
        let legacy = TxLegacy {
            nonce,
            ..TxLegacy::default()
        };
        let message = Message::from_digest(legacy.signature_hash().0);
        let key = SecretKey::from_byte_array([key; 32]).unwrap();
        let (id, bytes) = SECP256K1
            .sign_ecdsa_recoverable(message, &key)
            .serialize_compact();
        let signature = Signature::from_bytes_and_parity(&bytes, i32::from(id) == 1);
        legacy.into_signed(signature).into()
    }

    /// The same signature with `s` in the upper half.
    fn malleated(transaction: &Transaction) -> Transaction {
        let Transaction::Legacy(legacy) = transaction else {
            panic!("not a legacy transaction")
        };
        let old = legacy.signature();
        let new = Signature::new(old.r(), ORDER - old.s(), !old.v());
        legacy.tx().clone().into_signed(new).into()
    }

    #[test]
    fn senders_come_in_the_order_of_their_transactions() {
        let transactions: Vec<_> = (1..=40).map(|key| signed(key, key.into())).collect();
        let senders = recover_senders(&transactions, true).unwrap();
        let one_by_one: Vec<_> = transactions
            .iter()
            .map(|one| one.recover_signer().unwrap())
            .collect();
        assert_eq!(senders, one_by_one);
        let same_key = recover_senders(&[signed(7, 0), signed(7, 1)], true).unwrap();
        assert_eq!(same_key, [senders[6]; 2]);
    }

    #[test]
    fn a_high_s_is_refused_from_homestead_on() {
        let good = signed(1, 0);
        let transactions = [good.clone(), malleated(&good)];
        let sender = recover_senders(&transactions[..1], true).unwrap()[0];
        assert_eq!(recover_senders(&transactions, false), Ok(vec![sender; 2]));
        assert_eq!(
            recover_senders(&transactions, true),
            Err(SignatureError { index: 1 })
        );
    }
}

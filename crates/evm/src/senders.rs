//! Recovery of senders from signatures.

use crate::Transaction;
use alloy_consensus::transaction::SignerRecoverable;
use alloy_primitives::Address;
use rayon::prelude::*;

/// No sender can be recovered from a transaction's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transaction {index} has an invalid signature")]
pub struct SignatureError {
    /// Index of the transaction in the block, from 0.
    pub index: usize,
}

/// Minimum number of transactions per task: recovery takes about 30 us each.
const BATCH: usize = 4;

/// Recovers the senders of all transactions in parallel, in order. `homestead` requires the `s` of
/// each signature to be in the lower half of the curve's order (EIP-2).
///
/// # Errors
///
/// If a signature is invalid.
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

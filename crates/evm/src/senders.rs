//! Recovery of senders from signatures.

use crate::{Transaction, helpers::HELPERS};
use alloy_consensus::transaction::SignerRecoverable;
use alloy_primitives::Address;
use cambium_crew::{Helpers, threads};
use std::{
    convert::Infallible,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

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

/// The senders of a block's transactions, which are recovered while the block is executed: a block that comes alone does not wait for
/// all signatures before its first transaction runs.
#[derive(Debug)]
pub struct RecoveredMeanwhile<'a> {
    transactions: &'a [Transaction],
    homestead: bool,
    /// Senders of [`BATCH`] transactions each.
    parts: Vec<OnceLock<Result<Vec<Address>, SignatureError>>>,
    /// The next part that nobody has taken.
    next: AtomicUsize,
}

impl<'a> RecoveredMeanwhile<'a> {
    /// None of them recovered yet. `homestead` is that of [`recover_sender`].
    pub fn new(transactions: &'a [Transaction], homestead: bool) -> Self {
        let parts = transactions.len().div_ceil(BATCH);
        Self {
            transactions,
            homestead,
            parts: (0..parts).map(|_| OnceLock::new()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Number of the block's transactions, each of which has a sender.
    pub const fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Whether there are no transactions.
    pub const fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// The sender of a transaction. While a helper is at it, this thread recovers others, rather than to sleep for a moment each time
    /// that it has come up with the helpers.
    ///
    /// # Errors
    ///
    /// If its signature is invalid, or that of one of the next few transactions.
    ///
    /// # Panics
    ///
    /// If there is no such transaction.
    pub fn sender(&self, index: usize) -> Result<Address, SignatureError> {
        let wanted = &self.parts[index / BATCH];
        while wanted.get().is_none() && self.recover_next() {}
        let part = self.part(index / BATCH).as_ref();
        part.map(|senders| senders[index % BATCH])
            .map_err(|error| *error)
    }

    /// Recovers all that are left.
    ///
    /// # Errors
    ///
    /// For the first signature that is invalid.
    pub fn check(&self) -> Result<(), SignatureError> {
        self.during(|| {
            let mut parts = (0..self.parts.len()).map(|part| self.part(part));
            parts.try_for_each(|part| part.as_ref().map(|_| ()).map_err(|error| *error))
        })
    }

    /// Runs `execute` on this thread, while helpers recover senders on others, the first ones first.
    pub fn during<R>(&self, execute: impl FnOnce() -> R) -> R {
        let helpers = (threads() - 1).min(self.parts.len());
        let help = |_: &Helpers<'_>| while self.recover_next() {};
        HELPERS.lead(&help, |others| {
            others.call(helpers);
            let result = execute();
            // Nobody begins with what is left.
            self.next.store(self.parts.len(), Ordering::Relaxed);
            result
        })
    }

    /// Recovers the senders of the next part that nobody has taken; false if there is none.
    fn recover_next(&self) -> bool {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let is_left = next < self.parts.len();
        if is_left {
            self.part(next);
        }
        is_left
    }

    /// Waits for another thread that is at it.
    fn part(&self, part: usize) -> &Result<Vec<Address>, SignatureError> {
        self.parts[part].get_or_init(|| {
            let first = part * BATCH;
            let end = self.transactions.len().min(first + BATCH);
            recover_part(first, &self.transactions[first..end], self.homestead)
        })
    }
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
    #[test]
    fn senders_are_recovered_by_whoever_needs_them_first() {
        let mut transactions: Vec<_> = (1..=41).map(|key| signed(key, key.into())).collect();
        let senders = recover_senders(&transactions, true).unwrap();
        let meanwhile = RecoveredMeanwhile::new(&transactions, true);
        // Without helpers, and from both ends at once.
        assert_eq!(meanwhile.sender(40), Ok(senders[40]));
        let found = meanwhile.during(|| {
            let all = (0..41).map(|index| meanwhile.sender(index));
            all.collect::<Result<Vec<_>, _>>()
        });
        assert_eq!(found, Ok(senders));
        assert_eq!(meanwhile.check(), Ok(()));

        for index in [30, 9] {
            transactions[index] = malleated(&transactions[index]);
        }
        let meanwhile = RecoveredMeanwhile::new(&transactions, true);
        assert!(meanwhile.during(|| meanwhile.sender(0)).is_ok());
        assert_eq!(meanwhile.check(), Err(SignatureError { index: 9 }));
        assert_eq!(meanwhile.sender(30), Err(SignatureError { index: 30 }));
        let none = RecoveredMeanwhile::new(&[], true);
        assert!(none.is_empty());
        assert_eq!(none.check(), Ok(()));
    }
}

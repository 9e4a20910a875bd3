//! Transactions with signatures.

use alloy_consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{Address, Bytes, Signature, TxKind, U256};
use cambium_workload::Workload;
use secp256k1::{Message, SECP256K1, SecretKey};

pub const GWEI: u128 = 1_000_000_000;

/// The signature of a sender of a workload.
pub fn sign(workload: &Workload, sender: u64, hash: [u8; 32]) -> Signature {
    let secret = workload.secret(sender).unwrap();
    let secret = SecretKey::from_byte_array(secret.0).unwrap();
    let message = Message::from_digest(hash);
    let signed = SECP256K1.sign_ecdsa_recoverable(message, &secret);
    let (id, bytes) = signed.serialize_compact();
    Signature::from_bytes_and_parity(&bytes, i32::from(id) == 1)
}

/// A payment.
pub fn payment(workload: &Workload) -> TxEip1559 {
    TxEip1559 {
        chain_id: workload.params().spec().chain_id,
        nonce: 0,
        gas_limit: 21_000,
        max_fee_per_gas: 100 * GWEI,
        max_priority_fee_per_gas: GWEI,
        to: TxKind::Call(Address::repeat_byte(0x77)),
        value: U256::ONE,
        access_list: Default::default(),
        input: Bytes::new(),
    }
}

/// A signed payment, encoded.
pub fn signed(workload: &Workload, sender: u64, payment: TxEip1559) -> Bytes {
    let signature = sign(workload, sender, payment.signature_hash().0);
    TxEnvelope::from(payment.into_signed(signature))
        .encoded_2718()
        .into()
}

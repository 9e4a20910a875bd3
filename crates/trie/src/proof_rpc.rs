//! Proofs of accounts in the type that alloy has for the responses of `eth_getProof`.

use crate::proof::{AccountProof, StorageKey, StorageProof};
use alloy_primitives::{B256, U256};
use alloy_rpc_types_eth::{EIP1186AccountProofResponse, EIP1186StorageProof};
use alloy_serde::JsonStorageKey;

impl From<StorageKey> for JsonStorageKey {
    fn from(key: StorageKey) -> Self {
        match key.quantity {
            true => Self::Number(U256::from_be_bytes(key.slot.0)),
            false => Self::Hash(key.slot),
        }
    }
}

impl From<JsonStorageKey> for StorageKey {
    fn from(key: JsonStorageKey) -> Self {
        match key {
            JsonStorageKey::Hash(slot) => slot.into(),
            JsonStorageKey::Number(number) => Self {
                slot: B256::from(number),
                quantity: true,
            },
        }
    }
}

impl From<AccountProof> for EIP1186AccountProofResponse {
    fn from(proof: AccountProof) -> Self {
        let AccountProof {
            address,
            account_proof,
            balance,
            code_hash,
            nonce,
            storage_hash,
            storage_proof,
        } = proof;
        let storage_proof = storage_proof.into_iter().map(|slot| EIP1186StorageProof {
            key: slot.key.into(),
            value: slot.value,
            proof: slot.proof,
        });
        Self {
            address,
            balance,
            code_hash,
            nonce,
            storage_hash,
            account_proof,
            storage_proof: storage_proof.collect(),
        }
    }
}

/// Converts the answer of another node, to be verified by
/// [`verify_account_proof`](crate::verify_account_proof).
impl From<EIP1186AccountProofResponse> for AccountProof {
    fn from(proof: EIP1186AccountProofResponse) -> Self {
        let EIP1186AccountProofResponse {
            address,
            balance,
            code_hash,
            nonce,
            storage_hash,
            account_proof,
            storage_proof,
        } = proof;
        let storage_proof = storage_proof.into_iter().map(|slot| StorageProof {
            key: slot.key.into(),
            value: slot.value,
            proof: slot.proof,
        });
        Self {
            address,
            account_proof,
            balance,
            code_hash,
            nonce,
            storage_hash,
            storage_proof: storage_proof.collect(),
        }
    }
}

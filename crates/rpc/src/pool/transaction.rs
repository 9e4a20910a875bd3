//! Transactions as they are sent: canonical bytes, or with the sidecar of their blobs.

use crate::error::RpcError;
use alloy_consensus::{EthereumTxEnvelope, Signed, Transaction as _, TxEip4844WithSidecar};
use alloy_eips::{
    eip2718::{Decodable2718, Encodable2718},
    eip7594::BlobTransactionSidecarVariant,
};
use alloy_primitives::{Address, B256, U256};
use cambium_chain::{Transaction, recover_sender};
use std::time::Instant;

type WithSidecar = EthereumTxEnvelope<TxEip4844WithSidecar<BlobTransactionSidecarVariant>>;

/// A transaction of the pool.
#[derive(Debug)]
pub(crate) struct PooledTransaction {
    pub(crate) transaction: Transaction,
    pub(crate) sender: Address,
    /// `None` without blobs.
    pub(crate) sidecar: Option<BlobTransactionSidecarVariant>,
    /// Bytes in memory, roughly.
    pub(super) bytes: usize,
    pub(super) since: Instant,
}

impl PooledTransaction {
    /// Decodes a transaction and recovers its sender. One with blobs comes with their sidecar.
    pub(crate) fn decode(raw: &[u8]) -> Result<Self, RpcError> {
        let decoded = WithSidecar::decode_2718_exact(raw).map_err(|error| {
            let is_bare = Transaction::decode_2718_exact(raw).is_ok();
            RpcError::server(match is_bare {
                true => "missing sidecar in blob transaction".to_owned(),
                false => format!("the transaction can't be decoded: {error}"),
            })
        })?;
        let (transaction, sidecar) = match decoded {
            EthereumTxEnvelope::Legacy(own) => (Transaction::Legacy(own), None),
            EthereumTxEnvelope::Eip2930(own) => (Transaction::Eip2930(own), None),
            EthereumTxEnvelope::Eip1559(own) => (Transaction::Eip1559(own), None),
            EthereumTxEnvelope::Eip7702(own) => (Transaction::Eip7702(own), None),
            EthereumTxEnvelope::Eip4844(own) => {
                let (with_sidecar, signature, _) = own.into_parts();
                let (own, sidecar) = with_sidecar.into_parts();
                let own = Signed::new_unhashed(own, signature);
                (Transaction::Eip4844(own), Some(sidecar))
            }
        };
        Self::new(transaction, sidecar)
    }

    /// A transaction without blobs, or with their sidecar.
    pub(super) fn new(
        transaction: Transaction,
        sidecar: Option<BlobTransactionSidecarVariant>,
    ) -> Result<Self, RpcError> {
        let sender = recover_sender(0, &transaction, true)
            .map_err(|_| RpcError::server("invalid sender: the signature is invalid"))?;
        let of_sidecar = sidecar
            .as_ref()
            .map_or(0, BlobTransactionSidecarVariant::size);
        Ok(Self {
            bytes: transaction.encode_2718_len() + of_sidecar,
            transaction,
            sender,
            sidecar,
            since: Instant::now(),
        })
    }

    pub(crate) fn hash(&self) -> B256 {
        *self.transaction.tx_hash()
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.transaction.nonce()
    }

    /// What the sender pays at most, in wei.
    pub(super) fn cost(&self) -> U256 {
        let own = &self.transaction;
        let paid = |units: u64, price: u128| U256::from(units).saturating_mul(U256::from(price));
        let gas = paid(own.gas_limit(), own.max_fee_per_gas());
        let blobs = paid(
            own.blob_gas_used().unwrap_or(0),
            own.max_fee_per_blob_gas().unwrap_or(0),
        );
        gas.saturating_add(blobs).saturating_add(own.value())
    }

    /// Whether the fees are by this many percent higher than those of another transaction.
    pub(super) fn outbids(&self, other: &Self, percent: u8) -> bool {
        let is_higher = |new: u128, old: u128| {
            let wanted = U256::from(old) * U256::from(100 + u16::from(percent));
            new > old && U256::from(new) * U256::from(100) >= wanted
        };
        let tip = |of: &Self| {
            let own = &of.transaction;
            own.max_priority_fee_per_gas()
                .unwrap_or_else(|| own.max_fee_per_gas())
        };
        let (new, old) = (&self.transaction, &other.transaction);
        let blobs = match (new.max_fee_per_blob_gas(), old.max_fee_per_blob_gas()) {
            (Some(new), Some(old)) => is_higher(new, old),
            _ => true,
        };
        let fee = is_higher(new.max_fee_per_gas(), old.max_fee_per_gas());
        fee && blobs && is_higher(tip(self), tip(other))
    }
}

//! What a transaction has to be to become part of the next block, whatever the state is.

use super::{limits::PoolLimits, transaction::PooledTransaction};
use crate::error::RpcError;
use alloy_consensus::Transaction as _;
use alloy_eips::{
    eip2718::Encodable2718,
    eip7594::{BlobTransactionSidecarVariant, CELLS_PER_EXT_BLOB},
};
use cambium_chain::{DraftAttributes, Fork, block_env, config_env, transaction_env};
use cambium_node::{BlockRef, Node};
use revm::{
    Context, MainContext,
    context::{BlockEnv, Cfg, CfgEnv, result::InvalidTransaction},
    context_interface::block::BlobExcessGasAndPrice,
    handler::validation,
    primitives::hardfork::SpecId,
};

/// The rules of the block after the head.
pub(super) struct NextRules {
    cfg: CfgEnv,
    block: BlockEnv,
    /// Whether blobs have cell proofs.
    has_cell_proofs: bool,
}

impl NextRules {
    pub(super) fn of(node: &Node) -> Result<Self, RpcError> {
        let head = node.block(BlockRef::Latest)?;
        let spec = node.chain()?.spec();
        let parent = &head.block.header;
        let attributes = DraftAttributes {
            timestamp: parent.timestamp.saturating_add(1),
            gas_limit: parent.gas_limit,
            ..DraftAttributes::default()
        };
        let next = spec.draft(parent, head.id.hash, &attributes).header;
        let is_merged = spec.is_post_merge(next.number, head.total_difficulty);
        let rules = spec.rules_at(next.number, next.timestamp, is_merged);
        let mut cfg = config_env(&rules, next.gas_limit);
        // Fees change from block to block: what is too low now may wait.
        cfg.disable_base_fee = true;
        // From Amsterdam on a part of the gas is not the block's.
        cfg.disable_block_gas_limit = rules.is(SpecId::AMSTERDAM);
        let mut block = block_env(&next, &rules);
        block.blob_excess_gas_and_price = Some(BlobExcessGasAndPrice {
            excess_blob_gas: 0,
            blob_gasprice: 1,
        });
        let fork = spec.fork_at(next.number, next.timestamp, is_merged);
        Ok(Self {
            cfg,
            block,
            has_cell_proofs: fork >= Fork::Osaka,
        })
    }

    pub(super) fn check(
        &self,
        new: &PooledTransaction,
        limits: &PoolLimits,
    ) -> Result<(), RpcError> {
        let own = &new.transaction;
        let (bytes, most) = (own.encode_2718_len(), limits.transaction_bytes);
        if bytes > most {
            return Err(RpcError::server(format!(
                "oversized data: transaction size {bytes}, limit {most}"
            )));
        }
        if own.chain_id().is_none() {
            return Err(RpcError::server(
                "only replay-protected (EIP-155) transactions allowed over RPC",
            ));
        }
        let mut context = Context::mainnet()
            .with_cfg(self.cfg.clone())
            .with_block(self.block.clone())
            .with_tx(transaction_env(own, new.sender));
        let cfg = &self.cfg;
        validation::validate_tx_env(&mut context, cfg.spec).map_err(invalid)?;
        validation::validate_initial_tx_gas_with_gas_params(
            &context.tx,
            cfg.spec,
            cfg.gas_params(),
            cfg.is_eip7623_disabled(),
            cfg.is_amsterdam_eip8037_enabled(),
            cfg.tx_gas_limit_cap(),
            None,
        )
        .map_err(invalid)?;
        match (&new.sidecar, own.blob_versioned_hashes()) {
            (Some(sidecar), Some(hashes)) => self.check_sidecar(sidecar, hashes),
            (None, None) => Ok(()),
            _ => Err(RpcError::server("missing sidecar in blob transaction")),
        }
    }

    /// Compares a sidecar with the hashes that the transaction commits to. That the proofs are those of the blobs is not checked: there is
    /// no KZG here, and a consensus client checks it before it takes them.
    fn check_sidecar(
        &self,
        sidecar: &BlobTransactionSidecarVariant,
        hashes: &[alloy_primitives::B256],
    ) -> Result<(), RpcError> {
        let (proofs, wanted) = match sidecar {
            BlobTransactionSidecarVariant::Eip4844(own) => (own.proofs.len(), hashes.len()),
            BlobTransactionSidecarVariant::Eip7594(own) => {
                (own.cell_proofs.len(), hashes.len() * CELLS_PER_EXT_BLOB)
            }
        };
        if sidecar.is_eip7594() != self.has_cell_proofs {
            return Err(RpcError::server(match self.has_cell_proofs {
                true => {
                    "the sidecar has proofs of whole blobs: from Osaka on it has those of cells"
                }
                false => {
                    "the sidecar has proofs of cells: before Osaka it has those of whole blobs"
                }
            }));
        }
        let blobs = sidecar.blobs().len();
        if blobs != hashes.len() || proofs != wanted {
            return Err(RpcError::server(format!(
                "invalid number of {blobs} blobs and {proofs} proofs compared to {} blob hashes",
                hashes.len()
            )));
        }
        match sidecar.versioned_hashes().eq(hashes.iter().copied()) {
            true => Ok(()),
            false => Err(RpcError::server(
                "blob hash mismatch: a commitment has another hash",
            )),
        }
    }
}

fn invalid(error: InvalidTransaction) -> RpcError {
    RpcError::server(match error {
        InvalidTransaction::CallGasCostMoreThanGasLimit {
            initial_gas,
            gas_limit,
        } => format!("intrinsic gas too low: gas {gas_limit}, minimum needed {initial_gas}"),
        InvalidTransaction::CallerGasLimitMoreThanBlock => "exceeds block gas limit".to_owned(),
        InvalidTransaction::InvalidChainId => "invalid chain id for signer".to_owned(),
        InvalidTransaction::PriorityFeeGreaterThanMaxFee => {
            "max priority fee per gas higher than max fee per gas".to_owned()
        }
        error => error.to_string(),
    })
}

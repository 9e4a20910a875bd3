//! Block and transaction as the EVM gets them.

use super::precompiles::CallPrecompiles;
use crate::error::RpcError;
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, TxKind, U256};
use alloy_rpc_types_eth::{BlockOverrides, TransactionRequest};
use cambium_chain::{ChainSpec, Rules, block_env, config_env};
use revm::{
    context::{BlockEnv, CfgEnv, TxEnv},
    context_interface::{block::BlobExcessGasAndPrice, either::Either},
    primitives::hardfork::SpecId,
};
use std::collections::BTreeMap;

/// Where calls run: the rules of a block, and its values.
#[derive(Clone, Debug)]
pub(crate) struct CallEnv {
    pub(crate) rules: Rules,
    pub(crate) cfg: CfgEnv,
    pub(crate) block: BlockEnv,
    pub(crate) precompiles: CallPrecompiles,
}

/// The input of a request whose fields do not contradict each other.
pub(crate) fn checked_input(
    request: &TransactionRequest,
    chain_id: u64,
) -> Result<Bytes, RpcError> {
    if request.gas_price.is_some()
        && (request.max_fee_per_gas.is_some() || request.max_priority_fee_per_gas.is_some())
    {
        return Err(RpcError::params(
            "both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified",
        ));
    }
    if let (Some(fee), Some(tip)) = (request.max_fee_per_gas, request.max_priority_fee_per_gas)
        && tip > fee
    {
        return Err(RpcError::params(format!(
            "maxFeePerGas ({fee}) < maxPriorityFeePerGas ({tip})"
        )));
    }
    if let Some(id) = request.chain_id
        && id != chain_id
    {
        return Err(RpcError::server(format!(
            "chainId does not match node's (have={id}, want={chain_id})"
        )));
    }
    let blobs = request.blob_versioned_hashes.as_ref().map_or(0, Vec::len);
    let authorizations = request.authorization_list.as_ref().map_or(0, Vec::len);
    let creates = request.to.unwrap_or(TxKind::Create).is_create();
    if creates && blobs + authorizations > 0 {
        return Err(RpcError::params(
            "a transaction with blobs or authorizations creates no contract",
        ));
    }
    let (input, data) = (&request.input.input, &request.input.data);
    if let (Some(input), Some(data)) = (input, data)
        && input != data
    {
        return Err(RpcError::params(
            "both \"data\" and \"input\" are set and not equal: \"input\" is the one to use",
        ));
    }
    Ok(input
        .as_ref()
        .or(data.as_ref())
        .cloned()
        .unwrap_or_default())
}

/// The rules of a block with this header.
pub(crate) fn rules_of(spec: &ChainSpec, header: &Header) -> Rules {
    let is_merged = header.difficulty.is_zero() && header.number > 0
        || spec.terminal_total_difficulty == Some(U256::ZERO);
    spec.rules_at(header.number, header.timestamp, is_merged)
}

impl CallEnv {
    /// The block with this header. Calls need no nonce, no sender without code, and no fee; their gas is limited by the caller
    /// of the EVM alone.
    pub(crate) fn new(spec: &ChainSpec, header: &Header) -> Self {
        let rules = rules_of(spec, header);
        let mut cfg = config_env(&rules, header.gas_limit);
        cfg.disable_nonce_check = true;
        cfg.disable_eip3607 = true;
        cfg.disable_base_fee = true;
        cfg.disable_block_gas_limit = true;
        cfg.tx_gas_limit_cap = Some(u64::MAX);
        Self {
            precompiles: CallPrecompiles::new(cfg.spec),
            cfg,
            block: block_env(header, &rules),
            rules,
        }
    }

    /// Takes the gas of transactions as blocks do. From Amsterdam on gas beyond the most of a transaction (EIP-7825) pays for state
    /// alone (EIP-8037).
    pub(crate) fn count_gas_as_blocks(&mut self) {
        if self.rules.is(SpecId::AMSTERDAM) {
            self.cfg.tx_gas_limit_cap = None;
        }
    }

    /// Sets values of the block that a caller wants to see. Returns hashes of blocks among them.
    pub(crate) fn change(&mut self, changes: BlockOverrides) -> BTreeMap<u64, B256> {
        let BlockOverrides {
            number,
            difficulty,
            time,
            gas_limit,
            coinbase,
            random,
            base_fee,
            blob_base_fee,
            block_hash,
            ..
        } = changes;
        let block = &mut self.block;
        if let Some(number) = number {
            block.number = number;
        }
        if let Some(difficulty) = difficulty {
            block.difficulty = difficulty;
        }
        if let Some(time) = time {
            block.timestamp = U256::from(time);
        }
        if let Some(gas_limit) = gas_limit {
            block.gas_limit = gas_limit;
        }
        if let Some(coinbase) = coinbase {
            block.beneficiary = coinbase;
        }
        if let Some(random) = random {
            block.prevrandao = Some(random);
        }
        if let Some(base_fee) = base_fee {
            block.basefee = base_fee.saturating_to();
        }
        if let Some(price) = blob_base_fee {
            let own = block.blob_excess_gas_and_price.take();
            block.blob_excess_gas_and_price = Some(BlobExcessGasAndPrice {
                excess_blob_gas: own.map_or(0, |own| own.excess_blob_gas),
                blob_gasprice: price.saturating_to(),
            });
        }
        block_hash.unwrap_or_default()
    }

    /// A call as the EVM gets it, with at most `gas_max`. Without a price, the block has no base fee for it.
    pub(crate) fn transaction(
        &mut self,
        request: &TransactionRequest,
        gas_max: u64,
    ) -> Result<TxEnv, RpcError> {
        let input = checked_input(request, self.cfg.chain_id)?;
        let price = request
            .gas_price
            .or(request.max_fee_per_gas)
            .or(request.max_priority_fee_per_gas)
            .unwrap_or_default();
        if price == 0 {
            self.block.basefee = 0;
        }
        let blobs = request.blob_versioned_hashes.clone().unwrap_or_default();
        let authorizations = request.authorization_list.clone().unwrap_or_default();
        let kind = request.to.unwrap_or(TxKind::Create);
        let tx_type = match () {
            () if !authorizations.is_empty() => 4,
            () if !blobs.is_empty() => 3,
            () if request.max_fee_per_gas.is_some()
                || request.max_priority_fee_per_gas.is_some() =>
            {
                2
            }
            () if request.access_list.is_some() => 1,
            () => 0,
        };
        if tx_type == 3
            && self.block.blob_excess_gas_and_price.is_some()
            && request.max_fee_per_blob_gas.is_none()
        {
            // Without a price for blobs they are free as well.
            self.block.blob_excess_gas_and_price = Some(BlobExcessGasAndPrice {
                excess_blob_gas: 0,
                blob_gasprice: 0,
            });
        }
        Ok(TxEnv {
            tx_type,
            caller: request.from.unwrap_or(Address::ZERO),
            gas_limit: request.gas.unwrap_or(gas_max).min(gas_max),
            gas_price: price,
            kind,
            value: request.value.unwrap_or_default(),
            data: input,
            nonce: request.nonce.unwrap_or_default(),
            chain_id: Some(self.cfg.chain_id),
            access_list: request.access_list.clone().unwrap_or_default(),
            gas_priority_fee: match tx_type >= 2 {
                true => Some(request.max_priority_fee_per_gas.unwrap_or_default()),
                false => None,
            },
            blob_hashes: blobs,
            max_fee_per_blob_gas: request.max_fee_per_blob_gas.unwrap_or_default(),
            authorization_list: authorizations.into_iter().map(Either::Left).collect(),
        })
    }
}

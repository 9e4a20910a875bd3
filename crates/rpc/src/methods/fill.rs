//! `eth_fillTransaction`: a transaction whose missing fields are filled in, to be signed and sent.

use super::{
    call::estimate_gas,
    fees::tip,
    objects::blob_fee,
    simulate::{Defaults, transaction},
};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_consensus::{Header, TxLegacy, transaction::RlpEcdsaEncodableTx};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{Address, Bytes, keccak256};
use alloy_rlp::EMPTY_STRING_CODE;
use alloy_rpc_types_eth::TransactionRequest;
use cambium_chain::Transaction;
use cambium_node::BlockRef;
use serde_json::{Value, json};

pub(super) fn add(methods: Methods) -> Methods {
    methods.with(
        "eth_fillTransaction(Transaction) -> Transaction result",
        Kind::Execution,
        fill,
    )
}

fn fill(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let mut request: TransactionRequest = params.required()?;
    params.end()?;
    if request.sidecar.is_some() {
        return Err(RpcError::params(
            "blobs are not taken, since there is no KZG library here: give their hashes as blobVersionedHashes",
        ));
    }
    let (head, header) = call.node.header(BlockRef::Latest)?;
    let spec = call.node.chain()?.spec();
    let fees_of_blobs = blob_fee(spec, &header);
    fill_fees(&mut request, &header, fees_of_blobs, || tip(call, head))?;
    let creates = request.to.is_none_or(|to| to.is_create());
    if creates && request.input.input().is_none_or(|input| input.is_empty()) {
        return Err(RpcError::server(
            "contract creation without any data provided",
        ));
    }
    let nonce = match request.nonce {
        Some(nonce) => nonce,
        None => next_nonce(call, request.from.unwrap_or_default())?,
    };
    let gas_limit = match request.gas {
        Some(gas) => gas,
        None => estimate_gas(call, request.clone())?,
    };
    let defaults = Defaults {
        chain_id: spec.chain_id,
        nonce,
        gas_limit,
        has_base_fee: header.base_fee_per_gas.is_some(),
    };
    reply.value(&unsigned(&transaction(request, &defaults)?)?)
}

/// The nonce after the transactions of a sender that are executed, or wait for it.
fn next_nonce(call: &Call<'_>, sender: Address) -> Result<u64, RpcError> {
    let waiting = match call.served.pool() {
        Some(pool) => pool.next_nonce(call.node, sender)?,
        None => None,
    };
    match waiting {
        Some(nonce) => Ok(nonce),
        None => {
            let state = call.node.state_at(BlockRef::Latest)?;
            Ok(state.account_at(sender)?.unwrap_or_default().nonce)
        }
    }
}

/// Fills in prices: the tip that is proposed, and twice the head's base fees.
fn fill_fees(
    request: &mut TransactionRequest,
    header: &Header,
    blob_fee: Option<u128>,
    tip: impl FnOnce() -> Result<u128, RpcError>,
) -> Result<(), RpcError> {
    if request.max_fee_per_blob_gas == Some(0) {
        return Err(RpcError::params(
            "maxFeePerBlobGas, if specified, must be non-zero",
        ));
    }
    if request.blob_versioned_hashes.is_some() && request.max_fee_per_blob_gas.is_none() {
        request.max_fee_per_blob_gas = blob_fee.map(|fee| fee.saturating_mul(2));
    }
    let has_two_prices =
        request.max_fee_per_gas.is_some() || request.max_priority_fee_per_gas.is_some();
    if request.gas_price.is_some() && has_two_prices {
        return Err(RpcError::params(
            "both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified",
        ));
    }
    if request.gas_price.is_some() && request.authorization_list.is_some() {
        return Err(RpcError::params(
            "both gasPrice and authorizationList specified",
        ));
    }
    let Some(base_fee) = header.base_fee_per_gas else {
        if has_two_prices {
            return Err(RpcError::params(
                "maxFeePerGas and maxPriorityFeePerGas are not valid before London is active",
            ));
        }
        if request.gas_price.is_none() {
            request.gas_price = Some(tip()?);
        }
        return Ok(());
    };
    if let Some(price) = request.gas_price {
        return match price {
            0 => Err(RpcError::params(
                "gasPrice must be non-zero after london fork",
            )),
            _ => Ok(()),
        };
    }
    if request.max_fee_per_gas == Some(0) {
        return Err(RpcError::params("maxFeePerGas must be non-zero"));
    }
    let own_tip = match request.max_priority_fee_per_gas {
        Some(own) => own,
        None => tip()?,
    };
    let fee = request
        .max_fee_per_gas
        .unwrap_or_else(|| own_tip.saturating_add(2 * u128::from(base_fee)));
    if fee < own_tip {
        return Err(RpcError::params(format!(
            "maxFeePerGas ({fee}) < maxPriorityFeePerGas ({own_tip})"
        )));
    }
    request.max_priority_fee_per_gas = Some(own_tip);
    request.max_fee_per_gas = Some(fee);
    Ok(())
}

/// A transaction without a signature, in the form of geth: the signature is zero.
fn unsigned(filled: &Transaction) -> Result<Value, RpcError> {
    let mut object = serde_json::to_value(filled).map_err(RpcError::internal)?;
    let raw: Bytes = match filled {
        Transaction::Legacy(own) => {
            let raw = unsigned_legacy(own.tx());
            object["v"] = json!("0x0");
            object["hash"] = json!(keccak256(&raw));
            raw.into()
        }
        own => own.encoded_2718().into(),
    };
    Ok(json!({ "raw": raw, "tx": object }))
}

/// RLP of a legacy transaction whose v is zero as well, which no signature has.
fn unsigned_legacy(own: &TxLegacy) -> Vec<u8> {
    const SIGNATURE: [u8; 3] = [EMPTY_STRING_CODE; 3];
    let payload_length = own.rlp_encoded_fields_length() + SIGNATURE.len();
    let mut raw = Vec::new();
    let list = alloy_rlp::Header {
        list: true,
        payload_length,
    };
    list.encode(&mut raw);
    own.rlp_encode_fields(&mut raw);
    raw.extend(SIGNATURE);
    raw
}

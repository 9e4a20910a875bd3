//! From a call to a transaction, and why it may not be one.

use super::super::call::{Failed, checked_input};
use crate::error::RpcError;
use alloy_consensus::{SignableTransaction, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy};
use alloy_primitives::{Address, Signature, TxKind, U256};
use alloy_rpc_types_eth::TransactionRequest;
use cambium_chain::Transaction;
use revm::context::result::{EVMError, InvalidTransaction};

/// What a request leaves to the block.
pub(crate) struct Defaults {
    pub(crate) chain_id: u64,
    pub(crate) nonce: u64,
    pub(crate) gas_limit: u64,
    /// Whether the block has a base fee, so that transactions have two prices.
    pub(crate) has_base_fee: bool,
}

/// The transaction of a request, with the signature of nobody.
pub(crate) fn transaction(
    request: TransactionRequest,
    defaults: &Defaults,
) -> Result<Transaction, RpcError> {
    let Defaults {
        chain_id,
        nonce,
        gas_limit,
        has_base_fee,
    } = *defaults;
    let input = checked_input(&request, chain_id)?;
    let signature = Signature::new(U256::ZERO, U256::ZERO, false);
    let kind = request.to.unwrap_or(TxKind::Create);
    let to = kind.to().copied().unwrap_or(Address::ZERO);
    let value = request.value.unwrap_or_default();
    let blobs = request.blob_versioned_hashes.unwrap_or_default();
    let authorizations = request.authorization_list.unwrap_or_default();
    let max_fee = request.gas_price.or(request.max_fee_per_gas);
    let max_fee = max_fee.unwrap_or_default();
    let max_tip = request.gas_price.or(request.max_priority_fee_per_gas);
    let max_tip = max_tip.unwrap_or_default();
    let has_two_prices = has_base_fee && request.gas_price.is_none();
    if !authorizations.is_empty() {
        let signed = TxEip7702 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: max_fee,
            max_priority_fee_per_gas: max_tip,
            to,
            value,
            access_list: request.access_list.unwrap_or_default(),
            authorization_list: authorizations,
            input,
        };
        return Ok(Transaction::Eip7702(signed.into_signed(signature)));
    }
    if !blobs.is_empty() {
        let signed = TxEip4844 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: max_fee,
            max_priority_fee_per_gas: max_tip,
            to,
            value,
            access_list: request.access_list.unwrap_or_default(),
            blob_versioned_hashes: blobs,
            max_fee_per_blob_gas: request.max_fee_per_blob_gas.unwrap_or_default(),
            input,
        };
        return Ok(Transaction::Eip4844(signed.into_signed(signature)));
    }
    Ok(match (request.access_list, has_two_prices) {
        (list, true) => {
            let signed = TxEip1559 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: max_tip,
                to: kind,
                value,
                access_list: list.unwrap_or_default(),
                input,
            };
            Transaction::Eip1559(signed.into_signed(signature))
        }
        (Some(access_list), false) => {
            let signed = TxEip2930 {
                chain_id,
                nonce,
                gas_price: max_fee,
                gas_limit,
                to: kind,
                value,
                access_list,
                input,
            };
            Transaction::Eip2930(signed.into_signed(signature))
        }
        (None, false) => {
            let signed = TxLegacy {
                chain_id: None,
                nonce,
                gas_price: max_fee,
                gas_limit,
                to: kind,
                value,
                input,
            };
            Transaction::Legacy(signed.into_signed(signature))
        }
    })
}

/// Compares a nonce with the sender's. This comes before all that the EVM checks.
pub(super) fn check_nonce(sender: Address, own: u64, state: u64) -> Result<(), RpcError> {
    let wrong = |code, what| {
        let what = format!("nonce {what}: address {sender}, tx: {own} state: {state}");
        Err(RpcError::new(code, what))
    };
    match own.cmp(&state) {
        std::cmp::Ordering::Less => wrong(RpcError::NONCE_TOO_LOW, "too low"),
        std::cmp::Ordering::Greater => wrong(RpcError::NONCE_TOO_HIGH, "too high"),
        std::cmp::Ordering::Equal if own == u64::MAX => wrong(RpcError::INTERNAL, "has max value"),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

/// The error of a call that is no transaction.
pub(super) fn invalid(error: Failed) -> RpcError {
    use InvalidTransaction as Invalid;
    let error = match error {
        EVMError::Database(error) => return error.into(),
        EVMError::Transaction(error) => error,
        error => return RpcError::internal(error),
    };
    let code = match &error {
        Invalid::NonceTooLow { .. } => RpcError::NONCE_TOO_LOW,
        Invalid::NonceTooHigh { .. } => RpcError::NONCE_TOO_HIGH,
        Invalid::GasPriceLessThanBasefee => RpcError::FEE_TOO_LOW,
        Invalid::CallGasCostMoreThanGasLimit { .. } | Invalid::GasFloorMoreThanGasLimit { .. } => {
            RpcError::INTRINSIC_GAS
        }
        Invalid::LackOfFundForMaxFee { .. } | Invalid::OverflowPaymentInTransaction => {
            RpcError::NO_FUNDS
        }
        Invalid::CallerGasLimitMoreThanBlock => RpcError::BLOCK_GAS,
        Invalid::RejectCallerWithCode => RpcError::SENDER_HAS_CODE,
        Invalid::CreateInitCodeSizeLimit => RpcError::INIT_CODE,
        Invalid::PriorityFeeGreaterThanMaxFee => RpcError::PARAMS,
        _ => RpcError::INTERNAL,
    };
    RpcError::new(code, format!("err: {error}"))
}

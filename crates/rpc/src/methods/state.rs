//! Accounts and slots after a block, and their proofs.

use super::{block_id, objects::Quantity};
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::BlockId;
use alloy_primitives::{Address, B256, Bytes, hex, keccak256, map::HashMap};
use cambium_history::StateAt;
use cambium_trie::StorageKey;
use revm::primitives::KECCAK_EMPTY;
use std::collections::BTreeMap;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_getBalance(Address, Block?) -> Balance",
            Kind::Value,
            |call, mut params, reply| {
                let address = params.required()?;
                let state = block_id::state(call, &mut params)?;
                let account = state.account_at(address)?.unwrap_or_default();
                reply.value(&account.balance)
            },
        )
        .with(
            "eth_getTransactionCount(Address, Block?) -> Account nonce",
            Kind::Value,
            |call, mut params, reply| {
                let address = params.required()?;
                let named = params.clone().optional::<BlockId>();
                let state = block_id::state(call, &mut params)?;
                let account = state.account_at(address)?.unwrap_or_default();
                let waiting = match (call.served.pool(), named) {
                    (Some(pool), Ok(Some(id))) if id.is_pending() => {
                        pool.next_nonce(call.node, address)?
                    }
                    _ => None,
                };
                reply.value(&Quantity::from(waiting.unwrap_or(account.nonce)))
            },
        )
        .with(
            "eth_getCode(Address, Block?) -> Bytecode",
            Kind::Value,
            |call, mut params, reply| {
                let address = params.required()?;
                let state = block_id::state(call, &mut params)?;
                let code = match state.account_at(address)? {
                    Some(account) if account.code_hash != KECCAK_EMPTY => {
                        state.code(&account.code_hash)?
                    }
                    _ => Bytes::new(),
                };
                reply.value(&code)
            },
        )
        .with(
            "eth_getStorageAt(Address, Storage slot, Block?) -> Value",
            Kind::Value,
            |call, mut params, reply| {
                let address = params.required()?;
                let slot = storage_key(&params.required::<String>()?)?;
                let state = block_id::state(call, &mut params)?;
                reply.value(&B256::from(state.slot_at(address, slot.slot.into())?))
            },
        )
        .with(
            "eth_getStorageValues(Requests, Block?) -> Values",
            Kind::Quick,
            storage_values,
        )
        .with(
            "eth_getProof(Address, StorageKeys?, Block?) -> Account",
            Kind::Proof,
            proof,
        )
        .with(
            "eth_getAccount(Address, Block?) -> Account",
            Kind::Proof,
            account,
        )
}

/// The key of a slot: up to 32 bytes in hex.
fn storage_key(text: &str) -> Result<StorageKey, RpcError> {
    let invalid = || RpcError::params(format!("invalid hex in storage key: {:?}", shortened(text)));
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = digits.unwrap_or(text);
    if digits.len() > 64 {
        return Err(RpcError::params(format!(
            "storage key too long (want at most 32 bytes): {:?}",
            shortened(text)
        )));
    }
    let mut key = [0; 32];
    let padded = format!("{digits:0>64}");
    hex::decode_to_slice(padded, &mut key).map_err(|_| invalid())?;
    Ok(StorageKey {
        slot: key.into(),
        quantity: digits.len() < 64,
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

fn storage_values(
    call: &Call<'_>,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let asked: HashMap<Address, Vec<String>> = params.required()?;
    let count = asked.values().map(Vec::len).sum::<usize>();
    if count == 0 {
        return Err(RpcError::params("empty request"));
    }
    let most = call.limits().proof_keys;
    if count > most {
        let what = format!("too many slots: {count}, {most} at most");
        return Err(RpcError::params(what));
    }
    let state = block_id::state(call, &mut params)?;
    let mut all = BTreeMap::new();
    for (address, slots) in asked {
        let values = slots.iter().map(|slot| {
            let slot = storage_key(slot)?;
            Ok(B256::from(state.slot_at(address, slot.slot.into())?))
        });
        all.insert(address, values.collect::<Result<Vec<_>, RpcError>>()?);
    }
    reply.value(&all)
}

fn proof(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let address = params.required()?;
    let slots: Vec<String> = params.optional()?.unwrap_or_default();
    let most = call.limits().proof_keys;
    if slots.len() > most {
        let what = format!("too many keys: {}, {most} at most", slots.len());
        return Err(RpcError::params(what));
    }
    let slots = slots.iter().map(|slot| storage_key(slot));
    let slots = slots.collect::<Result<Vec<_>, _>>()?;
    let state = provable(call, &mut params)?;
    let proof = state.prove_account(address, &slots)?;
    reply.value(&cambium_trie::EIP1186AccountProofResponse::from(proof))
}

/// The state after the block that the next parameter names, for proofs.
fn provable(call: &Call<'_>, params: &mut Params<'_>) -> Result<StateAt, RpcError> {
    let block = block_id::or_latest(call, params)?;
    params.end()?;
    Ok(call.node.provable_state_at(block)?)
}

/// An account with its storage root; null if there is none.
fn account(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let address: Address = params.required()?;
    let state = provable(call, &mut params)?;
    let Some(account) = state.account(&keccak256(address))? else {
        return reply.value(&());
    };
    let proof = state.prove_account(address, &[])?;
    reply.value(&alloy_rpc_types_eth::Account {
        nonce: account.nonce,
        balance: account.balance,
        code_hash: account.code_hash,
        storage_root: proof.storage_hash,
    })
}

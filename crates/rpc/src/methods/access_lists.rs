//! Access lists of blocks (EIP-7928), which are stored with the blocks.

use super::block_id;
use crate::{
    error::RpcError,
    limits::Kind,
    params::Params,
    reply::Reply,
    table::{Call, Methods},
};
use alloy_eips::BlockId;
use alloy_primitives::{Address, B256, Bytes, U64, U256, keccak256};
use cambium_chain::Block;
use cambium_node::BlockRef;
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BlockAccessIndex, SlotChanges,
};
use serde::Serialize;

/// RLP of a list without accounts: that of a genesis block is not stored.
const EMPTY_LIST: [u8; 1] = [alloy_rlp::EMPTY_LIST_CODE];

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_getBlockAccessList(Block) -> Block access list",
            Kind::Quick,
            list,
        )
        .with(
            "debug_getRawBlockAccessList(Block) -> Block access list RLP",
            Kind::Quick,
            |call, mut params, reply| {
                let id: BlockId = params.required()?;
                params.end()?;
                let block = block_id::block_ref(call, id)?;
                reply.value(&stored(call, block)?.1)
            },
        )
}

/// A value after a step of the block.
#[derive(Serialize)]
struct Changed<T> {
    index: U64,
    value: T,
}

#[derive(Serialize)]
struct ChangedCode {
    index: U64,
    code: Bytes,
}

#[derive(Serialize)]
struct ChangedSlot {
    key: B256,
    changes: Vec<Changed<B256>>,
}

/// The entry of an account, in the form of execution-apis.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccountAccess {
    address: Address,
    storage_changes: Vec<ChangedSlot>,
    storage_reads: Vec<B256>,
    balance_changes: Vec<Changed<U256>>,
    nonce_changes: Vec<Changed<U64>>,
    code_changes: Vec<ChangedCode>,
}

fn changed<T>(at: BlockAccessIndex, value: T) -> Changed<T> {
    Changed {
        index: U64::from(at.0),
        value,
    }
}

impl From<&SlotChanges> for ChangedSlot {
    fn from(slot: &SlotChanges) -> Self {
        let changes = slot.changes.iter();
        Self {
            key: slot.slot.into(),
            changes: changes
                .map(|own| changed(own.block_access_index, own.new_value.into()))
                .collect(),
        }
    }
}

impl From<&AccountChanges> for AccountAccess {
    fn from(account: &AccountChanges) -> Self {
        let balances = account.balance_changes.iter();
        let nonces = account.nonce_changes.iter();
        let codes = account.code_changes.iter();
        Self {
            address: account.address,
            storage_changes: account.storage_changes.iter().map(Into::into).collect(),
            storage_reads: account
                .storage_reads
                .iter()
                .map(|own| (*own).into())
                .collect(),
            balance_changes: balances
                .map(|own| changed(own.block_access_index, own.post_balance))
                .collect(),
            nonce_changes: nonces
                .map(|own| changed(own.block_access_index, U64::from(own.new_nonce)))
                .collect(),
            code_changes: codes
                .map(|own| ChangedCode {
                    index: U64::from(own.block_access_index.0),
                    code: own.new_code.clone(),
                })
                .collect(),
        }
    }
}

fn list(call: &Call<'_>, mut params: Params<'_>, reply: &mut Reply<'_>) -> Result<(), RpcError> {
    let id: BlockId = params.required()?;
    params.end()?;
    let block = block_id::block_ref(call, id)?;
    let found = block_id::found(call.node.id(block).map_err(RpcError::from))?;
    let Some(found) = found else {
        return reply.value(&());
    };
    let (block, rlp) = stored(call, BlockRef::Hash(found.hash))?;
    let limits = AccessListLimits::of_transactions(block.body.transactions.len());
    let list = AccessList::decode(&rlp, &limits);
    let list =
        list.map_err(|error| RpcError::internal(format!("list of block {found}: {error}")))?;
    let mut reply = reply.list()?;
    for account in list.accounts() {
        reply.item(&AccountAccess::from(account))?;
    }
    reply.end()
}

/// A block, and the RLP of its access list.
///
/// # Errors
///
/// [`RpcError::NOT_FOUND`] if there is no such block, or if blocks of its fork have no lists, and [`RpcError::PRUNED`] if the list
/// is not stored.
fn stored(call: &Call<'_>, block: BlockRef) -> Result<(Block, Bytes), RpcError> {
    let id = call.node.id(block)?;
    let stored = call.node.chain()?.stored_of(id)?;
    let stored = stored.ok_or_else(|| {
        RpcError::new(
            RpcError::NOT_FOUND,
            format!("block {id} is not in the database"),
        )
    })?;
    let block = stored.block()?;
    let Some(hash) = block.header.block_access_list_hash else {
        let what =
            format!("block {id} is before Amsterdam: blocks have access lists from there on");
        return Err(RpcError::new(RpcError::NOT_FOUND, what));
    };
    let list = stored.body.access_list;
    if !list.is_empty() {
        return Ok((block, list));
    }
    match hash == keccak256(EMPTY_LIST) {
        true => Ok((block, EMPTY_LIST.into())),
        false => Err(RpcError::new(
            RpcError::PRUNED,
            format!("the access list of block {id} is not stored"),
        )),
    }
}

//! Transactions that wait for a block.

use super::objects::{Quantity, TransactionObject};
use crate::{
    error::RpcError,
    limits::Kind,
    pool::{Pool, PooledTransaction},
    table::{Call, Methods},
};
use alloy_consensus::{
    Transaction as _,
    transaction::{Recovered, TransactionInfo},
};
use alloy_primitives::{Address, Bytes};
use alloy_rpc_types_eth as eth;
use serde::Serialize;
use std::collections::BTreeMap;

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "eth_sendRawTransaction(Transaction) -> Transaction hash",
            Kind::Execution,
            |call, mut params, reply| {
                let raw: Bytes = params.required()?;
                params.end()?;
                reply.value(&need(call)?.add(call.node, &raw)?)
            },
        )
        .with(
            "txpool_content() -> Transaction pool content",
            Kind::Execution,
            |call, params, reply| {
                params.end()?;
                reply.value(&all(call, pending_object)?)
            },
        )
        .with(
            "txpool_contentFrom(address) -> Transaction pool content from address",
            Kind::Execution,
            |call, mut params, reply| {
                let of: Address = params.required()?;
                params.end()?;
                let mut found = Waiting::<ByNonce<PendingObject>>::default();
                need(call)?.each(call.node, Some(of), |own, is_pending| {
                    found
                        .part(is_pending)
                        .insert(own.nonce(), pending_object(own));
                })?;
                reply.value(&found)
            },
        )
        .with(
            "txpool_inspect() -> Transaction pool summary",
            Kind::Execution,
            |call, params, reply| {
                params.end()?;
                reply.value(&all(call, summary)?)
            },
        )
        .with(
            "txpool_status() -> Transaction pool status",
            Kind::Quick,
            |call, params, reply| {
                params.end()?;
                let status = need(call)?.status(call.node)?;
                reply.value(&Waiting {
                    pending: Quantity::from(status.pending as u64),
                    queued: Quantity::from(status.queued as u64),
                })
            },
        )
}

/// What can be executed, and what can't yet.
#[derive(Default, Serialize)]
struct Waiting<T> {
    pending: T,
    queued: T,
}

impl<T> Waiting<T> {
    const fn part(&mut self, is_pending: bool) -> &mut T {
        match is_pending {
            true => &mut self.pending,
            false => &mut self.queued,
        }
    }
}

type ByNonce<T> = BTreeMap<u64, T>;

fn need<'c>(call: &'c Call<'_>) -> Result<&'c Pool, RpcError> {
    call.served.pool().ok_or_else(|| {
        RpcError::server(
            "this server has no pool of transactions: send them to a node that builds blocks",
        )
    })
}

fn all<T>(
    call: &Call<'_>,
    show: impl Fn(&PooledTransaction) -> T,
) -> Result<Waiting<BTreeMap<String, ByNonce<T>>>, RpcError> {
    let mut found = Waiting {
        pending: BTreeMap::<String, ByNonce<T>>::new(),
        queued: BTreeMap::new(),
    };
    need(call)?.each(call.node, None, |own, is_pending| {
        let sender = own.sender.to_checksum(None);
        let of_sender = found.part(is_pending).entry(sender).or_default();
        of_sender.insert(own.nonce(), show(own));
    })?;
    Ok(found)
}

/// A transaction that has no block.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingObject {
    #[serde(flatten)]
    own: TransactionObject,
    /// Null, as the block's number and hash are: the library leaves it out.
    block_timestamp: (),
}

pub(crate) fn pending_object(own: &PooledTransaction) -> PendingObject {
    let recovered = Recovered::new_unchecked(own.transaction.clone(), own.sender);
    PendingObject {
        own: eth::Transaction::from_transaction(recovered, TransactionInfo::default()),
        block_timestamp: (),
    }
}

/// A transaction in a line, as other clients write it.
fn summary(own: &PooledTransaction) -> String {
    let own = &own.transaction;
    let to = own.to();
    let to = to.map_or("contract creation".to_owned(), |to| to.to_checksum(None));
    let (value, gas, price) = (own.value(), own.gas_limit(), own.max_fee_per_gas());
    format!("{to}: {value} wei + {gas} gas × {price} wei")
}

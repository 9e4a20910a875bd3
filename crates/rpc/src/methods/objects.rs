//! Blocks, transactions, receipts and logs as clients get them.

use crate::{error::RpcError, table::Call};
use alloy_consensus::{
    Header, Sealed, Transaction as _,
    transaction::{Recovered, TransactionInfo},
};
use alloy_primitives::{Address, B256, U64, U256};
use alloy_rlp::Encodable;
use alloy_rpc_types_eth as eth;
use cambium_chain::{ChainSpec, Receipt, Transaction};
use cambium_node::{FoundBlock, FoundLog};
use cambium_primitives::BlockId;
use serde::{Deserialize, Serialize};

/// A transaction as clients get it.
pub(super) type TransactionObject = eth::Transaction<Transaction>;

/// Where a transaction is.
#[derive(Clone, Copy)]
pub(super) struct InBlock<'b> {
    pub(super) block: BlockId,
    pub(super) header: &'b Header,
    pub(super) index: usize,
}

pub(super) fn transaction(
    transaction: Transaction,
    sender: Address,
    at: InBlock<'_>,
) -> TransactionObject {
    let info = TransactionInfo {
        hash: Some(*transaction.hash()),
        index: Some(at.index as u64),
        block_hash: Some(at.block.hash),
        block_number: Some(at.block.number),
        base_fee: at.header.base_fee_per_gas,
        block_timestamp: Some(at.header.timestamp),
    };
    eth::Transaction::from_transaction(Recovered::new_unchecked(transaction, sender), info)
}

pub(super) fn header(id: BlockId, header: Header, size: Option<usize>) -> eth::Header {
    let sealed = Sealed::new_unchecked(header, id.hash);
    eth::Header::from_consensus(sealed, None, size.map(U256::from))
}

/// A block with the hashes of its transactions, or with them.
pub(super) fn block(
    call: &Call<'_>,
    found: FoundBlock,
    whole: bool,
) -> Result<eth::Block<TransactionObject>, RpcError> {
    let FoundBlock { id, block, .. } = found;
    let size = block.length();
    let transactions = match whole {
        false => eth::BlockTransactions::Hashes(
            block
                .body
                .transactions
                .iter()
                .map(|own| *own.hash())
                .collect(),
        ),
        true => {
            let senders = call.node.chain()?.senders_of(&block)?;
            let own = block.body.transactions.into_iter().zip(senders);
            let own = own.enumerate().map(|(index, (own, sender))| {
                let header = &block.header;
                transaction(
                    own,
                    sender,
                    InBlock {
                        block: id,
                        header,
                        index,
                    },
                )
            });
            eth::BlockTransactions::Full(own.collect())
        }
    };
    Ok(eth::Block {
        header: header(id, block.header, Some(size)),
        uncles: block.body.ommers.iter().map(Header::hash_slow).collect(),
        transactions,
        withdrawals: block.body.withdrawals,
    })
}

/// A log in its block.
pub(super) fn log(found: FoundLog, timestamp: u64) -> eth::Log {
    eth::Log {
        inner: found.log,
        block_hash: Some(found.block.hash),
        block_number: Some(found.block.number),
        block_timestamp: Some(timestamp),
        transaction_hash: Some(found.transaction),
        transaction_index: Some(found.transaction_index as u64),
        log_index: Some(found.log_index as u64),
        removed: false,
    }
}

/// A receipt as clients get it.
pub(super) type ReceiptObject = eth::TransactionReceipt<alloy_consensus::ReceiptEnvelope<eth::Log>>;

/// What a receipt does not say of its transaction.
pub(super) struct Received<'r> {
    pub(super) at: InBlock<'r>,
    pub(super) transaction: &'r Transaction,
    pub(super) sender: Address,
    pub(super) gas_used: u64,
    pub(super) first_log: usize,
}

pub(super) fn receipt(spec: &ChainSpec, receipt: Receipt, of: &Received<'_>) -> ReceiptObject {
    let Received {
        at,
        transaction,
        sender,
        gas_used,
        first_log,
    } = *of;
    let hash: B256 = *transaction.hash();
    let mut log_index = first_log;
    let inner = receipt.map_logs(|own| {
        let found = FoundLog {
            block: at.block,
            transaction: hash,
            transaction_index: at.index,
            log_index,
            log: own,
        };
        log_index += 1;
        log(found, at.header.timestamp)
    });
    let has_blobs = transaction.is_eip4844();
    ReceiptObject {
        inner,
        transaction_hash: hash,
        transaction_index: Some(at.index as u64),
        block_hash: Some(at.block.hash),
        block_number: Some(at.block.number),
        gas_used,
        effective_gas_price: transaction.effective_gas_price(at.header.base_fee_per_gas),
        blob_gas_used: transaction.blob_gas_used(),
        blob_gas_price: has_blobs.then(|| blob_fee(spec, at.header)).flatten(),
        from: sender,
        to: transaction.to(),
        contract_address: match transaction.to() {
            None => Some(sender.create(transaction.nonce())),
            Some(_) => None,
        },
    }
}

/// The price of a unit of blob gas in a block, in wei; `None` before blobs.
pub(super) fn blob_fee(spec: &ChainSpec, header: &Header) -> Option<u128> {
    let params = spec.blob_params_at(header.timestamp)?;
    Some(params.calc_blob_fee(header.excess_blob_gas?))
}

/// A number as clients get it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Quantity(#[serde(with = "alloy_serde::quantity")] pub(super) u128);

impl From<u64> for Quantity {
    fn from(number: u64) -> Self {
        Self(number.into())
    }
}

/// A number that clients send as a quantity or as a number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Count {
    Quantity(U64),
    Number(u64),
}

impl Count {
    pub(super) fn get(self) -> u64 {
        match self {
            Self::Quantity(count) => count.to(),
            Self::Number(count) => count,
        }
    }
}

//! Transactions, receipts and logs in JSON, with the fields that Ethereum's JSON-RPC gives them.

use super::output::{quantity, rpc};
use cambium::{
    Address, BlockId,
    alloy_consensus::{Header, Transaction as _},
    chain::Transaction,
    execution::Receipt,
    node::FoundLog,
};
use serde_json::{Value, json};

/// A transaction in its block.
pub(crate) struct Placed<'a> {
    pub(crate) block: BlockId,
    pub(crate) header: &'a Header,
    pub(crate) index: usize,
    pub(crate) transaction: &'a Transaction,
    pub(crate) sender: Address,
}

impl Placed<'_> {
    /// The sender's price for a unit of gas, in wei.
    pub(crate) fn gas_price(&self) -> u128 {
        let base_fee = self.header.base_fee_per_gas;
        self.transaction.effective_gas_price(base_fee)
    }

    /// As `eth_getTransactionByHash` gives it.
    pub(crate) fn transaction_json(&self) -> Value {
        let mut json = rpc(self.transaction);
        json["from"] = json!(self.sender);
        json["gasPrice"] = json!(format!("{:#x}", self.gas_price()));
        json["blockHash"] = json!(self.block.hash);
        json["blockNumber"] = quantity(self.block.number);
        json["transactionIndex"] = quantity(self.index as u64);
        json
    }

    /// Its receipt, as `eth_getTransactionReceipt` gives it. `first_log` is the index of its first log among
    /// those of the block. The price of blobs is not in it: that follows from the fork.
    pub(crate) fn receipt_json(&self, receipt: &Receipt, gas_used: u64, first_log: usize) -> Value {
        let mut json = rpc(receipt);
        let created = match self.transaction.to() {
            None => Some(self.sender.create(self.transaction.nonce())),
            Some(_) => None,
        };
        json["transactionHash"] = json!(self.transaction.hash());
        json["transactionIndex"] = quantity(self.index as u64);
        json["blockHash"] = json!(self.block.hash);
        json["blockNumber"] = quantity(self.block.number);
        json["from"] = json!(self.sender);
        json["to"] = json!(self.transaction.to());
        json["contractAddress"] = json!(created);
        json["gasUsed"] = quantity(gas_used);
        json["effectiveGasPrice"] = json!(format!("{:#x}", self.gas_price()));
        let logs = receipt.logs().iter().enumerate().map(|(at, log)| {
            log_json(&FoundLog {
                block: self.block,
                transaction: *self.transaction.hash(),
                transaction_index: self.index,
                log_index: first_log + at,
                log: log.clone(),
            })
        });
        json["logs"] = logs.collect();
        json
    }

    /// The kind of transaction, in words.
    pub(crate) fn kind(&self) -> String {
        let name = match self.transaction.tx_type() as u8 {
            0 => "legacy",
            1 => "with an access list, EIP-2930",
            2 => "with a fee market, EIP-1559",
            3 => "with blobs, EIP-4844",
            4 => "that sets code, EIP-7702",
            _ => "unknown",
        };
        format!("{} ({name})", self.transaction.tx_type() as u8)
    }
}

/// A log as `eth_getLogs` gives it.
pub(crate) fn log_json(found: &FoundLog) -> Value {
    let mut json = rpc(&found.log);
    json["blockNumber"] = quantity(found.block.number);
    json["blockHash"] = json!(found.block.hash);
    json["transactionHash"] = json!(found.transaction);
    json["transactionIndex"] = quantity(found.transaction_index as u64);
    json["logIndex"] = quantity(found.log_index as u64);
    json["removed"] = json!(false);
    json
}

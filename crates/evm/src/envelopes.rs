//! Transactions, blocks and receipts, as alloy has them.

use alloy_consensus::{EthereumTxEnvelope, ReceiptEnvelope, TxEip4844};

/// A signed transaction as it appears in a block. Blob transactions come without their blobs.
pub type Transaction = EthereumTxEnvelope<TxEip4844>;

/// A block: header, transactions, ommers, withdrawals.
pub type Block = alloy_consensus::Block<Transaction>;

/// A transaction's receipt, including its logs bloom.
pub type Receipt = ReceiptEnvelope;

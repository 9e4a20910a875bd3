//! What goes into executing a block, and what comes out.

use crate::Rules;
use alloy_consensus::{EthereumTxEnvelope, Header, ReceiptEnvelope, TxEip4844};
use alloy_eips::{eip4895::Withdrawal, eip7685::Requests};
use alloy_primitives::{Address, B256, Bloom, Bytes};
use cambium_primitives::{AccessList, Changes, FoundValues};
use revm::context::result::InvalidTransaction;

/// A signed transaction as blocks hold it: blob transactions without their blobs.
pub type Transaction = EthereumTxEnvelope<TxEip4844>;

/// A block: header, transactions, uncles, withdrawals.
pub type Block = alloy_consensus::Block<Transaction>;

/// A transaction's receipt, logs bloom included.
pub type Receipt = ReceiptEnvelope;

/// A block to execute.
#[derive(Clone, Copy, Debug)]
pub struct BlockInput<'a> {
    /// The rules in force.
    pub rules: Rules,
    /// The block's header. Its results (roots, bloom, gas used) are not looked at.
    pub header: &'a Header,
    /// The transactions, in order.
    pub transactions: &'a [Transaction],
    /// Who signed each, as [`recover_senders`](crate::recover_senders) finds.
    pub senders: &'a [Address],
    /// Uncles, for their reward.
    pub ommers: &'a [Header],
    /// Withdrawals; none before Shanghai.
    pub withdrawals: &'a [Withdrawal],
    /// The access list that came with the block, which may lie; its indices are within the block.
    pub access_list: Option<&'a AccessList>,
    /// What the block is said to find at all that its access list names.
    pub found: Option<&'a FoundValues>,
}

impl<'a> BlockInput<'a> {
    /// A block without uncles, withdrawals and access list.
    pub const fn new(
        rules: Rules,
        header: &'a Header,
        transactions: &'a [Transaction],
        senders: &'a [Address],
    ) -> Self {
        Self {
            rules,
            header,
            transactions,
            senders,
            ommers: &[],
            withdrawals: &[],
            access_list: None,
            found: None,
        }
    }

    /// A block with all that is in its body, without an access list.
    pub fn of_block(rules: Rules, block: &'a Block, senders: &'a [Address]) -> Self {
        let body = &block.body;
        Self {
            ommers: &body.ommers,
            withdrawals: body.withdrawals.as_ref().map_or(&[], |list| &list[..]),
            ..Self::new(rules, &block.header, &body.transactions, senders)
        }
    }
}

/// What a block does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// One for each transaction.
    pub receipts: Vec<Receipt>,
    /// False if receipts hold states' roots (before Byzantium) and the caller had none to give:
    /// those are zero, so that the receipts' root means nothing.
    pub receipts_complete: bool,
    /// Gas of all transactions, refunds taken off.
    pub gas_used: u64,
    /// Blob gas of all transactions.
    pub blob_gas_used: u64,
    /// Requests to the consensus layer (EIP-7685); none before Prague.
    pub requests: Requests,
    /// All that changes in the state.
    pub changes: Changes,
    /// Code that `changes` names and the state may not have yet, by its hash.
    pub codes: Vec<(B256, Bytes)>,
    /// The block's access list (EIP-7928), if the rules ask for one.
    pub access_list: Option<AccessList>,
}

impl Outcome {
    /// The bloom of all logs.
    pub fn logs_bloom(&self) -> Bloom {
        let mut bloom = Bloom::ZERO;
        for receipt in &self.receipts {
            bloom.accrue_bloom(receipt.logs_bloom());
        }
        bloom
    }
}

/// Why a block could not be executed. Only [`Database`](Self::Database) says nothing about the
/// block: every other error condemns it.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError<E> {
    /// A transaction may not be in this block.
    #[error("transaction {index} is invalid: {reason}")]
    InvalidTransaction {
        /// Its place in the block.
        index: usize,
        /// What it breaks.
        reason: TransactionFault,
    },
    /// A call that the protocol demands at a block's end fails.
    #[error("system call to {contract} fails: {reason}")]
    SystemCall {
        /// The contract called.
        contract: Address,
        /// How it failed.
        reason: String,
    },
    /// A deposit was logged in a form that EIP-6110 forbids.
    #[error("a log of the deposit contract is malformed")]
    MalformedDeposit,
    /// As many senders as transactions are needed.
    #[error("{senders} senders for {transactions} transactions")]
    SenderCount {
        /// Senders given.
        senders: usize,
        /// Transactions given.
        transactions: usize,
    },
    /// The header lacks what the rules need.
    #[error("the header can't be executed under the rules in force: {0}")]
    Header(String),
    /// The state could not be read.
    #[error("reading state: {0}")]
    Database(E),
}

impl<E> ExecutionError<E> {
    /// The same error over another state.
    pub(crate) fn map_database<F>(self, map: impl FnOnce(E) -> F) -> ExecutionError<F> {
        match self {
            Self::InvalidTransaction { index, reason } => {
                ExecutionError::InvalidTransaction { index, reason }
            }
            Self::SystemCall { contract, reason } => {
                ExecutionError::SystemCall { contract, reason }
            }
            Self::MalformedDeposit => ExecutionError::MalformedDeposit,
            Self::SenderCount {
                senders,
                transactions,
            } => ExecutionError::SenderCount {
                senders,
                transactions,
            },
            Self::Header(reason) => ExecutionError::Header(reason),
            Self::Database(error) => ExecutionError::Database(map(error)),
        }
    }
}

/// What a transaction breaks.
#[derive(Debug, thiserror::Error)]
pub enum TransactionFault {
    /// It could use more gas than the block has left.
    #[error("gas limit {limit} is over the {left} gas left in the block")]
    BlockGas {
        /// Its gas limit.
        limit: u64,
        /// Gas left in the block.
        left: u64,
    },
    /// Its blobs do not fit into the block.
    #[error("the block's blob gas comes to {used}, over the limit of {max}")]
    BlobGas {
        /// Blob gas of the block up to and with this transaction.
        used: u64,
        /// The most that a block may have.
        max: u64,
    },
    /// Its signature is bound to a chain id before EIP-155.
    #[error("a signature bound to a chain id before EIP-155")]
    EarlyChainId,
    /// The EVM refuses it.
    #[error("{0}")]
    Evm(InvalidTransaction),
    /// The EVM could not finish it.
    #[error("{0}")]
    Fatal(String),
}

//! Input and outcome of executing a block.

use crate::{Block, Receipt, RecoveredMeanwhile, Rules, SignatureError, Transaction};
use alloy_consensus::Header;
use alloy_eips::{eip4895::Withdrawal, eip7685::Requests};
use alloy_primitives::{Address, B256, Bloom, Bytes};
use cambium_primitives::{AccessList, Changes, PreStateValues};
use revm::context::result::InvalidTransaction;

/// A block to execute.
#[derive(Clone, Copy, Debug)]
pub struct BlockInput<'a> {
    /// Fork rules in force.
    pub rules: Rules,
    /// The block's header. Fields that follow from execution (roots, bloom, gas used) are ignored.
    pub header: &'a Header,
    /// The transactions, in order.
    pub transactions: &'a [Transaction],
    /// The sender of each transaction, as [`recover_senders`](crate::recover_senders) returns them.
    pub senders: &'a [Address],
    /// Where senders come from if they are not known yet: `senders` is empty then, and the executor must be
    /// [`Sequential`](crate::Sequential).
    pub recovered: Option<&'a RecoveredMeanwhile<'a>>,
    /// Headers of the ommers, which are rewarded before the merge.
    pub ommers: &'a [Header],
    /// Withdrawals; empty before Shanghai.
    pub withdrawals: &'a [Withdrawal],
    /// The block's access list, with every index in range. Untrusted: its contents may be wrong.
    pub access_list: Option<&'a AccessList>,
    /// Pre-state values for every key in the block's access list. Untrusted, too.
    pub pre_state: Option<&'a PreStateValues>,
}

impl<'a> BlockInput<'a> {
    /// A block without ommers, withdrawals and access list.
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
            recovered: None,
            ommers: &[],
            withdrawals: &[],
            access_list: None,
            pre_state: None,
        }
    }

    /// The sender of a transaction.
    pub(crate) fn sender(&self, index: usize) -> Result<Address, SignatureError> {
        match self.recovered {
            Some(recovered) => recovered.sender(index),
            None => Ok(self.senders[index]),
        }
    }

    /// A block with its whole body, without an access list.
    pub fn of_block(rules: Rules, block: &'a Block, senders: &'a [Address]) -> Self {
        let body = &block.body;
        Self {
            ommers: &body.ommers,
            withdrawals: body.withdrawals.as_ref().map_or(&[], |list| &list[..]),
            ..Self::new(rules, &block.header, &body.transactions, senders)
        }
    }
}

/// The result of executing a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// One receipt for each transaction.
    pub receipts: Vec<Receipt>,
    /// False if receipts contain state roots (before Byzantium) and the caller did not provide
    /// [`Hooks::roots`](crate::Hooks::roots). The roots are then zero, and the receipts root is
    /// meaningless.
    pub receipts_complete: bool,
    /// Gas used by the block, in gas: that of all transactions after refunds; from Amsterdam on the
    /// larger of regular gas and state gas (EIP-8037).
    pub gas_used: u64,
    /// Blob gas used by all transactions.
    pub blob_gas_used: u64,
    /// Requests to the consensus layer (EIP-7685); empty before Prague.
    pub requests: Requests,
    /// The state diff between the block's parent and the block.
    pub changes: Changes,
    /// Code that `changes` refers to and the state may not have yet, with its hash.
    pub codes: Vec<(B256, Bytes)>,
    /// The block's access list (EIP-7928), if [`Rules::block_access_list`] is set.
    pub access_list: Option<AccessList>,
}

impl Outcome {
    /// The bloom of the logs of all receipts.
    pub fn logs_bloom(&self) -> Bloom {
        let mut bloom = Bloom::ZERO;
        for receipt in &self.receipts {
            bloom.accrue_bloom(receipt.logs_bloom());
        }
        bloom
    }
}

/// Why a block could not be executed. Every variant but [`Database`](Self::Database) means that the
/// block is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError<E> {
    /// A transaction is invalid in this block.
    #[error("transaction {index} is invalid: {reason}")]
    InvalidTransaction {
        /// Index of the transaction in the block, from 0.
        index: usize,
        /// The rule that it breaks.
        reason: TransactionFault,
    },
    /// The sender of a transaction can't be recovered: see [`BlockInput::recovered`].
    #[error(transparent)]
    Signature(SignatureError),
    /// A system call that must succeed at the end of the block failed.
    #[error("system call to {contract} fails: {reason}")]
    SystemCall {
        /// The contract that was called.
        contract: Address,
        /// How the call failed.
        reason: String,
    },
    /// A log of the deposit contract does not have the layout that EIP-6110 requires.
    #[error("a log of the deposit contract is malformed")]
    MalformedDeposit,
    /// The number of senders is not the number of transactions.
    #[error("{senders} senders for {transactions} transactions")]
    SenderCount {
        /// Number of senders.
        senders: usize,
        /// Number of transactions.
        transactions: usize,
    },
    /// The header lacks a field that the rules require.
    #[error("the header can't be executed under the rules in force: {0}")]
    Header(String),
    /// Reading the state failed; the block may be valid.
    #[error("reading state: {0}")]
    Database(E),
}

impl<E> ExecutionError<E> {
    /// Converts the error of the state.
    pub(crate) fn map_database<F>(self, map: impl FnOnce(E) -> F) -> ExecutionError<F> {
        match self {
            Self::InvalidTransaction { index, reason } => {
                ExecutionError::InvalidTransaction { index, reason }
            }
            Self::Signature(error) => ExecutionError::Signature(error),
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

/// The rule that an invalid transaction breaks.
#[derive(Debug, thiserror::Error)]
pub enum TransactionFault {
    /// The gas limit is higher than the gas left in the block.
    #[error("gas limit {limit} is over the {left} gas left in the block")]
    BlockGas {
        /// Most gas that the transaction can use.
        limit: u64,
        /// Gas left in the block.
        left: u64,
    },
    /// The transaction's blobs do not fit into the block.
    #[error("the block's blob gas is {used}, over the limit of {max}")]
    BlobGas {
        /// Blob gas of the block including this transaction.
        used: u64,
        /// Maximum blob gas of a block.
        max: u64,
    },
    /// The signature commits to a chain id, before EIP-155 allows it.
    #[error("the signature commits to a chain id before EIP-155")]
    EarlyChainId,
    /// The EVM rejects the transaction.
    #[error("{0}")]
    Evm(InvalidTransaction),
    /// The EVM could not finish the transaction.
    #[error("{0}")]
    Fatal(String),
}

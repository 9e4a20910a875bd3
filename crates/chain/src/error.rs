//! Errors of a chain and its blocks.

use crate::{BodyError, FileError, GenesisError, HeaderError, VerifyError};
use alloy_primitives::B256;
use cambium_evm::{ExecutionError, SignatureError};
use cambium_history::HistoryError;
use cambium_index::IndexError;
use cambium_preimages::PreimagesError;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::StateError;
use std::fmt::Display;

/// Describes the fault of a block. Without its parent, its validity is unknown.
fn describe(id: &BlockId, fault: &BlockFault) -> String {
    match fault {
        BlockFault::UnknownParent(_) => format!("block {id} can't be validated: {fault}"),
        fault => format!("block {id} is invalid: {fault}"),
    }
}

/// Why a block is invalid. The database is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum BlockFault {
    /// The parent is not in the database.
    #[error("its parent {0} is not in the database: import the blocks before it first")]
    UnknownParent(B256),
    /// The header is invalid.
    #[error("header: {0}")]
    Header(#[from] HeaderError),
    /// The body is invalid.
    #[error("body: {0}")]
    Body(#[from] BodyError),
    /// A signature is invalid.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// A transaction or a system call fails.
    #[error("{0}")]
    Execution(String),
    /// The outcome of execution differs from the header.
    #[error("{0}")]
    Verify(#[from] VerifyError),
}

/// Why a partial database can't be made anew with another list. The old one is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ExtendError {
    /// The database keeps all storage.
    #[error("the database is not partial: it keeps the storage of all contracts already")]
    NotPartial,
    /// The list is missing.
    #[error("the list of contracts whose storage is to be kept is missing")]
    NoList,
    /// Contracts are added, and there is no source for their slots.
    #[error(
        "the storage of contract {account} (keccak256 of its address) is to be added, and no source is named: name another database \
         with --from"
    )]
    NoSource {
        /// keccak(address) of the first one.
        account: B256,
    },
    /// The source can't give the slots of a contract.
    #[error(
        "contract {account} (keccak256 of its address): {source_name} does not have its slots after block {block}: {why}; take a source \
         that has that state"
    )]
    NoSlots {
        /// keccak(address).
        account: B256,
        /// Name of the source.
        source_name: String,
        /// Block at which the new database was to begin.
        block: BlockId,
        /// What the source says.
        why: String,
    },
    /// The slots of a contract are not those of its account.
    #[error(
        "contract {account} (keccak256 of its address): its slots from {source_name} after block {block} have the storage root {got}, \
         its account has {expected}: the source is damaged or false, take another one"
    )]
    OtherRoot {
        /// keccak(address).
        account: B256,
        /// Name of the source.
        source_name: String,
        /// Block at which the new database was to begin.
        block: BlockId,
        /// Root of the slots that came.
        got: B256,
        /// Root of the account in the partial database.
        expected: B256,
    },
}

/// Why an operation on a chain failed.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The state engine failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The history can't be read.
    #[error(transparent)]
    History(Box<HistoryError>),
    /// The index can't be read, or there is none.
    #[error(transparent)]
    Index(Box<IndexError>),
    /// The preimages can't be read or written.
    #[error(transparent)]
    Preimages(Box<PreimagesError>),
    /// The preimage of a hash in the state is required, and not known.
    #[error(
        "{what} is known by its hash {hash} alone: `cambium init --preimages` makes databases that know what is \
         behind the hashes, and `cambium db check --preimages` says what they lack"
    )]
    NoPreimage {
        /// `an account` or `a slot`.
        what: &'static str,
        /// The hash.
        hash: B256,
    },
    /// A genesis file can't be used.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// A file of blocks can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Bytes given as a block do not encode one.
    #[error("the bytes given as a block: {0}")]
    NotABlock(String),
    /// A block is invalid, or its parent is not in the database.
    #[error("{}", describe(id, fault))]
    Block {
        /// The block.
        id: BlockId,
        /// Why it is invalid.
        fault: Box<BlockFault>,
    },
    /// A state update that came with a block does not lead to the block's state. The block may be valid.
    #[error("the state update of block {id} is false: {why}")]
    FalseUpdate {
        /// The block.
        id: BlockId,
        /// Why it is false.
        why: String,
    },
    /// A block without a state update, in a partial database.
    #[error(
        "block {0} came without its state update, and a partial database can't execute it: `cambium export --updates` \
         writes the updates of blocks, and `cambium import --updates` takes them"
    )]
    NoUpdate(BlockId),
    /// A block with a state update, in a database that keeps preimages.
    #[error(
        "block {0} came with its state update, which does not say what is behind the hashes in the state, and the database \
         keeps that (`cambium init --preimages`): import the block without its update, so that it is executed"
    )]
    NoPreimagesInUpdate(BlockId),
    /// A partial database can't be made anew with another list.
    #[error(transparent)]
    Extend(Box<ExtendError>),
    /// A genesis block differs from that of the database.
    #[error(
        "the database is of the chain with genesis {database}, but this is of the chain with \
         genesis {given}: use a separate data directory for each chain"
    )]
    OtherGenesis {
        /// Genesis hash of the database.
        database: B256,
        /// Genesis hash given.
        given: B256,
    },
    /// The database has state but no fork rules.
    #[error(
        "the database has no fork rules, since it was made with the library: this operation needs \
         the database of a chain"
    )]
    NoRules,
    /// A block or the fork rules in the database can't be decoded.
    #[error("{what} in the database can't be read: {why}")]
    Unreadable {
        /// The item that can't be decoded.
        what: String,
        /// The cause.
        why: String,
    },
    /// The head's record in the block log is lost, and with it the header that its children are validated by.
    #[error(
        "the record of block {0}, the head, is lost: import the chain from that block on, or from a block below it, so \
         that its header is known again. If it is the first block, `cambium import --genesis FILE` tells it"
    )]
    HeadLost(BlockId),
    /// The head's record is lost with those of the blocks below it, so that its total difficulty is not known.
    #[error(
        "the record of block {0}, the head, is lost, and its total difficulty with those below it: import the chain from \
         its first block on, with `cambium import --genesis FILE`"
    )]
    TotalDifficultyLost(BlockId),
    /// The block is the first of the database, which is made and not executed: it has no witness.
    #[error(
        "block {0} is the first of the database, which is made and not executed: it has no witness, and \
         the blocks after it have"
    )]
    NotExecuted(BlockId),
    /// The canonical chain has no block with this number.
    #[error("no block {number}: the head is {head}")]
    NoSuchBlock {
        /// The number asked for.
        number: BlockNumber,
        /// The head.
        head: BlockId,
    },
}

impl ChainError {
    /// Whether a block's record in the log can't be read.
    pub(crate) fn is_lost_record(&self) -> bool {
        match self {
            Self::HeadLost(_) | Self::TotalDifficultyLost(_) => true,
            Self::State(error) => error.is_damage(),
            _ => false,
        }
    }

    /// The error of a block in the database that can't be decoded.
    pub fn unreadable(id: BlockId, why: impl Display) -> Self {
        Self::Unreadable {
            what: format!("block {id}"),
            why: why.to_string(),
        }
    }

    /// The error of an invalid block.
    pub fn invalid(id: BlockId, fault: impl Into<BlockFault>) -> Self {
        let fault = Box::new(fault.into());
        Self::Block { id, fault }
    }
}

impl From<ExtendError> for ChainError {
    fn from(error: ExtendError) -> Self {
        Self::Extend(Box::new(error))
    }
}

impl From<HistoryError> for ChainError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::State(error) => Self::State(error),
            error => Self::History(Box::new(error)),
        }
    }
}

impl From<IndexError> for ChainError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::State(error) => Self::State(error),
            error => Self::Index(Box::new(error)),
        }
    }
}

impl From<PreimagesError> for ChainError {
    fn from(error: PreimagesError) -> Self {
        Self::Preimages(Box::new(error))
    }
}

pub(crate) fn execution_error<E: Into<ChainError> + Display>(
    id: BlockId,
    error: ExecutionError<E>,
) -> ChainError {
    match error {
        ExecutionError::Database(error) => error.into(),
        ExecutionError::Signature(error) => ChainError::invalid(id, error),
        fault => ChainError::invalid(id, BlockFault::Execution(fault.to_string())),
    }
}

pub(crate) fn unreadable_spec(why: String) -> ChainError {
    ChainError::Unreadable {
        what: "the chain's fork rules".to_owned(),
        why,
    }
}

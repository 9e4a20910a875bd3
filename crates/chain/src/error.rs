//! What is wrong with a block, and why something could not be done with a chain.

use crate::{BodyError, FileError, GenesisError, HeaderError, VerifyError};
use alloy_primitives::B256;
use cambium_evm::{ExecutionError, SignatureError};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::StateError;
use std::fmt::Display;

/// What is wrong with a block. The state is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum BlockFault {
    /// Its parent is not here.
    #[error("its parent {0} is not in the database: import the blocks before it first")]
    UnknownParent(B256),
    /// Its header.
    #[error("header: {0}")]
    Header(#[from] HeaderError),
    /// Its body.
    #[error("body: {0}")]
    Body(#[from] BodyError),
    /// A signature.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// A transaction, or a system call.
    #[error("{0}")]
    Execution(String),
    /// What execution gives is not what the header says.
    #[error("{0}")]
    Verify(#[from] VerifyError),
}

/// Why something could not be done with a chain.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The database.
    #[error(transparent)]
    State(#[from] StateError),
    /// The genesis file.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// A file of blocks.
    #[error(transparent)]
    File(#[from] FileError),
    /// Bytes that are no block's.
    #[error("the bytes given as a block: {0}")]
    NotABlock(String),
    /// A block that is not valid.
    #[error("block {id} is invalid: {fault}")]
    Block {
        /// The block.
        id: BlockId,
        /// What is wrong with it.
        fault: Box<BlockFault>,
    },
    /// A genesis block that is not the database's.
    #[error(
        "the database is of the chain with genesis {database}, and this is of the one with \
         {given}: use a data directory of its own for each chain"
    )]
    OtherGenesis {
        /// Genesis hash in the database.
        database: B256,
        /// Genesis hash given.
        given: B256,
    },
    /// A database that has state and no chain's rules.
    #[error(
        "the database has no chain's fork rules: it was made with the library, and this needs them"
    )]
    NoRules,
    /// What the database has of a block or of the rules can't be read.
    #[error("{what} in the database can't be read: {why}")]
    Unreadable {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// No such block.
    #[error("no block {number}: the head is {head}")]
    NoSuchBlock {
        /// What was asked for.
        number: BlockNumber,
        /// The head.
        head: BlockId,
    },
}

impl ChainError {
    pub(crate) fn invalid(id: BlockId, fault: impl Into<BlockFault>) -> Self {
        let fault = Box::new(fault.into());
        Self::Block { id, fault }
    }
}

pub(crate) fn execution_error(id: BlockId, error: ExecutionError<StateError>) -> ChainError {
    match error {
        ExecutionError::Database(error) => error.into(),
        fault => ChainError::invalid(id, BlockFault::Execution(fault.to_string())),
    }
}

pub(crate) fn unreadable_spec(why: String) -> ChainError {
    ChainError::Unreadable {
        what: "the chain's fork rules".to_owned(),
        why,
    }
}

/// An error of a block that is in the database and should not have been.
pub(crate) fn unreadable(id: BlockId, why: impl Display) -> ChainError {
    ChainError::Unreadable {
        what: format!("block {id}"),
        why: why.to_string(),
    }
}

//! Why a read of the state through shards fails.

use crate::bag::ReadError;
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_trie::{RangeProofError, TrieError, UnfoldError};
use revm::database_interface::DBErrorMarker;

/// Why a read fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderError {
    /// No replica has an answer.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An answer lacks a node, or has a malformed one.
    #[error("the answer for block {block}: {source}")]
    Bag {
        /// The block whose state was read.
        block: BlockId,
        /// What is wrong with it.
        source: Box<UnfoldError>,
    },
    /// An answer lacks a code, or has another one.
    #[error("the answer for block {block} lacks the code {code}")]
    Code {
        /// The block whose state was read.
        block: BlockId,
        /// Hash of the code.
        code: B256,
    },
    /// An answer does not lead to the slots that were asked for.
    #[error("the answer for the slots of {account} after block {block}: {source}")]
    Slots {
        /// The block whose state was read.
        block: BlockId,
        /// Path of the contract.
        account: B256,
        /// What is wrong with it.
        source: Box<RangeProofError>,
    },
    /// A block's changes do not lead to its state root.
    #[error("block {block} has the state root {expected}, and its changes lead to {got}")]
    Root {
        /// The block that was to be the next one.
        block: BlockId,
        /// In the header.
        expected: B256,
        /// After the changes.
        got: B256,
    },
    /// A block is not a child of the reader's.
    #[error("block {block} is not a child of {head}")]
    NotChild {
        /// The block that was to be the next one.
        block: BlockId,
        /// The reader's block.
        head: BlockId,
    },
    /// The changes of a block don't fit the state.
    #[error("block {block}: {source}")]
    Changes {
        /// The block that was to be the next one.
        block: BlockId,
        /// What does not fit.
        source: Box<TrieError>,
    },
    /// A node or a code is missing, and nobody was to be asked.
    #[error("the state after block {0} is incomplete here")]
    Incomplete(BlockId),
    /// The hash of an old block is not known.
    #[error("the hash of block {0} is not known here")]
    BlockHash(BlockNumber),
}

impl DBErrorMarker for ReaderError {}

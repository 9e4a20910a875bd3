//! Errors of a node.

use cambium_chain::ChainError;
use cambium_history::HistoryError;
use cambium_index::IndexError;
use cambium_primitives::BlockId;
use cambium_state::StateError;

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The chain, or a part beside it, can't be read, or lacks the requested item.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The block is there, and the question is of canonical blocks.
    #[error("block {0} is on a branch that is not canonical")]
    NotCanonical(BlockId),
    /// No block was called safe, or finalized.
    #[error("no block of the database was called {0}")]
    NotMarked(&'static str),
}

impl From<StateError> for NodeError {
    fn from(error: StateError) -> Self {
        Self::Chain(error.into())
    }
}

impl From<HistoryError> for NodeError {
    fn from(error: HistoryError) -> Self {
        Self::Chain(error.into())
    }
}

impl From<IndexError> for NodeError {
    fn from(error: IndexError) -> Self {
        Self::Chain(error.into())
    }
}

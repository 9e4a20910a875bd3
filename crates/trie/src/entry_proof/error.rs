//! Why a proof of entries is refused.

use crate::{binary_proof::BinaryProofError, error::TrieError, multiproof::MultiProofError};
use alloy_primitives::B256;

/// Error of verifying an [`EntryProof`](crate::EntryProof).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProofError {
    /// The proof is of a trie with another commitment.
    #[error("the proof is of a trie committed by {got}, not by {expected}")]
    Commitment {
        /// `mpt` or `binary`, against which the proof was verified.
        expected: &'static str,
        /// `mpt` or `binary`, of which the proof is.
        got: &'static str,
    },
    /// The nodes of a Merkle Patricia trie do not prove what was asked.
    #[error(transparent)]
    Mpt(#[from] MultiProofError),
    /// The nodes of a binary trie do not prove what was asked.
    #[error(transparent)]
    Binary(#[from] BinaryProofError),
    /// The writes cannot be applied to the nodes of a Merkle Patricia trie.
    #[error(transparent)]
    Trie(#[from] TrieError),
    /// A write has a value that the trie cannot commit to.
    #[error("the new value of {key} is not committed to by {commitment}")]
    Value {
        /// Key of the write.
        key: B256,
        /// `mpt` or `binary`, against which the proof was verified.
        commitment: &'static str,
    },
    /// Keys of writes are not in strictly ascending order, or a range ends before it begins.
    #[error("key {key} is not above the one before it")]
    Unsorted {
        /// The first key that is not greater than the one before it.
        key: B256,
    },
}

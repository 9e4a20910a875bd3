//! Why a proof of entries is refused.

use crate::{binary_proof::BinaryProofError, error::TrieError, multiproof::MultiProofError};
use alloc::boxed::Box;
use alloy_primitives::B256;

/// Error of verifying an [`EntryProof`](crate::EntryProof).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProofError {
    /// The proof is of a trie with another commitment.
    #[error("the proof is of a trie committed by {got}, not by {expected}")]
    Commitment {
        /// `mpt`, `binary` or `layered`, against which the proof was verified.
        expected: &'static str,
        /// `mpt`, `binary` or `layered`, of which the proof is.
        got: &'static str,
    },
    /// The nodes of a Merkle Patricia trie do not prove what was asked.
    #[error(transparent)]
    Mpt(#[from] MultiProofError),
    /// The nodes of one of the three tries of `layered` do not prove what was asked.
    #[error("in the {trie}: {source}")]
    Layer {
        /// Which of the three tries.
        trie: &'static str,
        /// Fault of the nodes.
        source: Box<MultiProofError>,
    },
    /// The roots of the three tries of `layered` are those of another database.
    #[error("the proof has the root {got}, and {expected} is expected")]
    WrongRoot {
        /// The root to verify against.
        expected: B256,
        /// The root of the proof.
        got: B256,
    },
    /// The root after a commit under `layered` depends on where it is in its interval.
    #[error(
        "under layered, the root after writes depends on the number of their commit: use verify_layered_update"
    )]
    NeedsNumber,
    /// A commit without a commit before it.
    #[error("commit 0 has no commit before it")]
    NoParent,
    /// The commit begins an interval, and the root of its snapshot is not claimed.
    #[error("commit {number} begins an interval: the root of its snapshot has to be claimed")]
    NoClaim {
        /// Number of the commit.
        number: u64,
    },
    /// A claimed root of a snapshot that follows from the proof.
    #[error("the root of the snapshot of commit {number} is claimed, and the proof has it")]
    SurplusClaim {
        /// Number of the commit.
        number: u64,
    },
    /// The nodes of a binary trie do not prove what was asked.
    #[error(transparent)]
    Binary(#[from] BinaryProofError),
    /// The writes cannot be applied to the nodes of a trie.
    #[error(transparent)]
    Trie(#[from] TrieError),
    /// A write has a value that the trie cannot commit to.
    #[error("the new value of {key} is not committed to by {commitment}")]
    Value {
        /// Key of the write.
        key: B256,
        /// `mpt`, `binary` or `layered`, against which the proof was verified.
        commitment: &'static str,
    },
    /// Keys of writes are not in strictly ascending order, or a range ends before it begins.
    #[error("key {key} is not above the one before it")]
    Unsorted {
        /// The first key that is not greater than the one before it.
        key: B256,
    },
}

//! Why a proof of a binary trie is refused.

use alloy_primitives::B256;

/// Error of verifying a [`BinaryProof`](crate::BinaryProof).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryProofError {
    /// The proof is of another trie.
    #[error("the proof is of root {got}, not {expected}")]
    Root {
        /// The root against which the proof was verified.
        expected: B256,
        /// The root that the proof has.
        got: B256,
    },
    /// A look-up leads into a blinded subtrie.
    #[error("the subtrie at depth {depth} on the way to {key} is blinded")]
    Incomplete {
        /// The key, or an end of the range.
        key: B256,
        /// Depth of the blinded node, in bits.
        depth: usize,
    },
    /// The proof has a node that no look-up passes.
    #[error("the proof has a node at depth {depth} that is not needed")]
    Surplus {
        /// Depth of the node, in bits.
        depth: usize,
    },
    /// Keys of writes are not in strictly ascending order, or a range ends before it begins.
    #[error("key {key} is not above the one before it")]
    Unsorted {
        /// The first key that is not greater than the one before it.
        key: B256,
    },
}

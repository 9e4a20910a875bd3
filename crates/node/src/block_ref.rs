//! Names of blocks.

use alloy_primitives::B256;
use cambium_primitives::BlockNumber;
use std::fmt;

/// A block of a chain, by the names that callers have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRef {
    /// The head.
    Latest,
    /// The first block of the database.
    Earliest,
    /// The newest block that was called safe.
    Safe,
    /// The newest block that was called finalized.
    Finalized,
    /// The canonical block of that number.
    Number(BlockNumber),
    /// The block of that hash, on any branch.
    Hash(B256),
}

impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Earliest => f.write_str("earliest"),
            Self::Safe => f.write_str("safe"),
            Self::Finalized => f.write_str("finalized"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Hash(hash) => write!(f, "{hash}"),
        }
    }
}

//! Block numbers and ids.

use alloy_primitives::B256;
use core::fmt;

/// Height of a block. The genesis block has number 0.
pub type BlockNumber = u64;

/// Unique id of a block: its number and the hash of its header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BlockId {
    /// Number of the block.
    #[cfg_attr(feature = "serde", serde(with = "alloy_serde::quantity"))]
    pub number: BlockNumber,
    /// Hash of the block: the Keccak-256 hash of its header's RLP.
    pub hash: B256,
}

impl BlockId {
    /// Creates an id from a number and a hash.
    pub const fn new(number: BlockNumber, hash: B256) -> Self {
        Self { number, hash }
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, self.hash)
    }
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockId({} {})", self.number, self.hash)
    }
}

//! Names of blocks.

use alloy_primitives::B256;
use core::fmt;

/// A block's height. Genesis is 0.
pub type BlockNumber = u64;

/// A block, named without doubt: its height and the hash of its header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BlockId {
    /// Height.
    pub number: BlockNumber,
    /// Keccak-256 of the RLP of the header.
    pub hash: B256,
}

impl BlockId {
    /// The block of that height and hash.
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

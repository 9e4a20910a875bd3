//! The interface of the sources of old states.

use super::plan::Failure;
use alloy_primitives::B256;

/// Result of a read.
pub(super) struct Found {
    pub(super) nonce: Option<u64>,
    /// The state root that the nodes lead to, if there are any.
    pub(super) root: Option<B256>,
    /// Number of nodes that were read.
    pub(super) nodes: u64,
}

/// Reads accounts at old blocks.
pub(super) trait OldStates: Sync {
    /// Reads an account after a block, through the trie if there is one. `root` is the state root.
    fn read(&self, index: u64, number: u64, root: B256) -> Result<Found, Failure>;

    /// Adds the block after the newest one, which changes some accounts, durably.
    fn import(&self, indices: &[u64]) -> Result<(), Failure>;

    /// Keys that were looked up so far, where they are counted.
    fn look_ups(&self) -> u64 {
        0
    }

    /// Device reads for pages of the history, and waits for them.
    fn history_reads(&self) -> (u64, u64) {
        (0, 0)
    }
}

//! What a shard has applied, and where it was in the stream.

use crate::replication::{FollowerState, StreamPosition};
use cambium_primitives::BlockId;
use std::collections::BTreeMap;

/// The blocks that were applied and are not final, by where they were in the stream, and with the state of the follower before
/// each: who starts from an older block has to read them again.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// By position, and by a number of their own where several were needed for one record.
    applied: BTreeMap<(StreamPosition, u64), (BlockId, FollowerState)>,
    next: u64,
}

impl Progress {
    pub(super) fn add(&mut self, at: StreamPosition, block: BlockId, before: FollowerState) {
        self.applied.insert((at, self.next), (block, before));
        self.next += 1;
    }

    /// Forgets the blocks up to a height.
    pub(super) fn finalize(&mut self, number: u64) {
        self.applied.retain(|_, (block, _)| block.number > number);
    }

    /// The state from which a follower sees all blocks above a height; `None` if none was applied.
    pub(super) fn state_for(&self, number: u64) -> Option<&FollowerState> {
        let mut above = self
            .applied
            .values()
            .filter(|(block, _)| block.number > number);
        above.next().map(|(_, state)| state)
    }
}

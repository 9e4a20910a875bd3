//! The range of heights whose blocks are kept, and metadata of blocks.

use alloy_primitives::{B256, Bytes};
use cambium_primitives::BlockId;
use cambium_state::BlockMeta;

/// Heights below the head, and above it, whose blocks can be built upon.
pub(crate) const WINDOW: u64 = 8;

/// Whether a block is of one of the heights that are kept while the head has that number.
pub(crate) const fn is_near(number: u64, head: u64) -> bool {
    number + WINDOW > head && number <= head + WINDOW
}

pub(crate) fn meta(id: BlockId, parent: B256, state_root: B256) -> BlockMeta {
    BlockMeta {
        id,
        parent,
        state_root,
        body: Bytes::from_static(b"body"),
    }
}

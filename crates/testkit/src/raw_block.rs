//! Blocks as a file gives them, from memory.

use alloy_primitives::Bytes;
use cambium_chain::{FilePosition, RawBlock};

/// Returns a block, given as RLP with its access list, as the item of a file with this index.
pub fn raw_block(index: u64, rlp: Bytes, access_list: Option<Bytes>) -> RawBlock {
    RawBlock {
        rlp,
        receipts: None,
        total_difficulty: None,
        access_list,
        update: None,
        place: FilePosition {
            item: "block",
            file: "memory".into(),
            offset: 0,
            index,
            after: None,
            unpacked: false,
        },
    }
}

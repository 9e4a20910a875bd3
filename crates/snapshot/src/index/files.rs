//! The chain of checkpoints that an index is stored in, and when to begin a new one.

use super::section::{CHANGED, CHANGES, INDEX, TOPS};
use cambium_store::CheckpointId;

/// The chain of checkpoints that an index is stored in: one with a whole index, and those after it
/// with changes.
#[derive(Clone, Copy)]
pub struct IndexChain {
    /// Last checkpoint of the chain.
    pub(super) newest: CheckpointId,
    /// Size of the whole index in the first checkpoint, in bytes. 0 if its parts are in the segments.
    whole_bytes: u64,
    /// Size of all changes in the later checkpoints, in bytes.
    changed_bytes: u64,
}

impl IndexChain {
    /// Appends the checkpoint `newest` to the chain `before`, or begins a chain with it. `bytes_of`
    /// returns the lengths of its sections, in bytes.
    pub(crate) fn new(
        newest: CheckpointId,
        bytes_of: impl Fn(&str) -> Option<u64>,
        before: Option<Self>,
    ) -> Self {
        let len_of = |name| bytes_of(name).unwrap_or(0);
        match before {
            None => Self {
                newest,
                whole_bytes: bytes_of(INDEX).map_or(0, |parts| parts + len_of(TOPS)),
                changed_bytes: 0,
            },
            Some(before) => Self {
                newest,
                changed_bytes: before.changed_bytes + len_of(CHANGES) + len_of(CHANGED),
                ..before
            },
        }
    }

    /// Sequence number of the last checkpoint.
    pub const fn sequence(&self) -> u64 {
        self.newest.sequence
    }

    /// Whether the next checkpoint should contain a whole index, because changes take as many bytes
    /// as the whole index before them. This bounds disk space and the work of opening to twice that
    /// of a whole index. No checkpoint is on one whose parts are in the segments.
    pub const fn is_whole_due(&self) -> bool {
        self.changed_bytes >= self.whole_bytes
    }
}

//! In which checkpoints an index is.

use super::section::{CHANGED, CHANGES, INDEX, TOPS};
use cambium_store::CheckpointId;

/// Where an index is durable: in a checkpoint, and those that it is on.
#[derive(Clone, Copy)]
pub struct IndexFiles {
    pub(super) newest: CheckpointId,
    /// Bytes of the whole index in the first of them.
    whole_bytes: u64,
    /// Bytes of all changes since.
    changed_bytes: u64,
}

impl IndexFiles {
    /// `bytes_of` tells the lengths of sections of the checkpoint `newest`, and `before` what it is
    /// on.
    pub(crate) fn new(
        newest: CheckpointId,
        bytes_of: impl Fn(&str) -> Option<u64>,
        before: Option<Self>,
    ) -> Self {
        let bytes_of = |names: [&str; 2]| names.into_iter().filter_map(&bytes_of).sum::<u64>();
        match before {
            None => Self {
                newest,
                whole_bytes: bytes_of([INDEX, TOPS]),
                changed_bytes: 0,
            },
            Some(before) => Self {
                newest,
                changed_bytes: before.changed_bytes + bytes_of([CHANGES, CHANGED]),
                ..before
            },
        }
    }

    /// The number of the newest of them.
    pub const fn sequence(&self) -> u64 {
        self.newest.sequence
    }

    /// Whether the next checkpoint should have a whole index: when changes have taken as many bytes
    /// as one. So files, and opening, take no more than twice of what they must.
    pub const fn is_whole_due(&self) -> bool {
        self.changed_bytes >= self.whole_bytes
    }
}

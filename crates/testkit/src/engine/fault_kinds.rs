//! Kinds of faults that a run injects.

use cambium_state::{StateError, StoreError};

/// Kinds of faults that a run injects into the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultKinds {
    /// Power losses, failing writes and syncs, and a full disk.
    pub failures: bool,
    /// Reads and openings of files that fail once or a few times.
    pub reads: bool,
    /// Files that rot, are truncated or lost while the database is closed.
    pub rot: bool,
    /// Writes that report success, and are lost or go elsewhere.
    pub lies: bool,
}

impl FaultKinds {
    /// No faults.
    pub const NONE: Self = Self {
        failures: false,
        reads: false,
        rot: false,
        lies: false,
    };

    pub(super) fn are_any(self) -> bool {
        self != Self::NONE
    }
}

/// Whether an error is one that a fault of the disk explains.
pub(super) fn is_of_the_disk(error: &StateError, kinds: FaultKinds) -> bool {
    match error {
        StateError::Store(StoreError::Disk(_) | StoreError::Poisoned { .. })
        | StateError::Poisoned(_) => true,
        error => kinds.lies && error.is_damage(),
    }
}

//! The kinds of faults that a run may ask for.

use cambium_state::{StateError, StoreError};

/// What may befall the disk in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultKinds {
    /// Power fails, writes and syncs fail, and the disk is full now and then.
    pub failures: bool,
    /// Reads and openings of files fail, once or a few times.
    pub reads: bool,
    /// A file rots, is cut short or lost while the database is closed.
    pub rot: bool,
    /// Writes are lost, or go elsewhere, although they were reported as done.
    pub lies: bool,
}

impl FaultKinds {
    /// None at all.
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

//! State of the `layered` commitment: the upper tries at the newest blocks, and the roots of the
//! snapshots on which they stand. `docs/COMMITMENTS.md` has the definition.
//!
//! The *snapshot* of the commitment is the state after a certain block. It is independent of the
//! state in the pages, and of the times of merges.

pub(crate) mod intervals;
pub(crate) mod uppers;
pub(crate) mod snapshot_roots;
pub(crate) mod parts;

//! What the `layered` commitment adds to a database: the upper tries at the newest blocks, and the
//! roots of the snapshots on which they stand. `docs/COMMITMENTS.md` has the definition.
//!
//! The *snapshot* of the commitment is the state after a certain block, whatever the pages hold: it
//! has nothing to do with when merges happen.

pub(crate) mod intervals;
pub(crate) mod uppers;
pub(crate) mod snapshot_roots;
pub(crate) mod parts;

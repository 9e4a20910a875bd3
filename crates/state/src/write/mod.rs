//! The write path: reverts, sessions, roots, sealing, commits, moves of the head, and merges into pages.

pub(crate) mod reverts;
pub(crate) mod merge;
pub(crate) mod catch_up;
pub(crate) mod pacing;
mod references;
pub(crate) mod roots;
pub(crate) mod layered;
pub(crate) mod seal;
pub(crate) mod sealed;
pub(crate) mod session;
mod moves;
pub(crate) mod commit;
pub(crate) mod head;

//! The database: creating, opening, inspecting, checking and copying it.

pub(crate) mod handle;
pub(crate) mod held;
pub(crate) mod unfinished;
pub(crate) mod assemble;
pub(crate) mod leftovers;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod open;
pub(crate) mod create;
pub(crate) mod readers;
pub(crate) mod counters;
pub(crate) mod stats;
pub(crate) mod metrics;
pub(crate) mod check;
pub(crate) mod backup;

//! Reads from a snapshot: single keys, batches, and the slots of an account.

pub(crate) mod snapshot;
pub(crate) mod batch;
pub(crate) mod ahead;
pub(crate) mod explore;

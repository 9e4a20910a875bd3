//! Views: reading the state at one block, key by key or in batches.

pub(crate) mod state;
pub(crate) mod batch;
pub(crate) mod entries;
pub(crate) mod ahead;

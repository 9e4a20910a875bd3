//! Reading the state at one block.

pub(crate) mod snapshot;
pub(crate) mod batch;

//! The state at one block, as it is read.

pub(crate) mod state;
pub(crate) mod batch;

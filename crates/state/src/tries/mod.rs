//! The tries of blocks above the base.

pub(crate) mod shards;
pub(crate) mod base;
pub(crate) mod resolve;
pub(crate) mod update;
pub(crate) mod delta;

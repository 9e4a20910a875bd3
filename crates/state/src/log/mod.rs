//! The block log: what its records are, where blocks are in it, and which of them are kept.

pub(crate) mod records;
pub(crate) mod kept;
pub(crate) mod blocks;
pub(crate) mod log_state;
pub(crate) mod block_index;
pub(crate) mod access;
pub(crate) mod journal;

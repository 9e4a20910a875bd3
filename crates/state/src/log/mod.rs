//! The block log of an open database: its records, the place of each block in it, and which blocks
//! it keeps.

pub(crate) mod records;
pub(crate) mod finality;
pub(crate) mod references;
pub(crate) mod kept;
pub(crate) mod blocks;
pub(crate) mod following;
pub(crate) mod log_state;
pub(crate) mod block_index;
pub(crate) mod access;
pub(crate) mod journal;

//! Views: reading the state at one block, key by key or in batches.

mod merged;
pub(crate) mod state;
mod read;
pub(crate) mod batch;
pub(crate) mod known;
mod in_order;
mod by_address;
pub(crate) mod entries;
pub(crate) mod ahead;

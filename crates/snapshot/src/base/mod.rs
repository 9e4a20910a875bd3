//! Foundation of the crate: errors, counters, thread pools, the memory budget, and the mapping
//! between tries, pages and keys.

pub(crate) mod error;
pub(crate) mod sync;
pub(crate) mod histogram;
pub(crate) mod counters;
pub mod pool;
pub(crate) mod budget;
pub(crate) mod layout;
pub(crate) mod hashing;
pub(crate) mod key;
pub(crate) mod kept_storage;

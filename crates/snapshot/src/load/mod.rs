//! Loading an initial state: builds a state of any size from accounts and slots in any order, with
//! bounded memory.
//!
//! ```text
//!  accounts, slots     in any order                                   buckets.rs
//!    -> 256 buckets    by first byte of the path, spilled when large  leaf_bucket.rs
//!    -> sorted         bucket by bucket, on all cores                 sort.rs
//!    -> roots          of storages that a partial database drops      partial.rs
//!    -> pages, root    shard by shard, some leaves at a time          build.rs
//! ```
//!
//! Data that does not fit into memory is spilled to disk: about 45 bytes for each account or slot,
//! and twice that in a bucket that exceeds the memory of the thread that sorts it.

mod leaf_bucket;
mod sort;
mod build;
mod partial;
mod buckets;

pub use buckets::{LeafBuckets, LoadProgress, RootLoader};
pub use leaf_bucket::remove_spilled;
pub(crate) use leaf_bucket::{Piece, SpillFile};
pub use partial::root_of_slots;

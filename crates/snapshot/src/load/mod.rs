//! A state of any size from accounts and slots in any order, within the memory that it is given.
//!
//! ```text
//!  accounts, slots     in any order
//!    -> 256 buckets    by first byte of the path, spilled when large  leaf_bucket.rs
//!    -> sorted         bucket by bucket, on all cores                 sort.rs
//!    -> pages, root    a part of a shard at a time                    build.rs
//! ```
//!
//! What does not fit into memory is spilled to the disk: about 45 bytes an account and a slot,
//! twice as much for those of an account that alone exceeds the memory.

mod leaf_bucket;
mod sort;
mod build;
mod buckets;

pub use buckets::{Buckets, LoadProgress, RootLoader};
pub use leaf_bucket::remove_spilled;
pub(crate) use leaf_bucket::{Piece, SpillFile};

//! The processes of shards and of builders: what they start from, how they follow the stream or write it, and what they keep.
//!
//! ```text
//!   start     newest snapshot in the folder ---> journal from there on ---> the stream from there on
//!             or one from the object store, a replica, or a database
//!   record    judged (Follower) ---> applied and verified (Shard) ---> journal
//!             a block that is missing comes from a replica or a builder, by hash
//!   choice    blocks become final ---> now and then a snapshot; older records leave the journal
//! ```
//!
//! | file | content |
//! |---|---|
//! | `peers` | others that may have what is missing |
//! | `files` | snapshots in the shard's folder |
//! | `figures` | what becomes of records, for collectors |
//! | `progress` | what was applied where in the stream |
//! | `shard_figures` | what a shard's process counts and shows, for collectors |
//! | `shard_process` | the process itself: its folder, what it does about each record |
//! | `run` | how it follows a stream |
//! | `note` | where a database is in the stream |
//! | `database` | a database that follows a stream |
//! | `builder_figures` | what a builder counts and shows, for collectors |
//! | `builder_process` | the process of a builder: submissions in, signed blocks out |

mod peers;
mod files;
mod figures;
mod progress;
mod shard_figures;
mod shard_process;
mod run;
mod note;
mod database;
mod builder_figures;
mod builder_process;

pub use builder_process::{
    BuilderOptions, BuilderProcess, BuilderProcessError, Paused, ShardProgress,
};
pub use database::{DatabaseFigures, FollowError, Followed, FollowingDatabase};
pub use peers::{Peer, RemotePeer};
pub use shard_process::{ProcessError, ProcessOptions, ShardProcess, Taken};

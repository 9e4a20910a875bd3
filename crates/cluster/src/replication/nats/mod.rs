//! The stream, leases, placement and snapshots on NATS JetStream.
//!
//! | what | where |
//! |---|---|
//! | records | stream `NAME`, one subject; files, replicated, refuses what exceeds its limit of bytes |
//! | epoch, placement, pointers to snapshots | key-value bucket `NAME-state` |
//! | members, each with a lease | key-value bucket `NAME-members`, whose entries expire |
//! | snapshots of shards | object store `NAME-snapshots` |
//!
//! The functions wait for the network: they are called from threads of their own, never from one that runs asynchronous tasks. The
//! servers have to sync each write (`sync_interval: always`): by default they lose two minutes of acknowledged records with
//! the power.

mod connection;
mod part;
mod read;
mod append;
mod registry;
mod snapshots;

pub use append::NatsStream;
pub use connection::{Nats, NatsError, NatsOptions, NatsTls};
pub use registry::{Lease, Member, Placement, Registry};
pub use snapshots::{SnapshotPointer, Snapshots};

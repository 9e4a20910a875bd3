//! Shards, readers and what is between them, against whole tries.

mod common;

mod builders;
mod lies;
mod messages;
mod promises;
mod readers;
mod replication;
mod replication_journal;
mod replication_nats;
mod replication_simulation;
mod shards;

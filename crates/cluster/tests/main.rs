//! Shards, readers and what is between them, against whole tries.

mod common;

mod builder_process;
mod builders;
mod databases;
mod hostile_process;
mod hostile_shards;
mod lies;
mod messages;
mod metrics;
mod nats_files;
mod processes;
mod promises;
mod readers;
mod remote;
mod replication;
mod replication_journal;
mod replication_nats;
mod replication_simulation;
mod shards;
mod snapshots;
mod wire;

//! What a process of this benchmark is told to do.

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    Shard(ShardTask),
    Builder(BuilderTask),
}

/// A shard that follows a stream.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShardTask {
    pub(super) index: usize,
    pub(super) count: usize,
    pub(super) snapshot: PathBuf,
    pub(super) folder: PathBuf,
    /// Of the NATS servers.
    pub(super) urls: Vec<String>,
    pub(super) chain_id: u64,
    pub(super) builder: Address,
}

/// A builder of blocks of payments, with shards of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BuilderTask {
    /// Of the NATS servers.
    pub(super) urls: Vec<String>,
    pub(super) accounts: u64,
    /// Payments of a block.
    pub(super) payments: u64,
    pub(super) blocks: usize,
    /// Most blocks that are not acknowledged.
    pub(super) in_flight: usize,
}

//! Others that may have what a shard is missing: replicas, and builders. Nothing of theirs is believed unverified, but for the note of a
//! snapshot: where its follower is in the stream, and which epoch is open there. A peer that lies in it makes a shard miss blocks, and
//! never serve false ones.

use crate::{
    range::ShardRange,
    replication::{Follower, SignedUpdate},
    rpc::{ShardClient, Wanted},
    shard::{Shard, ShardLimits},
    snapshot::SnapshotError,
};
use alloy_primitives::B256;
use tokio::runtime::Handle;

/// A replica or a builder.
pub trait Peer: Send + Sync {
    /// Its address or name.
    fn name(&self) -> String;

    /// A record of the stream; `None` if it does not have it.
    ///
    /// # Errors
    ///
    /// What it or the network says.
    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String>;

    /// The oldest state that it has, verified to be that of a block, and the state of its follower.
    ///
    /// # Errors
    ///
    /// If it has none, or a damaged one.
    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError>;
}

/// A peer in another process. It waits on the calling thread, which must not be one of the runtime.
#[derive(Clone, Debug)]
pub struct RemotePeer {
    client: ShardClient,
    runtime: Handle,
}

impl RemotePeer {
    /// The peer that `client` is a way to.
    pub const fn new(client: ShardClient, runtime: Handle) -> Self {
        Self { client, runtime }
    }
}

impl Peer for RemotePeer {
    fn name(&self) -> String {
        self.client.address().to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        self.runtime.block_on(self.client.record(wanted))
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        self.runtime.block_on(self.client.snapshot(range, limits))
    }
}

/// A block that a peer has, verified to be the one with its hash, and signed.
pub(super) struct Answer {
    /// Its place among the peers.
    pub(super) peer: usize,
    pub(super) update: SignedUpdate,
    pub(super) record: Vec<u8>,
}

impl Answer {
    /// What the first of the peers from `from` on has that has the block.
    pub(super) fn first(
        peers: &[Box<dyn Peer>],
        from: usize,
        follower: &Follower,
        hash: B256,
    ) -> Option<Self> {
        let mut peers = peers.iter().enumerate().skip(from);
        peers.find_map(|(peer, asked)| {
            let record = asked.record(Wanted::Block(hash)).ok().flatten()?;
            let update = follower.verify_block(hash, &record).ok().flatten()?;
            Some(Self {
                peer,
                update,
                record,
            })
        })
    }
}

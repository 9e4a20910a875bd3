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
use cambium_primitives::BlockId;
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

/// What peers have of a block and those before it.
pub(super) enum Fetched {
    /// All that is missing, parents first, each with its record.
    Blocks(Vec<(SignedUpdate, Vec<u8>)>),
    /// The block does not descend from the oldest one.
    Lost,
    /// Nobody has all of them.
    Nothing,
}

/// Which blocks are missing.
pub(super) struct MissingBlocks<'a> {
    pub(super) is_known: &'a dyn Fn(BlockId) -> bool,
    /// Height of the oldest block on which others can be built.
    pub(super) oldest: u64,
    /// Most blocks to get.
    pub(super) most: usize,
}

impl MissingBlocks<'_> {
    /// Gets a block that is missing, and those before it that are, by hash. They are verified to be what they are asked for, and
    /// signed.
    pub(super) fn fetch(
        &self,
        peers: &[Box<dyn Peer>],
        follower: &Follower,
        hash: B256,
    ) -> Fetched {
        let (mut chain, mut wanted) = (Vec::new(), hash);
        loop {
            let mut found = peers.iter().filter_map(|peer| {
                let bytes = peer.record(Wanted::Block(wanted)).ok().flatten()?;
                let update = follower.verify_block(wanted, &bytes).ok().flatten()?;
                Some((update, bytes))
            });
            let Some((update, bytes)) = found.next() else {
                return Fetched::Nothing;
            };
            let number = update.id().number;
            if number <= self.oldest {
                return Fetched::Lost;
            }
            if chain.len() == self.most {
                return Fetched::Nothing;
            }
            wanted = update.parent();
            chain.push((update, bytes));
            if (self.is_known)(BlockId::new(number - 1, wanted)) {
                break;
            }
            if number - 1 <= self.oldest {
                return Fetched::Lost;
            }
        }
        chain.reverse();
        Fetched::Blocks(chain)
    }
}

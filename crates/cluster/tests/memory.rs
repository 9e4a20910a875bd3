//! Memory of a database that gets a long chain from its peers: allocations are counted, in a process of their own.

#[expect(dead_code, reason = "helpers of the other tests")]
mod common;

use alloy_primitives::B256;
use cambium_cluster::{
    BlockUpdate, Peer, Record, Shard, ShardLimits, ShardRange, SnapshotError, Taken, Wanted,
};
use cambium_primitives::BlockId;
use cambium_testkit::{CountingAllocator, most_during, say};
use common::{
    databases::{Kept, MOMENT, Node, chosen, opened, signer, workload},
    stream::{bare_update, item},
};
use std::collections::HashMap;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A chain of large blocks that a builder has signed, which are made when they are asked for.
struct Long {
    blocks: HashMap<B256, BlockId>,
}

const BYTES: usize = 1 << 20;

impl Long {
    fn block(parent: BlockId) -> BlockUpdate {
        let mut update = bare_update(parent, parent.number);
        update.body = vec![0xc0; BYTES].into();
        update
    }

    fn on(first: BlockId, count: u64) -> (Self, BlockId) {
        let (mut blocks, mut head) = (HashMap::new(), first);
        for _ in 0..count {
            let next = Self::block(head).id();
            blocks.insert(next.hash, head);
            head = next;
        }
        (Self { blocks }, head)
    }
}

impl Peer for Long {
    fn name(&self) -> String {
        "the shards".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let Wanted::Block(hash) = wanted else {
            return Ok(None);
        };
        let parent = self.blocks.get(&hash);
        Ok(parent.map(|&parent| {
            let update = signer().sign_update(1, Self::block(parent));
            Record::from(update).encode()
        }))
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        Kept::default().snapshot(range, limits)
    }
}

/// Promise: of records on the way back through a chain so many bytes are kept, and the others are asked for again.
#[test]
fn a_long_chain_of_large_blocks_takes_little_memory() {
    let workload = workload();
    let node = Node::new(&workload, 1, None, &Kept::default());
    let genesis = node.chain().db().head();
    let blocks = 400;
    let (long, head) = Long::on(genesis, blocks);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(long)];
    node.follow_with(peers, MOMENT, |database| {
        database.take(&item(1, opened())).unwrap();
        let choice = chosen(1, head, genesis, genesis);
        let (taken, most) = most_during(|| database.take(&item(2, choice)).unwrap());
        say(&format!(
            "{blocks} blocks of {BYTES} bytes took {most} bytes"
        ));
        assert_eq!(
            taken,
            Taken::Judged,
            "all are there, and the first is false"
        );
        assert_eq!(database.followed().refused, 1);
        assert!(most < 100 * BYTES, "{most} bytes");
    });
}

//! Chains that are served.

pub mod consensus;
pub mod rest;
pub mod serving;
pub mod signing;

use cambium_chain::ChainSealer;
use cambium_chain::{BlockSource, Chain, Fork, InitOptions};
use cambium_index::{ChainIndex, IndexOptions};
use cambium_node::Node;
use cambium_rpc::{Limits, Methods, Pool, PoolLimits, Served, Service};
use cambium_state::FaultyDisk;
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use serde_json::Value;
use std::{path::Path, sync::Arc};

/// The chain of a genesis file and a file of blocks, with an index. The head is final.
pub fn chain_of(genesis: &Path, blocks: &Path) -> Chain {
    let disk: Arc<FaultyDisk> = Arc::new(FaultyDisk::new(1));
    let chain = Chain::init(disk.clone(), genesis, InitOptions::default(), &mut |_| {}).unwrap();
    let index = ChainIndex::create(disk, chain.db(), 0, IndexOptions::default()).unwrap();
    let chain = chain.with_index(index);
    let source = BlockSource::open(blocks).unwrap();
    chain.import(source, &mut |_| {}).unwrap();
    let head = chain.db().head();
    chain
        .set_canonical(head.hash, Some(head.hash), Some(head.hash))
        .unwrap();
    chain
}

/// A chain of payments and tokens, with an index.
pub fn workload_chain(blocks: u64) -> Chain {
    let (workload, chain) = made(blocks);
    let genesis = chain.block(0).unwrap().header;
    workload
        .generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))
        .unwrap();
    chain
}

/// The same without blocks.
pub fn workload_genesis() -> Chain {
    made(0).1
}

/// A workload with its genesis block.
pub fn made(blocks: u64) -> (Workload, Chain) {
    made_at(blocks, WorkloadParams::default().fork)
}

/// A workload with its genesis block, at a fork.
pub fn made_at(blocks: u64, fork: Fork) -> (Workload, Chain) {
    made_on(Arc::new(FaultyDisk::new(2)), blocks, fork)
}

/// The same on a disk.
pub fn made_on(disk: Arc<FaultyDisk>, blocks: u64, fork: Fork) -> (Workload, Chain) {
    let workload = Workload::new(WorkloadParams {
        fork,
        accounts: 500,
        senders: Some(100),
        holders: Some(100),
        blocks,
        block_size: BlockSize::Transactions(20),
        ..WorkloadParams::default()
    })
    .unwrap();
    let chain = workload
        .init(disk.clone(), InitOptions::default(), &mut |_| {})
        .unwrap();
    let index = ChainIndex::create(disk, chain.db(), 0, IndexOptions::default()).unwrap();
    (workload, chain.with_index(index))
}

/// All methods of a chain, with a pool and building for tests.
pub fn service_of(chain: Chain, limits: Limits) -> Service {
    let served = served_of(chain, limits, PoolLimits::default());
    Service::new(served, Methods::of_chain().with_testing())
}

/// A chain with a pool.
pub fn served_of(chain: Chain, limits: Limits, pool: PoolLimits) -> Arc<Served> {
    let node = Node::of_chain(chain);
    node.build_index(&mut |_| true).unwrap();
    let served = Served::new(Arc::new(node), limits);
    Arc::new(served.with_pool(Arc::new(Pool::new(pool))))
}

/// The answer to a request.
pub fn ask(service: &Service, request: &str) -> Value {
    serde_json::from_slice(&service.call(request.as_bytes())).unwrap()
}

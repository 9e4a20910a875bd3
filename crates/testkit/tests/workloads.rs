//! Generated blocks, independent and conflicting, by every executor: on the naive model, and on
//! the engine.

use cambium_chain::{Block, Chain, ChainError, ChainSealer, Fork, GenesisPart};
use cambium_evm::{BlockExecutor, ExecutorKind};
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{Backend, NaiveChain, genesis_state};
use cambium_workload::{BlockSealer, BlockSize, Spread, Workload, WorkloadParams};
use serde_json::{Value, json};
use std::{num::NonZeroUsize, sync::Arc};

/// All kinds of transactions, from and to few accounts, in few pools.
fn params() -> WorkloadParams {
    WorkloadParams {
        accounts: 120,
        senders: Some(30),
        holders: Some(60),
        pools: 3,
        slots: 600,
        blocks: 4,
        block_size: BlockSize::Transactions(25),
        erc20_percent: 30,
        swap_percent: 40,
        slot_read_percent: 10,
        slot_read_gas: 300_000,
        ..WorkloadParams::default()
    }
}

fn empty(workload: &Workload) -> Chain {
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let disk = Arc::new(FaultyDisk::new(1));
    workload.init(disk, options, &mut |_| {}).unwrap()
}

/// The naive model of a workload's genesis block.
fn naive(workload: &Workload, chain: &Chain) -> NaiveChain {
    let mut accounts = Vec::new();
    let listed = workload.for_each_part(|part| {
        let GenesisPart::Account(address, account) = part else {
            return Err("few slots are in one piece");
        };
        accounts.push((address, account));
        Ok(())
    });
    listed.unwrap();
    let (changes, codes) = genesis_state(accounts);
    let genesis = chain.block(0).unwrap().header;
    NaiveChain::new(chain.spec().clone(), genesis, changes, codes).unwrap()
}

/// Seals blocks whose headers have the beacon chain's slot from Amsterdam on.
struct SlotSealer<'a>(&'a Chain);

impl BlockSealer for SlotSealer<'_> {
    type Error = ChainError;

    fn seal(&mut self, mut draft: Block) -> Result<Block, ChainError> {
        let header = &mut draft.header;
        let amsterdam = self.0.spec().amsterdam_time;
        let is_amsterdam = amsterdam.is_some_and(|time| time <= header.timestamp);
        header.slot_number = is_amsterdam.then_some(header.number);
        ChainSealer(self.0).seal(draft)
    }
}

fn is_executed_alike(params: WorkloadParams) {
    let workload = Workload::new(params).unwrap();
    is_executed_alike_on(&workload, || empty(&workload));
}

/// Generates the chain on the engine, and imports it by every executor into the naive model, which
/// compares them, and into the engine. `empty` makes a chain of the genesis block.
fn is_executed_alike_on(workload: &Workload, empty: impl Fn() -> Chain) {
    let made = empty();
    let mut naive = naive(workload, &made);
    let threads = NonZeroUsize::new(3).unwrap();
    let imported = ExecutorKind::ALL.map(|kind| {
        let executor = BlockExecutor::new(kind).with_threads(threads);
        empty().with_executor(executor.with_gas_min(0))
    });
    let genesis = made.block(0).unwrap().header;
    let import = |block: &Block| {
        let rlp = alloy_rlp::encode(block);
        let list = made.access_list(block.header.number)?.encode();
        // Of an earlier fork the model makes the list itself.
        let named = block.header.block_access_list_hash.map(|_| &list[..]);
        naive.import(&rlp, named).unwrap();
        for chain in &imported {
            chain.import_block(rlp.clone().into(), Some(&list))?;
            let root = chain.db().view()?.state_root();
            assert_eq!(root, naive.state_root(), "{:?}", chain.executor());
        }
        Ok(())
    };
    let head = workload.generate(&genesis, &mut SlotSealer(&made), import);
    assert_eq!(head.unwrap().number, workload.params().blocks);
}

#[test]
fn all_kinds_of_transactions_are_executed_alike() {
    for fork in [Fork::Prague, Fork::Amsterdam] {
        is_executed_alike(WorkloadParams { fork, ..params() });
    }
}

#[test]
fn a_chain_goes_from_bpo2_to_amsterdam() {
    let workload = Workload::new(params()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("genesis.json");
    let mut json = Vec::new();
    workload.write_genesis(&mut json).unwrap();
    let mut genesis: Value = serde_json::from_slice(&json).unwrap();
    let start = workload.genesis().timestamp;
    let config = &mut genesis["config"];
    config["bpo1Time"] = json!(0);
    config["bpo2Time"] = json!(0);
    config["amsterdamTime"] = json!(start + 25);
    config["blobSchedule"]["bpo2"] =
        json!({ "target": 14, "max": 21, "baseFeeUpdateFraction": 11_684_671 });
    std::fs::write(&file, genesis.to_string()).unwrap();
    let empty = || {
        let disk = Arc::new(FaultyDisk::new(1));
        Chain::init(disk, &file, Options::default(), &mut |_| {}).unwrap()
    };
    let spec = empty().spec().clone();
    assert_eq!(spec.fork_at(2, start + 24, true), Fork::Osaka);
    assert_eq!(spec.fork_at(3, start + 36, true), Fork::Amsterdam);
    is_executed_alike_on(&workload, empty);
}

#[test]
fn conflicting_transactions_are_executed_alike() {
    is_executed_alike(WorkloadParams {
        fresh_percent: 0,
        spread: Spread::Hot(100),
        pool_spread: Spread::Hot(100),
        ..params()
    });
    is_executed_alike(WorkloadParams {
        accounts: 2,
        senders: Some(1),
        holders: None,
        spread: Spread::Zipf,
        ..params()
    });
}

#[test]
fn independent_transactions_are_executed_alike() {
    is_executed_alike(WorkloadParams {
        pools: 25,
        spread: Spread::Distinct,
        pool_spread: Spread::Distinct,
        ..params()
    });
}

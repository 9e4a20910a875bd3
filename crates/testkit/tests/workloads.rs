//! Generated blocks, independent and conflicting, by every executor: on the naive model, and on
//! the engine.

use alloy_primitives::keccak256;
use cambium_chain::{
    Block, BlockSize, Chain, ChainSealer, Fork, GenesisPart, Spread, Workload, WorkloadParams,
};
use cambium_evm::{BlockExecutor, ExecutorKind};
use cambium_primitives::{Account, AccountChange, AccountUpdate, Changes, KECCAK_EMPTY};
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{Backend, NaiveChain};
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
    Chain::init_workload(disk, workload, options, &mut |_| {}).unwrap()
}

/// The naive model of a workload's genesis block.
fn naive(workload: &Workload, chain: &Chain) -> NaiveChain {
    let (mut changes, mut codes) = (Vec::new(), Vec::new());
    let listed = workload.for_each_part(|part| {
        let GenesisPart::Account(address, account) = part else {
            return Err("few slots are in one piece");
        };
        let code_hash = match account.code.is_empty() {
            true => KECCAK_EMPTY,
            false => keccak256(&account.code),
        };
        codes.push((code_hash, account.code));
        let slots = account.storage.iter();
        changes.push(AccountChange {
            path: keccak256(address),
            account: AccountUpdate::Put(Account {
                nonce: account.nonce,
                balance: account.balance,
                code_hash,
            }),
            wipe: false,
            slots: slots
                .map(|(slot, value)| (keccak256(slot), *value))
                .collect(),
        });
        Ok(())
    });
    listed.unwrap();
    let genesis = chain.block(0).unwrap().header;
    let spec = workload.params().spec();
    NaiveChain::new(spec, genesis, Changes::new(changes), codes).unwrap()
}

/// Generates the chain on the engine, and imports it by every executor into the naive model, which
/// compares them, and into the engine.
fn is_executed_alike(params: WorkloadParams) {
    let workload = Workload::new(params).unwrap();
    let made = empty(&workload);
    let mut naive = naive(&workload, &made);
    let threads = NonZeroUsize::new(3).unwrap();
    let imported = ExecutorKind::ALL.map(|kind| {
        let executor = BlockExecutor::new(kind).with_threads(threads);
        empty(&workload).with_executor(executor.with_gas_min(0))
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
    let head = workload.generate(&genesis, &mut ChainSealer(&made), import);
    assert_eq!(head.unwrap().number, workload.params().blocks);
}

#[test]
fn all_kinds_of_transactions_are_executed_alike() {
    for fork in [Fork::Prague, Fork::Amsterdam] {
        is_executed_alike(WorkloadParams { fork, ..params() });
    }
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

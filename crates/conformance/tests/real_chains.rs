//! Real blocks: mainnet's, and a chain that other clients made.

use cambium_conformance::{
    BridgedBatch, MainnetBlocks, MainnetData, MainnetProofs, MainnetReplays, import_client_chains,
    import_execution_apis_chain, run_suite,
};
use cambium_evm::{BatchBlock, Executor, Hooks, Outcome, Sequential, execute_batch};
use cambium_testkit::{EngineChain, Model, NaiveChain, Unanimous, assert_same_outcome, say};
use std::num::NonZeroUsize;

#[test]
fn mainnet_blocks_give_the_gas_receipts_and_states_that_they_gave() {
    let Some(suite) = MainnetBlocks::new(Unanimous::default()) else {
        return;
    };
    run_suite(&suite).conclude(42);
    let unchecked = suite.receipts_unchecked();
    say(&format!(
        "  receipts' root not compared, for want of whole states: {unchecked} blocks"
    ));
    let tries = suite.tries_checked();
    say(&format!(
        "  known roots after compared with our own trie's: {tries} blocks"
    ));
    assert_eq!(tries, 36, "all from block 2,675,000 on");
    assert_eq!(unchecked, 10, "all blocks before Byzantium, and no other");
}

#[test]
fn the_execution_apis_chain_is_imported_to_its_head() {
    import_execution_apis_chain::<NaiveChain>();
    import_execution_apis_chain::<EngineChain>();
}

#[test]
fn chains_of_other_clients_tests_are_imported_to_their_heads() {
    import_client_chains::<NaiveChain>();
    import_client_chains::<EngineChain>();
}

#[test]
fn mainnet_blocks_replayed_under_amsterdam_give_their_access_lists() {
    let executor = Unanimous::default();
    let Some(suite) = MainnetReplays::new(executor.clone()) else {
        return;
    };
    run_suite(&suite).conclude(14);
    assert_eq!(
        executor.listed(),
        14 * 3,
        "by all executors that take lists"
    );
    let (mut full, mut batched, mut parallel) = (0, 0, 0);
    for sizes in suite.sizes().values() {
        full += sizes.full;
        batched += sizes.batched;
        parallel += sizes.parallel;
        assert!(sizes.parallel < sizes.batched && sizes.batched < sizes.full);
    }
    say(&format!(
        "  bytes of their lists: {full} with values read, {batched} with keys read, \
         {parallel} of changes alone"
    ));
}

fn at_once(blocks: &[BatchBlock<'_>], state: &Model) -> Vec<Option<Outcome>> {
    let mut outcomes = Vec::new();
    let threads = NonZeroUsize::new(16).expect("sixteen");
    execute_batch(blocks, state, threads, |_, outcome, _| {
        outcomes.push(outcome);
        true
    });
    outcomes
}

#[test]
fn mainnet_blocks_with_bridges_between_them_executed_at_once_give_what_they_give_one_by_one() {
    let Some(data) = MainnetData::open() else {
        return;
    };
    let replays = data.replays().into_iter().map(|number| {
        let block = data.replay(number).expect("a replay");
        let outcome = Sequential.execute(&block.input(), &block.state, Hooks::default());
        (block, outcome.expect("a valid block"))
    });
    let replays: Vec<_> = replays.collect();
    let listed = replays.iter().map(|(block, outcome)| {
        let list = outcome.access_list.as_ref();
        (block, list.expect("an access list"))
    });
    let batch = BridgedBatch::new(listed).expect("blocks far from each other");
    let (blocks, places) = (batch.blocks(), batch.places());
    assert_eq!((blocks.len(), places.len()), (27, 14));
    let outcomes = at_once(&blocks, batch.state());
    for (place, (block, expected)) in places.iter().zip(&replays) {
        let number = block.header.number;
        let outcome = outcomes[*place].as_ref();
        let outcome = outcome.unwrap_or_else(|| panic!("block {number} can't be told"));
        assert_same_outcome(outcome, expected, &format!("block {number}"));
    }
    let items: u64 = batch.bridges().map(|list| list.counts().items()).sum();
    say(&format!("  14 replays at once, bridged by {items} items"));

    // It is the bridges that make them so.
    let alone: Vec<_> = places.iter().map(|place| blocks[*place]).collect();
    let outcomes = at_once(&alone, batch.state());
    let same = outcomes
        .iter()
        .zip(&replays)
        .filter(|(outcome, (_, wanted))| {
            let outcome = outcome.as_ref();
            outcome.is_some_and(|outcome| outcome.access_list == wanted.access_list)
        });
    assert_eq!(same.count(), 1, "the first");
}

#[test]
fn mainnet_blocks_executed_from_proofs_alone_give_their_state_roots() {
    let Some(suite) = MainnetProofs::new() else {
        return;
    };
    run_suite(&suite).conclude(9);
    let seen = suite.seen();
    for block in &seen {
        let report = block.report;
        let (id, txs, gas) = (report.id.number, report.transactions, report.gas_used);
        let receipts = match report.receipts_checked {
            true => "",
            false => ", receipts' root not compared: it has states' roots in mid-block",
        };
        let derived = match block.derived {
            true => ", nodes derived from proofs of the state after",
            false => "",
        };
        say(&format!(
            "  block {id}: {txs} transactions, {gas} gas{receipts}{derived}"
        ));
    }
    let derived = seen.iter().filter(|block| block.derived);
    let derived: Vec<_> = derived.map(|block| block.report.id.number).collect();
    assert_eq!(
        derived,
        [4_370_000, 15_050_000],
        "deletions that move a node up"
    );
    let unchecked = seen.iter().filter(|block| !block.report.receipts_checked);
    assert_eq!(
        unchecked.count(),
        3,
        "all with transactions before Byzantium"
    );
}

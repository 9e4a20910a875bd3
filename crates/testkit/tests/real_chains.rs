//! Real blocks: mainnet's, and a chain that other clients made.

use cambium_testkit::{
    EngineChain, MainnetBlocks, MainnetProofs, MainnetReplays, NaiveChain, Unanimous,
    import_execution_apis_chain, run_suite, say,
};

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

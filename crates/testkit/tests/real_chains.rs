//! Real blocks: mainnet's, and a chain that other clients made.

use cambium_evm::Sequential;
use cambium_testkit::{
    EngineChain, MainnetBlocks, MainnetReplays, NaiveChain, import_execution_apis_chain, run_suite,
    say,
};

#[test]
fn mainnet_blocks_give_the_gas_receipts_and_states_that_they_gave() {
    let Some(suite) = MainnetBlocks::new(Sequential) else {
        return;
    };
    run_suite(&suite).conclude(42);
    let unchecked = suite.receipts_unchecked();
    say(&format!(
        "  receipts' root not compared, for want of whole states: {unchecked} blocks"
    ));
    assert_eq!(unchecked, 10, "all blocks before Byzantium, and no other");
}

#[test]
fn the_execution_apis_chain_is_imported_to_its_head() {
    import_execution_apis_chain::<NaiveChain>();
    import_execution_apis_chain::<EngineChain>();
}

#[test]
fn mainnet_blocks_replayed_under_amsterdam_give_their_access_lists() {
    if let Some(suite) = MainnetReplays::new(Sequential) {
        run_suite(&suite).conclude(14);
    }
}

//! Public blockchain tests, over the naive model and over the state engine. The counts are those of
//! the packs: fewer means that cases got lost on the way.

use cambium_testkit::{BlockchainSuite, EngineChain, NaiveChain, Pack, run_suite};

fn run(pack: Pack, folder: &'static str, at_least: usize) {
    if let Some(suite) = BlockchainSuite::<NaiveChain>::new(pack, folder) {
        run_suite(&suite).conclude(at_least);
    }
    if let Some(suite) = BlockchainSuite::<EngineChain>::new(pack, folder) {
        run_suite(&suite).conclude(at_least);
    }
}

#[test]
fn ethereum_tests_hold() {
    run(Pack::EthereumTests, "ethereum-tests/BlockchainTests", 594);
}

#[test]
fn legacy_tests_hold() {
    run(
        Pack::EthereumTests,
        "legacytests/Cancun/BlockchainTests",
        2_672,
    );
}

#[test]
fn execution_spec_tests_hold() {
    run(Pack::Eest, "eest-erigon/blockchain_tests", 6_574);
}

#[test]
fn block_access_list_tests_hold() {
    run(
        Pack::Amsterdam,
        "eest-fixtures/amsterdam-bal/blockchain_tests",
        602,
    );
}

#[test]
fn block_access_list_benchmarks_hold() {
    run(
        Pack::Amsterdam,
        "eest-fixtures/amsterdam-bal-benchmark-compute/blockchain_tests",
        22,
    );
}

#[test]
fn amsterdam_devnet_tests_hold() {
    run(
        Pack::AmsterdamDevnet,
        "eest-amsterdam-devnet/for_amsterdam",
        4_188,
    );
}

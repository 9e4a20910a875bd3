//! Public blockchain tests, over the naive model and over the state engine. The counts are those of
//! the packs: fewer means that cases got lost on the way.

use cambium_conformance::{
    BlockchainSuite, ExecutionWitnesses, KnownFailure, KnownFailures, Pack, WitnessCounts,
    run_suite,
};
use cambium_testkit::{EngineChain, NaiveChain, say};

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

/// These are of another release than the others.
const EARLIER_STATE_GAS: &[KnownFailure] = &[
    KnownFailure {
        name: "test_witness_7702.py::test_witness_codes_reset_delegation\
               [fork_Amsterdam-blockchain_test]",
        reason: "EIP-8037 in tests-zkevm@v0.3.3: the state gas that comes back for an \
                 authorization is taken off the block's",
    },
    KnownFailure {
        name: "test_witness_bytecodes_call_variants.py::test_witness_codes_reverted_transaction\
               [fork_Amsterdam-blockchain_test]",
        reason: "EIP-8037 in tests-zkevm@v0.3.3: the state gas of a transaction that fails counts",
    },
];

#[test]
fn optional_proof_tests_hold() {
    let folder = "eest-zkevm-witness/for_amsterdam";
    if let Some(suite) = BlockchainSuite::<NaiveChain>::new(Pack::AmsterdamDevnet, folder) {
        run_suite(&KnownFailures::new(suite, EARLIER_STATE_GAS)).conclude(91);
    }
    if let Some(suite) = BlockchainSuite::<EngineChain>::new(Pack::AmsterdamDevnet, folder) {
        run_suite(&KnownFailures::new(suite, EARLIER_STATE_GAS)).conclude(91);
    }
}

#[test]
fn blocks_follow_from_the_witnesses_that_come_with_them() {
    let counts = WitnessCounts::default();
    if let Some(suite) = ExecutionWitnesses::new(&counts) {
        run_suite(&KnownFailures::new(suite, EARLIER_STATE_GAS)).conclude(91);
        say(&format!("{counts:?}"));
        // Nine of each witness, and more of those that have several headers.
        let (proven, changed) = (counts.proven.into_inner(), counts.changed.into_inner());
        assert!(changed > 9 * proven, "{changed} of {proven}");
    }
}

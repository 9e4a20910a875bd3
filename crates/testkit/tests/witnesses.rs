//! Witnesses and proofs of the engine, over a chain that other clients made.

use cambium_testkit::{
    EXECUTION_APIS_BLOCKS, EngineChain, ProofCases, Random, Tampering, execute_from_json,
    import_execution_apis_chain, run_suite, say, tamper,
};

#[test]
fn every_block_follows_from_its_witness_and_from_no_tampered_one() {
    let Some(engine) = import_execution_apis_chain::<EngineChain>() else {
        return;
    };
    let chain = engine.chain();
    let mut random = Random::new(54);
    let (mut blocks, mut nodes, mut receipts) = (0, 0, 0);
    let mut done = Tampering::default();
    for number in 1..=chain.db().head().number {
        let header = chain.block(number).unwrap().header;
        let witness = chain.witness(number).unwrap();
        let report = execute_from_json(&witness).unwrap_or_else(|why| panic!("{number}: {why}"));
        assert_eq!(report.id.hash, header.hash_slow());
        assert_eq!(report.state_root, header.state_root);
        assert_eq!(report.gas_used, header.gas_used);
        assert_eq!(report.unused_nodes, 0, "block {number}");
        blocks += 1;
        nodes += witness.witness.state.len();
        receipts += usize::from(report.receipts_checked);
        let block = tamper(&witness, &mut random);
        let block = block.unwrap_or_else(|why| panic!("block {number}: {why}"));
        done.tried += block.tried;
        done.harmless += block.harmless;
    }
    say(&format!(
        "suite execution-apis witnesses: {blocks} blocks run, 0 skipped: {nodes} nodes, receipts \
         compared in {receipts}; {} tampered witnesses, {} of them good for another block",
        done.tried, done.harmless
    ));
    assert_eq!(blocks, EXECUTION_APIS_BLOCKS);
    assert!(done.tried > 5000, "{done:?}");
}

#[test]
fn proofs_are_those_that_other_clients_give() {
    if let Some(suite) = ProofCases::new() {
        run_suite(&suite).conclude(4);
    }
}

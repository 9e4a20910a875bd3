//! Witnesses and proofs of the engine, over a chain that other clients made.

use alloy_primitives::U256;
use cambium_chain::{ChainSpec, StatelessError, StatelessRules};
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
    let rules = StatelessRules::of(chain.spec());
    let mut random = Random::new(54);
    let (mut blocks, mut nodes, mut receipts) = (0, 0, 0);
    let mut done = Tampering::default();
    for number in 1..=chain.db().head().number {
        let header = chain.block(number).unwrap().header;
        let witness = chain.witness(number).unwrap();
        let report =
            execute_from_json(&witness, &rules).unwrap_or_else(|why| panic!("{number}: {why}"));
        assert_eq!(report.id.hash, header.hash_slow());
        assert_eq!(report.state_root, header.state_root);
        assert_eq!(report.gas_used, header.gas_used);
        assert_eq!(report.unused_nodes, 0, "block {number}");
        blocks += 1;
        nodes += witness.witness.state.len();
        receipts += usize::from(report.receipts_checked);
        let block = tamper(&witness, &rules, &mut random);
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

/// Nothing that a witness brings decides by which rules its block is judged.
#[test]
fn the_rules_are_the_verifiers() {
    let Some(engine) = import_execution_apis_chain::<EngineChain>() else {
        return;
    };
    let chain = engine.chain();
    let spec = chain.spec();
    let other_chain = ChainSpec {
        chain_id: spec.chain_id + 1,
        ..spec.clone()
    };
    let never = ChainSpec::default();
    let past_the_merge = ChainSpec {
        terminal_total_difficulty: Some(U256::ZERO),
        ..spec.clone()
    };
    let mut refused = [0; 3];
    for number in 1..=chain.db().head().number {
        let witness = chain.witness(number).unwrap();
        let header = chain.block(number).unwrap().header;
        let total = chain.total_difficulty(number - 1).unwrap();
        let own = StatelessRules::of(spec);
        let known = StatelessRules {
            parent: Some(header.parent_hash),
            parent_total_difficulty: Some(total),
            ..own
        };
        let report = witness.execute(&known).unwrap();
        assert_eq!(report, witness.execute(&own).unwrap(), "block {number}");
        assert_eq!(report.parent.hash, header.parent_hash);
        assert_eq!(report.chain_id, spec.chain_id);
        let post_merge = spec.is_post_merge(number, total);
        let fork = spec.fork_at(number, header.timestamp, post_merge);
        assert_eq!(report.fork, fork, "block {number}");

        for (refused, rules) in refused
            .iter_mut()
            .zip([&other_chain, &never, &past_the_merge])
        {
            match witness.execute(&StatelessRules::of(rules)) {
                // A block may have nothing in it that rules differ on.
                Ok(other) => assert_eq!(other.state_root, report.state_root),
                Err(_) => *refused += 1,
            }
        }
        let other = StatelessRules {
            parent: Some(header.state_root),
            ..own
        };
        let error = witness.execute(&other).unwrap_err();
        assert!(
            matches!(error, StatelessError::OtherParent { .. }),
            "{error}"
        );
        let less = StatelessRules {
            gas_limit_max: header.gas_limit - 1,
            ..own
        };
        let error = witness.execute(&less).unwrap_err();
        assert!(matches!(error, StatelessError::GasLimit { .. }), "{error}");
        if !total.is_zero() && header.difficulty.is_zero() {
            let before = StatelessRules {
                parent_total_difficulty: Some(U256::ZERO),
                ..own
            };
            assert_eq!(
                witness.execute(&before).is_err(),
                spec.terminal_total_difficulty != Some(U256::ZERO)
            );
        }
    }
    say(&format!(
        "refused by the rules of another chain {}, without forks {}, past the merge from the \
         start {}",
        refused[0], refused[1], refused[2]
    ));
    assert!(refused.iter().all(|refused| *refused > 0), "{refused:?}");
}

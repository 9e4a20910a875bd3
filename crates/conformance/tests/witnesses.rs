//! Witnesses and proofs of the engine, over a chain that other clients made.

use alloy_consensus::{BlockBody, Header, constants::EMPTY_ROOT_HASH};
use alloy_eips::{eip1559::BaseFeeParams, eip4788::BEACON_ROOTS_ADDRESS};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_rlp::Decodable;
use cambium_chain::{
    Block, BlockWitness, Chain, ChainSealer, ChainSpec, StatelessError, StatelessRules, Strictness,
    WitnessForm,
};
use cambium_conformance::{
    EXECUTION_APIS_BLOCKS, ProofCases, import_execution_apis_chain, run_suite,
};
use cambium_hostile::{Tampering, execute_from_json, tamper};
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{EngineChain, Random, say};
use std::{slice::from_ref, sync::Arc};

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

/// The rules for a block come from the verifier, never from the witness.
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

/// In place of the beacon roots contract, which each block calls, there is one that stores the hash of the block
/// five below: `SSTORE(0, BLOCKHASH(NUMBER - 5))`.
const READS_A_HASH: &str = r#"{
    "config": { "chainId": 7, "homesteadBlock": 0, "eip150Block": 0, "eip155Block": 0, "eip158Block": 0,
        "byzantiumBlock": 0, "constantinopleBlock": 0, "petersburgBlock": 0, "istanbulBlock": 0, "berlinBlock": 0,
        "londonBlock": 0, "terminalTotalDifficulty": 0, "shanghaiTime": 0, "cancunTime": 0 },
    "difficulty": "0x0", "gasLimit": "0x1c9c380", "baseFeePerGas": "0x7", "timestamp": "0x0",
    "alloc": { "BEACON_ROOTS": { "balance": "0x1", "code": "0x600543034060005500" } }
}"#;

/// A chain of `blocks` blocks, each of which reads the hash of the block five below.
fn chain_of_hashes(blocks: u64) -> Chain {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("genesis.json");
    let address = BEACON_ROOTS_ADDRESS.to_string();
    let genesis = READS_A_HASH.replace("BEACON_ROOTS", &address);
    std::fs::write(&file, genesis).unwrap();
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = Chain::init(disk, &file, Options::default(), &mut |_| {}).unwrap();
    let mut parent = chain.block(0).unwrap().header;
    for number in 1..=blocks {
        let header = Header {
            parent_hash: parent.hash_slow(),
            number,
            timestamp: parent.timestamp + 12,
            gas_limit: parent.gas_limit,
            base_fee_per_gas: parent.next_block_base_fee(BaseFeeParams::ethereum()),
            withdrawals_root: Some(EMPTY_ROOT_HASH),
            blob_gas_used: Some(0),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(B256::ZERO),
            ..Header::default()
        };
        let body = BlockBody {
            withdrawals: Some(Default::default()),
            ..BlockBody::default()
        };
        let sealed = ChainSealer(&chain).seal(Block { header, body }).unwrap();
        parent = sealed.header;
    }
    chain
}

/// Number of headers that the block does not need, or words of the error.
type Verdict = Result<usize, &'static str>;
/// A name, the headers of a witness, the strict verdict on it, and that of a verifier that accepts what is sound.
type HeaderCase = (&'static str, Vec<Bytes>, Verdict, Verdict);
type List = fn(&mut BlockWitness) -> &mut Vec<Bytes>;

/// "The headers are a chain, the oldest first, that ends at the parent": EIP-8025's verdicts on what a witness has of
/// ancestors, and those of a verifier that accepts what is sound.
#[test]
fn the_verdict_on_headers_is_that_of_eip_8025_where_it_is_asked_for() {
    let chain = chain_of_hashes(9);
    let witness = chain.witness(9).unwrap();
    let headers = &witness.witness.headers;
    assert_eq!(headers.len(), 5);
    let numbers = headers
        .iter()
        .map(|rlp| Header::decode(&mut &rlp[..]).unwrap().number);
    assert_eq!(numbers.collect::<Vec<_>>(), [4, 5, 6, 7, 8]);
    let older = Bytes::from(alloy_rlp::encode(chain.block(3).unwrap().header));
    let other = Bytes::from(alloy_rlp::encode(Header {
        gas_used: 1,
        ..chain.block(4).unwrap().header
    }));
    let with = |headers: &[&[Bytes]]| headers.concat();
    let swapped = [0, 2, 1, 3, 4].map(|at: usize| headers[at].clone());
    let reversed: Vec<_> = headers.iter().rev().cloned().collect();
    let garbage = Bytes::from_static(&[0xff]);
    let cases: [HeaderCase; 12] = [
        ("as they are", headers.clone(), Ok(0), Ok(0)),
        (
            "an older one",
            with(&[from_ref(&older), headers]),
            Ok(1),
            Ok(1),
        ),
        ("reversed", reversed, Err("header 1 has the parent"), Ok(0)),
        (
            "swapped",
            swapped.to_vec(),
            Err("header 1 has the parent"),
            Ok(0),
        ),
        (
            "doubled",
            with(&[headers, &headers[4..]]),
            Err("header 5 has the parent"),
            Ok(1),
        ),
        (
            "an older one at the end",
            with(&[headers, &[older]]),
            Err("header 5 has the parent"),
            Ok(1),
        ),
        (
            "no oldest",
            headers[1..].to_vec(),
            Err("lacks the header of block 4"),
            Ok(0),
        ),
        (
            "no second oldest",
            headers[2..].to_vec(),
            Err("lacks the header of block 4"),
            Err("lacks the header of block 4"),
        ),
        (
            "no parent",
            headers[..4].to_vec(),
            Err("lacks the parent's header"),
            Err("lacks the parent's header"),
        ),
        (
            "none",
            vec![],
            Err("lacks the parent's header"),
            Err("lacks the parent's header"),
        ),
        (
            "another oldest",
            with(&[&[other], &headers[1..]]),
            Err("header 1 has the parent"),
            Ok(1),
        ),
        (
            "no header",
            with(&[&[garbage], headers]),
            Err("header 0 of the witness is malformed"),
            Err("header 0 of the witness is malformed"),
        ),
    ];
    let sound = StatelessRules {
        parent: Some(headers.last().map(keccak256).unwrap()),
        strictness: Strictness::Sound,
        ..StatelessRules::of(chain.spec())
    };
    let strict = StatelessRules {
        strictness: Strictness::Eip8025,
        ..sound
    };
    let of_form = StatelessRules {
        strictness: Strictness::OfForm,
        ..sound
    };
    let verdict = |witness: &BlockWitness, rules: &StatelessRules<'_>| match witness.execute(rules)
    {
        Ok(report) => Ok(report.unused_headers),
        Err(error) => Err(error.to_string()),
    };
    for (name, headers, by_strict, by_sound) in cases {
        let mut changed = witness.clone();
        changed.witness.headers = headers;
        let expect = |rules: &StatelessRules<'_>, expected: Result<usize, &str>| match (
            verdict(&changed, rules),
            expected,
        ) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{name}"),
            (Err(got), Err(words)) => assert!(got.contains(words), "{name}: {got}"),
            (got, expected) => panic!("{name}: {got:?}, and not {expected:?}"),
        };
        expect(&strict, by_strict);
        expect(&sound, by_sound);
        for form in WitnessForm::ALL {
            let text = changed.to_json(form).to_string();
            let block = (form != WitnessForm::Own).then(|| changed.block.clone());
            let read = BlockWitness::from_json(&text, block).unwrap();
            let expected = match read.form {
                WitnessForm::Eip8025 => &strict,
                _ => &sound,
            };
            assert_eq!(
                verdict(&read, &of_form),
                verdict(&changed, expected),
                "{name}, {form:?}"
            );
        }
    }
}

/// "Nodes, codes and older headers that the block does not need are allowed", within the sizes of the EIP's lists.
#[test]
fn what_a_block_does_not_need_is_counted_and_allowed_within_sizes() {
    let chain = chain_of_hashes(300);
    let witness = chain.witness(300).unwrap();
    let strict = StatelessRules {
        strictness: Strictness::Eip8025,
        ..StatelessRules::of(chain.spec())
    };
    let header = |number| Bytes::from(alloy_rlp::encode(chain.block(number).unwrap().header));
    for (first, expected) in [(295, Ok(0)), (44, Ok(251)), (43, Err(())), (0, Err(()))] {
        let mut changed = witness.clone();
        changed.witness.headers = (first..300).map(header).collect();
        match (changed.execute(&strict), expected) {
            (Ok(report), Ok(unused)) => assert_eq!(report.unused_headers, unused),
            (Err(StatelessError::TooManyHeaders { count }), Err(())) => {
                assert_eq!(count as u64, 300 - first);
            }
            (got, _) => panic!("from {first}: {got:?}"),
        }
    }
    let sizes: [(&str, usize, List); 2] = [
        ("node", 1 << 10, |witness| &mut witness.witness.state),
        ("code", 1 << 16, |witness| &mut witness.witness.codes),
    ];
    for (what, max, list) in sizes {
        for bytes in [max, max + 1] {
            let mut changed = witness.clone();
            list(&mut changed).insert(1, vec![7; bytes].into());
            let is_node = usize::from(what == "node");
            match changed.execute(&strict) {
                Ok(report) if bytes == max => {
                    let counts = (report.unused_nodes, report.unused_codes);
                    assert_eq!(counts, (is_node, 1 - is_node));
                }
                Err(error) if bytes > max => {
                    let text = format!("{what} 1 of the witness has {bytes} bytes, over the {max}");
                    assert!(error.to_string().contains(&text), "{error}");
                }
                got => panic!("{what} of {bytes}: {got:?}"),
            }
            // Other rules have no such limit.
            changed.execute(&StatelessRules::of(chain.spec())).unwrap();
        }
    }
}

//! The Engine API: blocks that are handed over in any order, valid or not, and choices of the head.

use crate::common::{
    chain_of,
    consensus::{Consensus, Known, version_of},
    made_at, made_on, served_of,
    signing::{GWEI, payment, signed},
};
use alloy_primitives::{B256, Bytes, U256};
use cambium_chain::{Block, Chain, ChainSealer, Fork, InitOptions};
use cambium_conformance::Pack;
use cambium_index::{ChainIndex, IndexOptions};
use cambium_rpc::{Limits, PoolLimits, Served};
use cambium_state::{FaultyDisk, Options};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) fn tests() -> Option<PathBuf> {
    let folder = Pack::ExecutionApis.open(&["execution-apis"])?;
    Some(folder.join("execution-apis/tests"))
}

/// The blocks of the public chain past the merge, and a consensus client of another chain that has those before it.
pub(crate) fn at_the_merge(tests: &Path) -> (Vec<Known>, Consensus) {
    let whole = chain_of(&tests.join("genesis.json"), &tests.join("chain.rlp"));
    let disk: Arc<FaultyDisk> = Arc::new(FaultyDisk::new(3));
    let genesis = tests.join("genesis.json");
    let chain = Chain::init(disk.clone(), &genesis, InitOptions::default(), &mut |_| {}).unwrap();
    let index = ChainIndex::create(disk, chain.db(), 0, IndexOptions::default()).unwrap();
    let chain = chain.with_index(index);
    let mut known = Vec::new();
    for number in 1..=whole.db().head().number {
        let block = whole.block(number).unwrap();
        if block.header.difficulty.is_zero() {
            known.push(Known::of(&whole, number));
        } else {
            chain
                .import_block(whole.block_rlp(number).unwrap(), None)
                .unwrap();
        }
    }
    assert!(known.len() > 15);
    let served = served_of(chain, Limits::of_engine(), PoolLimits::default());
    (known, Consensus::new(served))
}

pub(crate) fn valid(hash: B256) -> Value {
    json!({"status": "VALID", "latestValidHash": hash, "validationError": null})
}

fn syncing() -> Value {
    json!({"status": "SYNCING", "latestValidHash": null, "validationError": null})
}

/// That a status is invalid, with this valid ancestor.
fn assert_invalid(status: &Value, ancestor: Option<B256>, why: &str) {
    assert_eq!(status["status"], "INVALID", "{status}");
    assert_eq!(status["latestValidHash"], json!(ancestor), "{status}");
    let error = status["validationError"].as_str().unwrap();
    assert!(error.contains(why), "{error} is not {why}");
}

#[test]
fn the_public_chain_from_the_merge_on_and_wrong_versions() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    let node = consensus.served.node();
    for own in &known {
        let right = version_of(own.fork(node.chain().unwrap()));
        for version in (1..=5).filter(|version| *version != right) {
            let method = format!("engine_newPayloadV{version}");
            let answer = consensus.call(&method, own.params(version));
            // The second version has the payloads of the first as well.
            if (version, right) == (2, 1) {
                assert_eq!(answer["result"], valid(own.hash()));
                continue;
            }
            let code = &answer["error"]["code"];
            assert!(
                *code == -38005 || *code == -32602,
                "V{version} for V{right}: {answer}"
            );
        }
        assert_eq!(consensus.new_payload(own), valid(own.hash()));
        assert_eq!(consensus.new_payload(own), valid(own.hash()));
        let parent = own.block.header.parent_hash;
        let answer = consensus.choose(right.min(3), own.hash(), parent, parent, Value::Null);
        let result = json!({"payloadStatus": valid(own.hash()), "payloadId": null});
        assert_eq!(answer["result"], result, "{answer}");
    }
    let last = fs::read_to_string(tests.join("headfcu.json")).unwrap();
    let answer = crate::common::ask(&consensus.service, &last);
    let head = known.last().unwrap();
    assert_eq!(answer["result"]["payloadStatus"], valid(head.hash()));
    let db = node.db();
    assert_eq!(db.head().hash, head.hash());
    assert_eq!(db.finality().finalized.unwrap().hash, head.hash());

    bodies(&consensus, &known);
}

fn bodies(consensus: &Consensus, known: &[Known]) {
    let head = known.last().unwrap();
    let first = known[0].block.header.number;
    let hashes = json!([[known[0].hash(), B256::ZERO, head.hash()]]);
    for version in [1, 2] {
        let answer = consensus.call(
            &format!("engine_getPayloadBodiesByHashV{version}"),
            hashes.clone(),
        );
        let bodies = answer["result"].as_array().unwrap();
        assert_eq!(bodies.len(), 3, "{answer}");
        assert_eq!(bodies[0]["withdrawals"], Value::Null);
        assert_eq!(bodies[1], Value::Null);
        assert_eq!(bodies[2]["withdrawals"], json!([]));
        let own = bodies[2]["transactions"].as_array().unwrap();
        assert_eq!(own.len(), head.block.body.transactions.len());
        assert_eq!(bodies[2].get("blockAccessList").is_some(), version == 2);
        let method = format!("engine_getPayloadBodiesByRangeV{version}");
        let range = |start: u64, count: u64| {
            consensus.call(
                &method,
                json!([format!("{start:#x}"), format!("{count:#x}")]),
            )
        };
        let all = range(first, 1000);
        assert_eq!(all["result"].as_array().unwrap().len(), known.len());
        assert_eq!(all["result"][0], bodies[0]);
        assert_eq!(range(head.block.header.number + 1, 2)["result"], json!([]));
        assert_eq!(range(0, 2)["error"]["code"], -32602);
        assert_eq!(range(1, 0)["error"]["code"], -32602);
        assert_eq!(range(1, 1025)["error"]["code"], -38004);
    }
    let many = json!([vec![B256::ZERO; 1025]]);
    let answer = consensus.call("engine_getPayloadBodiesByHashV1", many);
    assert_eq!(answer["error"]["code"], -38004);
}

#[test]
fn blocks_wait_for_their_parents() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    let head = known.last().unwrap().hash();
    for own in known[1..].iter().rev() {
        assert_eq!(consensus.new_payload(own), syncing());
    }
    assert_eq!(consensus.head(head), syncing());
    assert_eq!(consensus.new_payload(&known[0]), valid(known[0].hash()));
    assert_eq!(consensus.head(head), valid(head));
    assert_eq!(consensus.served.node().head().hash, head);
}

#[test]
fn invalid_blocks_and_their_descendants_are_remembered() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    let changed = |own: &Known, change: &dyn Fn(&mut Block)| {
        let mut own = own.clone();
        change(&mut own.block);
        own
    };
    let wrong_root = |block: &mut Block| block.header.state_root = B256::repeat_byte(1);
    // The parent of the first block is before the merge.
    let first = changed(&known[0], &wrong_root);
    assert_invalid(
        &consensus.new_payload(&first),
        Some(B256::ZERO),
        "stateRoot",
    );
    for own in &known[..10] {
        assert_eq!(consensus.new_payload(own), valid(own.hash()));
    }
    let ancestor = known[9].hash();
    // Descendants that came before are invalid as well.
    let bad = changed(&known[10], &wrong_root);
    let child = changed(&known[11], &|block| block.header.parent_hash = bad.hash());
    let grandchild = changed(&known[12], &|block| block.header.parent_hash = child.hash());
    assert_eq!(consensus.new_payload(&child), syncing());
    assert_eq!(consensus.new_payload(&grandchild), syncing());
    assert_invalid(&consensus.new_payload(&bad), Some(ancestor), "stateRoot");
    assert_invalid(&consensus.new_payload(&bad), Some(ancestor), "stateRoot");
    for own in [&child, &grandchild] {
        assert_invalid(&consensus.head(own.hash()), Some(ancestor), "stateRoot");
        assert_invalid(&consensus.new_payload(own), Some(ancestor), "stateRoot");
    }
    assert_eq!(consensus.head(ancestor), valid(ancestor));

    // A wrong hash is not the block's fault.
    let own = &known[10];
    let version = version_of(own.fork(consensus.served.node().chain().unwrap()));
    let method = format!("engine_newPayloadV{version}");
    let mut params = own.params(version);
    params[0]["gasUsed"] = json!("0x1");
    assert_invalid(
        &consensus.call(&method, params)["result"],
        None,
        "blockHash",
    );
    if version >= 3 {
        let mut params = own.params(version);
        params[1] = json!([B256::repeat_byte(1)]);
        assert_invalid(
            &consensus.call(&method, params)["result"],
            None,
            "blob hashes",
        );
    }
    if version >= 4 {
        let mut params = own.params(version);
        params[3] = json!(["0x01"]);
        assert_eq!(consensus.call(&method, params)["error"]["code"], -32602);
        let mut params = own.params(version);
        params[3] = json!(["0x0101", "0x0001"]);
        assert_eq!(consensus.call(&method, params)["error"]["code"], -32602);
    }
    let mut params = own.params(version);
    params[0]["transactions"] = json!(["0x1234"]);
    assert_invalid(&consensus.call(&method, params)["result"], None, "");
    assert_eq!(consensus.new_payload(own), valid(own.hash()));
}

/// A consensus client of a workload's genesis, and the blocks of the workload.
pub(crate) fn workload(fork: Fork) -> (Vec<Known>, Consensus, cambium_workload::Workload) {
    let (workload, other) = made_at(3, fork);
    let genesis = other.block(0).unwrap().header;
    let generated = workload.generate(&genesis, &mut ChainSealer(&other), |_| Ok(()));
    generated.unwrap();
    let known = (1..=3).map(|number| Known::of(&other, number)).collect();
    let (workload, chain) = made_at(3, fork);
    let served = served_of(chain, Limits::of_engine(), PoolLimits::default());
    (known, Consensus::new(served), workload)
}

fn attributes(fork: Fork, timestamp: u64, randao: u8) -> Value {
    let mut attributes = json!({
        "timestamp": format!("{timestamp:#x}"),
        "prevRandao": B256::repeat_byte(randao),
        "suggestedFeeRecipient": "0x00000000000000000000000000000000000000fe",
        "withdrawals": [],
        "parentBeaconBlockRoot": B256::repeat_byte(4),
    });
    if fork == Fork::Amsterdam {
        attributes["slotNumber"] = json!("0x5");
    }
    attributes
}

/// Builds a block on a head, and hands it over. Returns its hash and its payload.
fn built(
    consensus: &Consensus,
    fork: Fork,
    parent: B256,
    timestamp: u64,
    randao: u8,
) -> (B256, Value) {
    let choice = if fork == Fork::Amsterdam { 4 } else { 3 };
    let given = attributes(fork, timestamp, randao);
    let answer = consensus.choose(choice, parent, B256::ZERO, B256::ZERO, given);
    assert_eq!(answer["result"]["payloadStatus"], valid(parent), "{answer}");
    let id = answer["result"]["payloadId"].clone();
    let (get, new) = match fork {
        Fork::Amsterdam => (6, 5),
        Fork::Osaka => (5, 4),
        _ => (4, 4),
    };
    for version in (1..=6).filter(|version| *version != get) {
        let answer = consensus.call(&format!("engine_getPayloadV{version}"), json!([id]));
        assert_eq!(answer["error"]["code"], -38005, "{answer}");
    }
    let answer = consensus.call(&format!("engine_getPayloadV{get}"), json!([id]));
    let envelope = answer.get("result").unwrap_or_else(|| panic!("{answer}"));
    let again = consensus.call(&format!("engine_getPayloadV{get}"), json!([id]));
    assert_eq!(again["result"], *envelope);
    let payload = &envelope["executionPayload"];
    let root = B256::repeat_byte(4);
    let params = json!([payload, [], root, envelope["executionRequests"]]);
    let answer = consensus.call(&format!("engine_newPayloadV{new}"), params);
    let hash: B256 = serde_json::from_value(payload["blockHash"].clone()).unwrap();
    assert_eq!(answer["result"], valid(hash), "{answer}");
    (hash, envelope.clone())
}

#[test]
fn branches_are_built_and_the_head_goes_from_one_to_another() {
    for fork in [Fork::Prague, Fork::Osaka, Fork::Amsterdam] {
        let (known, consensus, workload) = workload(fork);
        let node = consensus.served.node();
        let (genesis, time) = (
            node.head().hash,
            node.chain().unwrap().block(0).unwrap().header.timestamp,
        );
        // A branch of the workload, of which the head is the tip.
        for own in &known {
            assert_eq!(consensus.new_payload(own), valid(own.hash()));
            assert_eq!(node.head().hash, own.block.header.parent_hash);
            assert_eq!(consensus.head(own.hash()), valid(own.hash()));
        }
        let tip = known[2].hash();
        // The head does not go back to an ancestor, and nothing is built there.
        let choice = if fork == Fork::Amsterdam { 4 } else { 3 };
        let given = attributes(fork, time + 999, 1);
        let answer = consensus.choose(choice, genesis, B256::ZERO, B256::ZERO, given);
        let skipped = json!({"payloadStatus": valid(genesis), "payloadId": null});
        assert_eq!(answer["result"], skipped);
        assert_eq!(node.head().hash, tip);
        // A branch beside the tip, with what waits in the pool.
        let mut own = payment(&workload);
        let sender = workload.address(7);
        let state = node.state_at(cambium_node::BlockRef::Latest).unwrap();
        own.nonce = state.account_at(sender).unwrap().unwrap_or_default().nonce;
        own.max_priority_fee_per_gas = 3 * GWEI;
        let raw = signed(&workload, 7, own);
        let sent = consensus.call("eth_sendRawTransaction", json!([raw]));
        assert!(sent.get("error").is_none(), "{sent}");
        let (left, envelope) = built(&consensus, fork, tip, time + 100, 1);
        assert_eq!(envelope["executionPayload"]["transactions"], json!([raw]));
        let value = U256::from(21_000) * U256::from(3 * GWEI);
        assert_eq!(envelope["blockValue"], json!(value));
        assert_eq!(consensus.head(left), valid(left));
        // The other child of the tip, which is an ancestor of the head now: its payload was asked for before.
        let other = known[2].block.header.clone();
        let beside = Known {
            block: Block {
                header: alloy_consensus::Header {
                    extra_data: Bytes::from_static(b"other"),
                    ..other
                },
                ..known[2].block.clone()
            },
            ..known[2].clone()
        };
        assert_eq!(consensus.new_payload(&beside), valid(beside.hash()));
        assert_eq!(consensus.head(beside.hash()), valid(beside.hash()));
        assert_eq!(node.head().hash, beside.hash());
        // The payment has come back, and is built upon this branch.
        let (right, envelope) = built(&consensus, fork, beside.hash(), time + 100, 2);
        let own = envelope["executionPayload"]["transactions"]
            .as_array()
            .unwrap();
        assert!(own.contains(&json!(raw)), "at {fork:?}");
        for head in [left, right, left] {
            assert_eq!(consensus.head(head), valid(head));
            assert_eq!(node.head().hash, head);
        }
    }
}

#[test]
fn what_a_choice_of_the_head_may_not_be() {
    let fork = Fork::Osaka;
    let (known, consensus, _) = workload(fork);
    let node = consensus.served.node();
    let time = node.chain().unwrap().block(0).unwrap().header.timestamp;
    let genesis = node.head().hash;
    for own in &known {
        consensus.new_payload(own);
    }
    let (first, tip) = (known[0].hash(), known[2].hash());
    let zero = B256::ZERO;
    let code = |answer: Value| answer["error"]["code"].clone();
    let unknown = B256::repeat_byte(9);
    assert_eq!(consensus.head(unknown), syncing());
    assert_eq!(
        code(consensus.choose(3, zero, zero, zero, Value::Null)),
        -38002
    );
    assert_eq!(
        code(consensus.choose(3, tip, unknown, zero, Value::Null)),
        -38002
    );
    assert_eq!(
        code(consensus.choose(3, tip, zero, unknown, Value::Null)),
        -38002
    );
    assert_eq!(
        code(consensus.choose(3, first, tip, zero, Value::Null)),
        -38002
    );
    assert_eq!(
        code(consensus.choose(3, tip, genesis, first, Value::Null)),
        -38002
    );
    assert_eq!(node.head().hash, genesis);

    // What is wrong with attributes does not undo the choice.
    let right = attributes(fork, time + 100, 1);
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut attributes = right.clone();
        change(&mut attributes);
        attributes
    };
    let before = wrong(&|it| it["timestamp"] = json!(format!("{time:#x}")));
    assert_eq!(code(consensus.choose(3, first, zero, zero, before)), -38003);
    assert_eq!(node.head().hash, first);
    let without = wrong(&|it| it["parentBeaconBlockRoot"] = Value::Null);
    assert_eq!(
        code(consensus.choose(3, first, zero, zero, without)),
        -38003
    );
    let slot = wrong(&|it| it["slotNumber"] = json!("0x1"));
    assert_eq!(
        code(consensus.choose(3, first, zero, zero, slot.clone())),
        -38003
    );
    assert_eq!(code(consensus.choose(4, first, zero, zero, slot)), -38005);
    assert_eq!(
        code(consensus.choose(2, first, zero, zero, right.clone())),
        -38005
    );
    assert_eq!(
        code(consensus.choose(1, first, zero, zero, right.clone())),
        -32602
    );
    let broken = wrong(&|it| it["timestamp"] = json!("now"));
    assert_eq!(code(consensus.choose(3, first, zero, zero, broken)), -32602);
    let answer = consensus.call("engine_getPayloadV5", json!(["0x0102030405060708"]));
    assert_eq!(code(answer), -38001);

    // Nothing is built below what is final.
    let answer = consensus.choose(3, tip, tip, known[1].hash(), right);
    assert_eq!(answer["result"]["payloadStatus"], valid(tip));
    assert!(answer["result"]["payloadId"].is_string());
    let mut beside = known[1].clone();
    beside.block.header.extra_data = Bytes::from_static(b"other");
    let status = consensus.new_payload(&beside);
    assert_eq!(status["status"], "ACCEPTED", "{status}");
    assert_eq!(consensus.head(beside.hash()), syncing());
    assert_eq!(node.head().hash, tip);
}

#[test]
fn what_it_can_do_and_what_it_is() {
    let (_, consensus, _) = workload(Fork::Prague);
    let answer = consensus.call(
        "engine_exchangeCapabilities",
        json!([["engine_newPayloadV4"]]),
    );
    let names: Vec<String> = serde_json::from_value(answer["result"].clone()).unwrap();
    assert_eq!(names.len(), 5 + 4 + 6 + 4 + 2);
    assert!(names.iter().all(|name| name.starts_with("engine_")));
    let answer = consensus.call("engine_getClientVersionV1", json!([{"code": "LH"}]));
    assert_eq!(answer["result"][0]["name"], "Cambium");
    let hashes = json!([[B256::repeat_byte(1)]]);
    assert_eq!(
        consensus.call("engine_getBlobsV1", hashes.clone())["result"],
        json!([null])
    );
    assert_eq!(
        consensus.call("engine_getBlobsV2", hashes)["result"],
        Value::Null
    );
    let many = json!([vec![B256::ZERO; 129]]);
    assert_eq!(
        consensus.call("engine_getBlobsV1", many)["error"]["code"],
        -38004
    );
    assert_eq!(
        consensus.call("eth_chainId", json!([]))["error"],
        Value::Null
    );
    assert_eq!(
        consensus.call("debug_traceCall", json!([]))["error"]["code"],
        -32601
    );
}

#[test]
fn a_wrong_access_list_has_no_valid_ancestor() {
    let (known, consensus, _) = workload(Fork::Amsterdam);
    let mut params = known[0].params(5);
    params[0]["blockAccessList"] = json!("0xc0");
    let answer = consensus.call("engine_newPayloadV5", params.clone());
    assert_invalid(&answer["result"], None, "blockHash");
    // With the hash of the wrong list it is a block of its own.
    let mut wrong = known[0].clone();
    wrong.access_list = Bytes::from_static(&[0xc0]);
    wrong.block.header.block_access_list_hash = Some(alloy_primitives::keccak256([0xc0]));
    assert_invalid(&consensus.new_payload(&wrong), None, "");
    params[0].as_object_mut().unwrap().remove("blockAccessList");
    let answer = consensus.call("engine_newPayloadV5", params);
    assert_eq!(answer["error"]["code"], -32602);
    for own in &known {
        assert_eq!(consensus.new_payload(own), valid(own.hash()));
    }
    consensus.choose(4, known[2].hash(), B256::ZERO, B256::ZERO, Value::Null);
    let answer = consensus.call("engine_getPayloadBodiesByRangeV2", json!(["0x1", "0x5"]));
    for (body, own) in answer["result"].as_array().unwrap().iter().zip(&known) {
        assert_eq!(body["blockAccessList"], json!(own.access_list));
    }
}

#[test]
fn blobs_go_from_the_pool_into_a_payload() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    for own in &known {
        consensus.new_payload(own);
    }
    let head = known.last().unwrap();
    assert_eq!(consensus.head(head.hash()), valid(head.hash()));
    let case = fs::read_to_string(tests.join("eth_sendRawTransaction/send-blob-tx.io")).unwrap();
    let request = case.lines().find_map(|line| line.strip_prefix(">> "));
    let sent = crate::common::ask(&consensus.service, request.unwrap());
    let found = consensus.call("eth_getTransactionByHash", json!([sent["result"]]));
    assert_eq!(
        found["error"]["code"], -32601,
        "the engine has no such method"
    );
    // The hash of a blob of zeros.
    let hash = "0x010657f37554c781402a22917dee2f75def7ab966d7b770905398eba3c444014";
    let blobs =
        |hashes: Value| consensus.call("engine_getBlobsV2", json!([hashes]))["result"].clone();
    let one = blobs(json!([hash]));
    assert_eq!(one[0]["proofs"].as_array().unwrap().len(), 128);
    assert_eq!(blobs(json!([hash, B256::ZERO])), Value::Null);
    let answer = consensus.call("engine_getBlobsV1", json!([[hash]]));
    assert_eq!(answer["error"]["code"], -38005);

    let given = attributes(Fork::Osaka, head.block.header.timestamp + 12, 1);
    let answer = consensus.choose(3, head.hash(), B256::ZERO, B256::ZERO, given);
    let id = answer["result"]["payloadId"].clone();
    let answer = consensus.call("engine_getPayloadV5", json!([id]));
    let (payload, bundle) = (
        &answer["result"]["executionPayload"],
        &answer["result"]["blobsBundle"],
    );
    assert_eq!(payload["blobGasUsed"], "0x20000");
    assert_eq!(bundle["blobs"].as_array().unwrap().len(), 1);
    assert_eq!(bundle["proofs"], one[0]["proofs"]);
    let requests = &answer["result"]["executionRequests"];
    let root = B256::repeat_byte(4);
    let without = consensus.call("engine_newPayloadV4", json!([payload, [], root, requests]));
    assert_invalid(&without["result"], None, "blob hashes");
    let whole = consensus.call(
        "engine_newPayloadV4",
        json!([payload, [hash], root, requests]),
    );
    assert_eq!(whole["result"]["status"], "VALID", "{whole}");
}

/// The consensus client of a chain on a disk, as after a start.
fn restarted(disk: FaultyDisk) -> Consensus {
    let disk = Arc::new(disk);
    let (chain, _) = Chain::open(disk, Options::default()).unwrap();
    let node = Arc::new(cambium_node::Node::of_chain(chain));
    Consensus::new(Arc::new(Served::new(node, Limits::of_engine())))
}

#[test]
fn what_is_answered_is_there_after_a_loss_of_power() {
    let (known, _, _) = workload(Fork::Osaka);
    let disk = Arc::new(FaultyDisk::new(5));
    let (_, chain) = made_on(Arc::clone(&disk), 0, Fork::Osaka);
    let served = served_of(chain, Limits::of_engine(), PoolLimits::default());
    let consensus = Consensus::new(served);
    for own in &known[..2] {
        assert_eq!(consensus.new_payload(own), valid(own.hash()));
    }
    let (first, second) = (known[0].hash(), known[1].hash());
    let answer = consensus.choose(3, second, first, first, Value::Null);
    assert_eq!(answer["result"]["payloadStatus"], valid(second));
    assert_eq!(consensus.new_payload(&known[2]), valid(known[2].hash()));
    let after = restarted(disk.crash());
    let node = after.served.node();
    assert_eq!(node.head().hash, second);
    assert_eq!(node.db().finality().finalized.unwrap().hash, first);
    // The block that was not chosen is there as well.
    assert_eq!(after.head(known[2].hash()), valid(known[2].hash()));
}

#[test]
fn an_error_of_the_disk_says_nothing_of_the_block() {
    let (known, _, _) = workload(Fork::Osaka);
    let disk = Arc::new(FaultyDisk::new(6));
    let (_, chain) = made_on(Arc::clone(&disk), 0, Fork::Osaka);
    let served = served_of(chain, Limits::of_engine(), PoolLimits::default());
    let consensus = Consensus::new(served);
    assert_eq!(consensus.new_payload(&known[0]), valid(known[0].hash()));
    disk.lose_power_after(0);
    let answer = consensus.call("engine_newPayloadV4", known[1].params(4));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let after = restarted(disk.crash());
    for own in &known {
        assert_eq!(after.new_payload(own), valid(own.hash()));
    }
}

#[test]
fn several_threads_hand_over_the_same_blocks() {
    let (known, consensus, _) = workload(Fork::Osaka);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (known, consensus) = (&known, &consensus);
            scope.spawn(move || {
                for _ in 0..3 {
                    for own in known.iter().skip(thread % 3).chain(known) {
                        let status = consensus.new_payload(own);
                        assert!(
                            status == valid(own.hash()) || status == syncing(),
                            "{status}"
                        );
                        let status = consensus.head(own.hash());
                        assert!(
                            status == valid(own.hash()) || status == syncing(),
                            "{status}"
                        );
                    }
                }
            });
        }
    });
    let tip = known[2].hash();
    assert_eq!(consensus.head(tip), valid(tip));
    assert_eq!(consensus.served.node().head().hash, tip);
}

#[test]
fn payloads_of_every_fork_are_built_and_valid() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    let mut built = std::collections::BTreeSet::new();
    for own in &known {
        assert_eq!(consensus.new_payload(own), valid(own.hash()));
        let fork = own.fork(consensus.served.node().chain().unwrap());
        let (choice, get, new) = match fork {
            Fork::Paris => (1, 1, 1),
            Fork::Shanghai => (2, 2, 2),
            Fork::Cancun => (3, 3, 3),
            Fork::Prague => (3, 4, 4),
            _ => (3, 5, 4),
        };
        let mut given = attributes(fork, own.block.header.timestamp + 1, 1);
        let fields = given.as_object_mut().unwrap();
        if choice < 3 {
            fields.remove("parentBeaconBlockRoot");
        }
        if choice < 2 {
            fields.remove("withdrawals");
        }
        let answer = consensus.choose(choice, own.hash(), B256::ZERO, B256::ZERO, given);
        let id = answer["result"]["payloadId"].clone();
        let answer = consensus.call(&format!("engine_getPayloadV{get}"), json!([id]));
        let result = &answer["result"];
        let payload = match get {
            1 => result,
            _ => &result["executionPayload"],
        };
        let all = [
            payload.clone(),
            json!([]),
            json!(B256::repeat_byte(4)),
            result["executionRequests"].clone(),
        ];
        let count = [1, 1, 3, 4][new - 1];
        let answer = consensus.call(
            &format!("engine_newPayloadV{new}"),
            json!(all[..count].to_vec()),
        );
        assert_eq!(answer["result"]["status"], "VALID", "{answer}");
        built.insert(fork);
    }
    assert_eq!(built.len(), 5, "{built:?}");
}

#[test]
fn only_so_many_blocks_wait() {
    // The oldest one that waits goes for the last filler, and only then.
    for (fillers, is_kept) in [(511, true), (512, false)] {
        let (known, consensus, _) = workload(Fork::Osaka);
        assert_eq!(consensus.new_payload(&known[1]), syncing());
        for filler in 0..fillers {
            let mut own = known[2].clone();
            own.block.header.parent_hash = B256::from(U256::from(filler + 1));
            assert_eq!(consensus.new_payload(&own), syncing());
        }
        assert_eq!(consensus.new_payload(&known[0]), valid(known[0].hash()));
        let expected = match is_kept {
            true => valid(known[1].hash()),
            false => syncing(),
        };
        assert_eq!(consensus.head(known[1].hash()), expected);
    }
}

/// Every value in a place of parameters, changed to something else.
fn spoiled(params: &Value) -> Vec<Value> {
    let wrong = [
        Value::Null,
        json!("0x"),
        json!("0xffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"),
        json!(-1),
        json!({}),
        json!([null]),
    ];
    let mut all = Vec::new();
    for (index, param) in params.as_array().unwrap().iter().enumerate() {
        for value in &wrong {
            let mut changed = params.clone();
            changed[index] = value.clone();
            all.push(changed);
            let fields = param
                .as_object()
                .into_iter()
                .flat_map(|fields| fields.keys());
            for field in fields {
                let mut changed = params.clone();
                changed[index][field] = value.clone();
                all.push(changed);
            }
        }
        let mut fewer = params.clone();
        fewer.as_array_mut().unwrap().truncate(index);
        all.push(fewer);
    }
    all
}

#[test]
fn spoiled_parameters_are_refused_or_make_other_blocks() {
    for fork in [Fork::Osaka, Fork::Amsterdam] {
        let (known, consensus, _) = workload(fork);
        let version = version_of(fork);
        let payload = format!("engine_newPayloadV{version}");
        let choice = if fork == Fork::Amsterdam { 4 } else { 3 };
        let choice = format!("engine_forkchoiceUpdatedV{choice}");
        let genesis = consensus.served.node().head().hash;
        let time = known[0].block.header.timestamp;
        let state = json!({
            "headBlockHash": genesis,
            "safeBlockHash": genesis,
            "finalizedBlockHash": genesis,
        });
        let right = json!([state, attributes(fork, time, 1)]);
        let both = [(payload, known[0].params(version)), (choice, right)];
        for (method, params) in both {
            for params in spoiled(&params) {
                let answer = consensus.call(&method, params.clone());
                match answer.get("error") {
                    Some(error) => {
                        let code = error["code"].as_i64().unwrap();
                        let is_known = code == -32602 || (-38006..=-38001).contains(&code);
                        assert!(is_known, "{method} {params}: {answer}");
                    }
                    None => assert!(answer["result"].is_object(), "{method}: {answer}"),
                }
            }
        }
        for own in &known {
            assert_eq!(consensus.new_payload(own), valid(own.hash()));
        }
    }
}

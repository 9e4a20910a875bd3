//! The Engine API over REST with SSZ: the same calls by both transports.

use crate::{
    common::{
        consensus::{Consensus, Known, params_of, version_of},
        rest::{Answer, FORKS, fields, items, status, updated},
    },
    engine::{at_the_merge, tests, valid, workload},
};
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B64, B256, Bytes, FixedBytes, U256, hex};
use alloy_rpc_types_engine::{ExecutionPayload, ForkchoiceState, PayloadAttributes};
use cambium_chain::Fork;
use cambium_rpc::{BlobsRequest, BodiesRequest, CellsRequest, ForkchoiceUpdate, PayloadEnvelope};
use serde_json::{Value, json};
use std::fs;

pub(crate) fn attributes(fork: Fork, timestamp: u64, randao: u8) -> PayloadAttributes {
    PayloadAttributes {
        timestamp,
        prev_randao: B256::repeat_byte(randao),
        suggested_fee_recipient: Address::repeat_byte(0xfe),
        withdrawals: (fork >= Fork::Shanghai).then(|| {
            let withdrawal = |index| Withdrawal {
                index,
                validator_index: 7,
                address: Address::repeat_byte(0xee),
                amount: 1_000_000,
            };
            vec![withdrawal(0), withdrawal(1)]
        }),
        parent_beacon_block_root: (fork >= Fork::Cancun).then(|| B256::repeat_byte(4)),
        slot_number: (fork >= Fork::Amsterdam).then_some(5),
        target_gas_limit: (fork >= Fork::Amsterdam).then_some(50_000_000),
    }
}

pub(crate) fn choice(head: B256, attributes: Option<PayloadAttributes>) -> ForkchoiceUpdate {
    ForkchoiceUpdate {
        state: ForkchoiceState {
            head_block_hash: head,
            safe_block_hash: B256::ZERO,
            finalized_block_hash: B256::ZERO,
        },
        attributes,
        custody_columns: None,
    }
}

/// What a call is answered: a result, or an error by its code.
#[derive(Debug, PartialEq)]
enum Outcome {
    Result(Value),
    Code(i64),
}

fn of_json(answer: &Value) -> Outcome {
    match answer["error"]["code"].as_i64() {
        Some(code) => Outcome::Code(code),
        None => Outcome::Result(answer["result"].clone()),
    }
}

/// By the table of the specification.
fn of_rest(answer: &Answer, decode: impl Fn(&[u8]) -> Value) -> Outcome {
    if answer.status == 200 {
        return Outcome::Result(decode(answer.ssz()));
    }
    let (status, class) = answer.problem();
    Outcome::Code(match (status, &*class) {
        (422, "invalid-body") => -32602,
        (404, "unknown-payload") => -38001,
        (409, "invalid-forkchoice") => -38002,
        (422, "invalid-attributes") => -38003,
        (413, "request-too-large") => -38004,
        (400, "unsupported-fork") => -38005,
        (409, "reorg-too-deep") => -38006,
        (500, "internal") => -32603,
        other => panic!("{other:?}: {}", answer.text()),
    })
}

/// Two clients of equal chains, of which one speaks JSON and the other one SSZ.
struct Both {
    json: Consensus,
    rest: Consensus,
    fork: Fork,
}

impl Both {
    /// Hands a payload over. Returns what both answer.
    fn payload(&self, envelope: &PayloadEnvelope, blob_hashes: Vec<B256>) -> Value {
        let version = version_of(self.fork);
        let method = format!("engine_newPayloadV{version}");
        let json = self
            .json
            .call(&method, params_of(envelope, version, blob_hashes));
        let bytes = envelope.encode(self.fork);
        let rest = self.rest.post("payloads", Some(self.fork), bytes);
        let (json, rest) = (of_json(&json), of_rest(&rest, status));
        assert_eq!(json, rest);
        match json {
            Outcome::Result(status) => status,
            Outcome::Code(code) => json!(code),
        }
    }

    fn known(&self, known: &Known) -> Value {
        self.payload(&known.envelope(self.fork), known.blob_hashes())
    }

    fn choose(&self, update: &ForkchoiceUpdate) -> Value {
        let version = match self.fork {
            Fork::Amsterdam => 4,
            Fork::Shanghai => 2,
            Fork::Paris => 1,
            _ => 3,
        };
        let method = format!("engine_forkchoiceUpdatedV{version}");
        let params = json!([update.state, update.attributes]);
        let json = self.json.call(&method, params);
        let bytes = update.encode(self.fork);
        let rest = self.rest.post("forkchoice", Some(self.fork), bytes);
        let (json, rest) = (of_json(&json), of_rest(&rest, updated));
        assert_eq!(json, rest);
        match json {
            Outcome::Result(updated) => updated,
            Outcome::Code(code) => json!(code),
        }
    }
}

#[test]
fn the_public_chain_is_handed_over_as_ssz_in_order_and_in_reverse() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    let node = consensus.served.node();
    for own in &known {
        let right = own.fork(node.chain().unwrap());
        for fork in FORKS.into_iter().filter(|fork| *fork != right) {
            let bytes = own.envelope(fork).encode(fork);
            let (status, class) = consensus.post("payloads", Some(fork), bytes).problem();
            assert_eq!((status, &*class), (400, "unsupported-fork"));
        }
        assert_eq!(consensus.new_payload_ssz(own), valid(own.hash()));
        assert_eq!(consensus.new_payload_ssz(own), valid(own.hash()));
        assert_eq!(consensus.head_ssz(own.hash()), valid(own.hash()));
        assert_eq!(node.head().hash, own.hash());
    }
    let (known, consensus) = at_the_merge(&tests);
    let syncing = json!({"status": "SYNCING", "latestValidHash": null, "validationError": null});
    for own in known[1..].iter().rev() {
        assert_eq!(consensus.new_payload_ssz(own), syncing);
    }
    let head = known.last().unwrap().hash();
    assert_eq!(consensus.head_ssz(head), syncing);
    assert_eq!(consensus.new_payload_ssz(&known[0]), valid(known[0].hash()));
    assert_eq!(consensus.head_ssz(head), valid(head));
    assert_eq!(consensus.served.node().head().hash, head);
}

#[test]
fn statuses_are_the_bytes_of_the_examples() {
    let (known, consensus, _) = workload(Fork::Amsterdam);
    let fork = Some(Fork::Amsterdam);
    let envelope = known[0].envelope(Fork::Amsterdam);
    let answer = consensus.post("payloads", fork, envelope.encode(Fork::Amsterdam));
    // 41 bytes: the status, two offsets, and the hash.
    let mut expected = vec![0, 9, 0, 0, 0, 41, 0, 0, 0];
    expected.extend_from_slice(known[0].hash().as_slice());
    assert_eq!(answer.ssz(), expected);
    let mut wrong = envelope;
    wrong.parent_beacon_block_root = Some(B256::ZERO);
    let answer = consensus.post("payloads", fork, wrong.encode(Fork::Amsterdam));
    // No hash, and a list with one item, which stands after its offset.
    let bytes = answer.ssz();
    assert_eq!(bytes[..13], [1, 9, 0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0]);
    assert!(bytes[13..].starts_with(b"blockHash is 0x"));
}

#[test]
fn both_transports_answer_the_same() {
    for fork in [Fork::Prague, Fork::Osaka, Fork::Amsterdam] {
        let (known, json, _) = workload(fork);
        let (_, rest, _) = workload(fork);
        let both = Both { json, rest, fork };
        let genesis = both.json.served.node().head().hash;
        let time = known[0].block.header.timestamp;
        let zero = B256::ZERO;
        let with = |change: &dyn Fn(&mut Known)| {
            let mut own = known[0].clone();
            change(&mut own);
            own
        };
        // Blocks: unknown parents, wrong roots and what descends from them, wrong hashes, transactions that are none.
        assert_eq!(both.known(&known[2])["status"], "SYNCING");
        let bad = with(&|own| own.block.header.state_root = zero);
        let mut child = known[1].clone();
        child.block.header.parent_hash = bad.hash();
        assert_eq!(both.known(&child)["status"], "SYNCING");
        for own in [&bad, &child, &bad] {
            let status = both.known(own);
            assert_eq!(status["status"], "INVALID");
            assert_eq!(status["latestValidHash"], json!(genesis));
        }
        let mut hash = known[0].envelope(fork);
        hash.parent_beacon_block_root = Some(zero);
        assert_eq!(both.payload(&hash, vec![])["latestValidHash"], Value::Null);
        for transaction in [Bytes::new(), Bytes::from_static(&[2, 3])] {
            let mut own = known[0].envelope(fork);
            match &mut own.payload {
                ExecutionPayload::V3(own) => {
                    own.payload_inner.payload_inner.transactions[0] = transaction;
                }
                ExecutionPayload::V4(own) => {
                    let paris = &mut own.payload_inner.payload_inner.payload_inner;
                    paris.transactions[0] = transaction;
                }
                _ => unreachable!(),
            }
            assert_eq!(both.payload(&own, vec![])["status"], "INVALID");
        }
        if fork == Fork::Amsterdam {
            let wrong = with(&|own| {
                own.access_list = Bytes::from_static(&[0xc0]);
                let hash = alloy_primitives::keccak256([0xc0]);
                own.block.header.block_access_list_hash = Some(hash);
            });
            let status = both.known(&wrong);
            assert_eq!(status["status"], "INVALID");
            assert_eq!(status["latestValidHash"], Value::Null);
        }
        // Requests that do not ascend, or are empty.
        for requests in [vec![vec![1]], vec![vec![1, 1], vec![0, 1]], vec![vec![]]] {
            let mut own = known[0].envelope(fork);
            own.execution_requests = Some(requests.into_iter().map(Bytes::from).collect());
            assert_eq!(both.payload(&own, vec![]), -32602);
        }
        for own in &known {
            assert_eq!(both.known(own), valid(own.hash()));
        }

        // Choices of the head.
        let (first, tip) = (known[0].hash(), known[2].hash());
        let state = |head, safe, finalized| {
            let mut update = choice(head, None);
            update.state.safe_block_hash = safe;
            update.state.finalized_block_hash = finalized;
            update
        };
        let unknown = B256::repeat_byte(9);
        let syncing = both.choose(&choice(unknown, None));
        assert_eq!(syncing["payloadStatus"]["status"], "SYNCING");
        let rejected = both.choose(&choice(child.hash(), None));
        assert_eq!(rejected["payloadStatus"]["status"], "INVALID");
        for wrong in [
            state(zero, zero, zero),
            state(tip, unknown, zero),
            state(tip, zero, unknown),
            state(first, tip, zero),
            state(tip, genesis, first),
        ] {
            assert_eq!(both.choose(&wrong), -38002);
        }
        let early = choice(first, Some(attributes(fork, time, 1)));
        assert_eq!(both.choose(&early), -38003);
        assert_eq!(both.rest.served.node().head().hash, first);
        let mut other = choice(first, Some(attributes(fork, time + 100, 1)));
        other.custody_columns = Some(FixedBytes::repeat_byte(0xf0));
        let answer = both.choose(&other);
        assert_eq!(answer["payloadStatus"], valid(first));
        assert_eq!(answer["payloadId"], both.choose(&other)["payloadId"]);

        // Attributes of another fork than the header's.
        let later = match fork {
            Fork::Amsterdam => Fork::Osaka,
            _ => Fork::Amsterdam,
        };
        let update = choice(first, Some(attributes(later, time + 100, 1)));
        let answer = both
            .rest
            .post("forkchoice", Some(later), update.encode(later));
        assert_eq!(answer.problem(), (400, "unsupported-fork".to_owned()));

        // Nothing is built upon branches below what is final.
        let final_state = both.choose(&state(tip, tip, known[1].hash()));
        assert_eq!(final_state["payloadStatus"], valid(tip));
        let mut beside = known[1].clone();
        beside.block.header.extra_data = Bytes::from_static(b"other");
        assert_eq!(both.known(&beside)["status"], "ACCEPTED");
        let version = if fork == Fork::Amsterdam { 6 } else { 5 };
        let missing = both
            .json
            .call(&format!("engine_getPayloadV{version}"), json!([B64::ZERO]));
        let path = format!("payloads/{}", B64::ZERO);
        let rest = both.rest.get(&path, Some(fork));
        assert_eq!(of_json(&missing), Outcome::Code(-38001));
        assert_eq!(of_rest(&rest, status), Outcome::Code(-38001));
    }
}

/// Fields of a built payload.
fn built_fields(fork: Fork) -> &'static [Option<usize>] {
    match fork {
        Fork::Paris | Fork::Shanghai => &[None, Some(32)],
        Fork::Cancun => &[None, Some(32), None, Some(1)],
        _ => &[None, Some(32), None, None, Some(1)],
    }
}

/// Builds upon the head by SSZ, asks for it by both transports, and hands it over by SSZ.
fn build(consensus: &Consensus, fork: Fork, timestamp: u64) -> Value {
    let head = consensus.served.node().head().hash;
    let update = choice(head, Some(attributes(fork, timestamp, 1)));
    let answer = consensus.post("forkchoice", Some(fork), update.encode(fork));
    let answer = updated(answer.ssz());
    assert_eq!(answer["payloadStatus"], valid(head), "{answer}");
    let id = answer["payloadId"].as_str().unwrap().to_owned();
    for other in FORKS.into_iter().filter(|other| *other != fork) {
        let answer = consensus.get(&format!("payloads/{id}"), Some(other));
        assert_eq!(answer.problem(), (400, "unsupported-fork".to_owned()));
    }
    let answer = consensus.get(&format!("payloads/{id}"), Some(fork));
    let parts = fields(answer.ssz(), built_fields(fork));
    let version = match fork {
        Fork::Amsterdam => 6,
        Fork::Osaka => 5,
        Fork::Prague => 4,
        Fork::Cancun => 3,
        Fork::Shanghai => 2,
        _ => 1,
    };
    let json = consensus.call(&format!("engine_getPayloadV{version}"), json!([id]));
    let json = &json["result"];
    if fork >= Fork::Prague {
        let same = items(parts[3]).into_iter().map(hex::encode_prefixed);
        let same: Vec<_> = same.collect();
        assert_eq!(json["executionRequests"], json!(same));
    }
    if version >= 2 {
        let value = U256::from_le_slice(parts[1]);
        assert_eq!(json["blockValue"], json!(value));
    }
    if fork >= Fork::Cancun {
        let bundle = fields(parts[2], &[None; 3]);
        for (part, (name, bytes)) in
            bundle
                .iter()
                .zip([("commitments", 48), ("proofs", 48), ("blobs", 131_072)])
        {
            let all: Vec<_> = part.chunks(bytes).map(hex::encode_prefixed).collect();
            assert_eq!(json["blobsBundle"][name], json!(all));
        }
        assert_eq!(parts.last(), Some(&&[0][..]));
    }
    // The envelope in which it is handed over: offsets, the root of the attributes, the parts.
    let head = [None, Some(32), None];
    let count = match fork {
        Fork::Paris | Fork::Shanghai => 1,
        Fork::Cancun => 2,
        _ => 3,
    };
    let fixed: usize = head[..count].iter().map(|it| it.unwrap_or(4)).sum();
    let mut envelope = (fixed as u32).to_le_bytes().to_vec();
    if count >= 2 {
        envelope.extend([4; 32]);
    }
    if count == 3 {
        let after = fixed + parts[0].len();
        envelope.extend((after as u32).to_le_bytes());
    }
    envelope.extend_from_slice(parts[0]);
    if count == 3 {
        envelope.extend_from_slice(parts[3]);
    }
    let decoded = PayloadEnvelope::decode(fork, &envelope.clone().into()).unwrap();
    let payload = params_of(&decoded, version_of(fork), Vec::new())[0].clone();
    let expected = match version {
        1 => json,
        _ => &json["executionPayload"],
    };
    assert_eq!(payload, *expected);
    assert_eq!(
        payload["withdrawals"].as_array().map(Vec::len),
        (fork >= Fork::Shanghai).then_some(2)
    );
    let answer = consensus.post("payloads", Some(fork), envelope);
    assert_eq!(status(answer.ssz())["status"], "VALID", "{fork:?}");
    if fork == Fork::Amsterdam {
        // Towards the gas limit of the attributes, a 1024th at a time.
        let limit = consensus
            .served
            .node()
            .block(cambium_node::BlockRef::Latest);
        let before = limit.unwrap().block.header.gas_limit;
        let step = before / 1024 - 1;
        let expected = match before < 50_000_000 {
            true => (before + step).min(50_000_000),
            false => (before - step).max(50_000_000),
        };
        assert_eq!(payload["gasLimit"], json!(format!("{expected:#x}")));
    }
    payload
}

#[test]
fn payloads_of_every_fork_are_built_and_taken() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    let mut built = std::collections::BTreeSet::new();
    for own in &known {
        assert_eq!(consensus.new_payload_ssz(own), valid(own.hash()));
        assert_eq!(consensus.head_ssz(own.hash()), valid(own.hash()));
        let fork = own.fork(consensus.served.node().chain().unwrap());
        build(&consensus, fork, own.block.header.timestamp + 1);
        built.insert(fork);
    }
    let (known, consensus, _) = workload(Fork::Amsterdam);
    assert_eq!(consensus.new_payload_ssz(&known[0]), valid(known[0].hash()));
    assert_eq!(consensus.head_ssz(known[0].hash()), valid(known[0].hash()));
    build(
        &consensus,
        Fork::Amsterdam,
        known[0].block.header.timestamp + 100,
    );
    built.insert(Fork::Amsterdam);
    assert_eq!(built.into_iter().collect::<Vec<_>>(), FORKS);
}

/// Transactions, withdrawals and access list, as far as the fork has them.
type Body = (Vec<Bytes>, Option<Vec<u8>>, Option<Vec<u8>>);

/// The body of an entry that is available.
fn body(entry: &[u8], fork: Fork) -> Option<Body> {
    let entry = fields(entry, &[Some(1), None]);
    let count = match fork {
        Fork::Paris => 1,
        Fork::Amsterdam => 3,
        _ => 2,
    };
    let parts = fields(entry[1], &vec![None; count]);
    if entry[0] == [0] {
        assert!(parts.iter().all(|part| part.is_empty()));
        return None;
    }
    assert_eq!(entry[0], [1]);
    let transactions = items(parts[0]).into_iter().map(Bytes::copy_from_slice);
    let part = |index: usize| parts.get(index).map(|part| part.to_vec());
    Some((transactions.collect(), part(1), part(2)))
}

#[test]
fn bodies_are_those_of_the_fork_in_the_header() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    for own in &known {
        consensus.new_payload_ssz(own);
    }
    let head = known.last().unwrap();
    assert_eq!(consensus.head_ssz(head.hash()), valid(head.hash()));
    let node = consensus.served.node();
    let chain = node.chain().unwrap();
    // The last block before the merge is of no fork here.
    let first = known[0].block.header.number - 1;
    let mut available = 0;
    for fork in FORKS {
        let mut from = first;
        let mut all = Vec::new();
        while from <= head.block.header.number + 32 {
            let answer = consensus.get(&format!("bodies?from={from}&count=32"), Some(fork));
            let list = fields(answer.ssz(), &[None])[0];
            all.extend(items(list).into_iter().map(|entry| body(entry, fork)));
            from += 32;
        }
        assert_eq!(all.len(), known.len() + 1, "no entry is beyond the head");
        assert_eq!(all[0], None);
        let hashes: Vec<B256> = known.iter().take(32).map(Known::hash).collect();
        let request = BodiesRequest {
            block_hashes: hashes,
        };
        let answer = consensus.post("bodies/hash", Some(fork), request.encode());
        let by_hash = items(fields(answer.ssz(), &[None])[0]);
        let by_hash: Vec<_> = by_hash.into_iter().map(|entry| body(entry, fork)).collect();
        assert_eq!(by_hash, all[1..1 + known.len().min(32)]);
        for (own, body) in known.iter().zip(&all[1..]) {
            assert_eq!(body.is_some(), own.fork(chain) == fork);
            let Some((transactions, withdrawals, _)) = body else {
                continue;
            };
            available += 1;
            let envelope = own.envelope(fork);
            assert_eq!(transactions, envelope.payload.transactions());
            let count = envelope.payload.withdrawals().map(Vec::len);
            assert_eq!(withdrawals.as_ref().map(|all| all.len() / 44), count);
        }
    }
    assert_eq!(available, known.len());

    let (known, consensus, _) = workload(Fork::Amsterdam);
    for own in &known {
        assert_eq!(consensus.new_payload_ssz(own), valid(own.hash()));
    }
    assert_eq!(consensus.head_ssz(known[2].hash()), valid(known[2].hash()));
    let answer = consensus.get("bodies?from=1&count=5", Some(Fork::Amsterdam));
    let entries = items(fields(answer.ssz(), &[None])[0]);
    assert_eq!(entries.len(), 3);
    for (entry, own) in entries.into_iter().zip(&known) {
        let (_, _, list) = body(entry, Fork::Amsterdam).unwrap();
        assert_eq!(list.unwrap(), own.access_list);
    }
    let problem = |path: &str| consensus.get(path, Some(Fork::Amsterdam)).problem();
    assert_eq!(
        problem("bodies?from=1&count=33"),
        (413, "request-too-large".to_owned())
    );
    for path in ["bodies?from=0&count=1", "bodies?from=1&count=0"] {
        assert_eq!(problem(path), (422, "invalid-body".to_owned()));
    }
    for path in [
        "bodies",
        "bodies?from=1",
        "bodies?from=0x1&count=1",
        "bodies?from=1&count=-1",
        "bodies?from=1&count=18446744073709551616",
    ] {
        assert_eq!(problem(path), (400, "invalid-request".to_owned()));
    }
    let request = BodiesRequest {
        block_hashes: vec![B256::ZERO; 33],
    };
    let answer = consensus.post("bodies/hash", Some(Fork::Amsterdam), request.encode());
    assert_eq!(answer.problem(), (413, "request-too-large".to_owned()));
}

#[test]
fn blobs_of_the_pool_are_answered_by_every_revision() {
    let Some(tests) = tests() else {
        return;
    };
    let (known, consensus) = at_the_merge(&tests);
    for own in &known {
        consensus.new_payload_ssz(own);
    }
    let head = known.last().unwrap();
    assert_eq!(consensus.head_ssz(head.hash()), valid(head.hash()));
    let case = fs::read_to_string(tests.join("eth_sendRawTransaction/send-blob-tx.io")).unwrap();
    let request = case.lines().find_map(|line| line.strip_prefix(">> "));
    crate::common::ask(&consensus.service, request.unwrap());
    // The hash of a blob of zeros.
    let hash: B256 = "0x010657f37554c781402a22917dee2f75def7ab966d7b770905398eba3c444014"
        .parse()
        .unwrap();
    let json = consensus.call("engine_getBlobsV2", json!([[hash]]))["result"].clone();
    let proofs: Vec<FixedBytes<48>> = serde_json::from_value(json[0]["proofs"].clone()).unwrap();
    let ask = |version: u8, hashes: &[B256]| {
        let request = BlobsRequest {
            versioned_hashes: hashes.to_vec(),
        };
        consensus.post(&format!("blobs/v{version}"), None, request.encode())
    };
    // After Osaka the first revision has no more blobs than the method of JSON-RPC.
    let (status, class) = ask(1, &[hash]).problem();
    assert_eq!((status, &*class), (400, "unsupported-fork"));
    let entry = |entry: &[u8]| {
        let parts = fields(entry, &[Some(1), None]);
        let contents = fields(parts[1], &[Some(131_072), None]);
        let own: Vec<_> = contents[1]
            .chunks(48)
            .map(FixedBytes::<48>::from_slice)
            .collect();
        assert!(contents[0].iter().all(|byte| *byte == 0));
        (parts[0][0], own)
    };
    let list = |answer: &Answer| -> Vec<_> {
        let entries = items(fields(answer.ssz(), &[None])[0]);
        entries.into_iter().map(entry).collect()
    };
    assert_eq!(list(&ask(2, &[hash, hash])), vec![(1, proofs.clone()); 2]);
    let missing = ask(2, &[hash, B256::ZERO]);
    assert_eq!((missing.status, missing.body.len()), (204, 0));
    let partial = list(&ask(3, &[B256::ZERO, hash]));
    assert_eq!(partial, [(0, vec![]), (1, proofs.clone())]);
    for version in [2, 3] {
        assert!(list(&ask(version, &[])).is_empty());
    }

    // Cells 0, 9 and 127, of which the last one is not of the blob itself.
    let mut indices = FixedBytes::<16>::ZERO;
    (indices[0], indices[1], indices[15]) = (1, 2, 0x80);
    let request = CellsRequest {
        versioned_hashes: vec![hash, B256::ZERO],
        indices,
    };
    let answer = consensus.post("blobs/v4", None, request.encode());
    let entries = items(fields(answer.ssz(), &[None])[0]);
    let parts = fields(entries[0], &[Some(1), None]);
    assert_eq!(parts[0], [1]);
    let contents = fields(parts[1], &[None, None]);
    let (cells, own) = (items(contents[0]), items(contents[1]));
    assert_eq!((cells.len(), own.len()), (128, 128));
    for index in 0..128 {
        let is_there = matches!(index, 0 | 9 | 127);
        assert_eq!(cells[index].len(), if is_there { 2048 } else { 0 });
        assert_eq!(
            own[index],
            if is_there {
                proofs[index].as_slice()
            } else {
                &[]
            }
        );
    }
    let parts = fields(entries[1], &[Some(1), None]);
    assert_eq!(parts[0], [0]);
    assert!(
        fields(parts[1], &[None, None])
            .iter()
            .all(|it| it.is_empty())
    );
    for version in 1..=4 {
        let mut body = vec![4, 0, 0, 0];
        if version == 4 {
            body = vec![20, 0, 0, 0];
            body.extend([0; 16]);
        }
        body.extend([0; 129 * 32]);
        let answer = consensus.post(&format!("blobs/v{version}"), None, body);
        assert_eq!(answer.problem(), (413, "request-too-large".to_owned()));
    }
}

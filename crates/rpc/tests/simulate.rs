//! Simulated blocks against those that were made, on all kinds of states, and limits.

use crate::common::{ask, service_of, workload_chain};
use cambium_chain::{Chain, ChainSealer, Fork};
use cambium_history::{History, HistoryOptions, WholeNodes};
use cambium_index::{ChainIndex, IndexOptions};
use cambium_node::Node;
use cambium_rpc::{Limits, Methods, Served, Service};
use cambium_state::{Disk, FaultyDisk, FileSizes, Options, StdDisk};
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use serde_json::{Value, json};
use std::{num::NonZeroU32, sync::Arc};

const BLOCKS: u64 = 30;
const OLD: u64 = 5;

/// A chain whose old blocks have left the log, with an index and a history.
fn chain_on(disk: &Arc<dyn Disk>, nodes: Option<WholeNodes>) -> (Chain, History) {
    chain_at(WorkloadParams::default().fork, disk, nodes)
}

fn chain_at(fork: Fork, disk: &Arc<dyn Disk>, nodes: Option<WholeNodes>) -> (Chain, History) {
    let workload = Workload::new(WorkloadParams {
        fork,
        accounts: 300,
        senders: Some(20),
        blocks: BLOCKS,
        erc20_percent: 60,
        block_size: BlockSize::Transactions(12),
        ..WorkloadParams::default()
    })
    .unwrap();
    let options = Options {
        memory_bytes: 2 << 20,
        keep_blocks: Some(4),
        unfinalized_blocks: 4,
        files: FileSizes {
            segment_bytes_max: 64 << 10,
            segment_buffer_bytes: 16 << 10,
            log_file_bytes_max: 16 << 10,
            log_extend_bytes: 16 << 10,
            log_spare_blocks: 0,
            ..FileSizes::default()
        },
        ..Options::default()
    };
    let chain = workload.init(disk.clone(), options, &mut |_| {}).unwrap();
    let index = ChainIndex::create(disk.clone(), chain.db(), 0, IndexOptions::default()).unwrap();
    let chain = chain.with_index(index);
    let options = HistoryOptions::default();
    let history = History::create(disk.clone(), chain.db(), 0, nodes, options).unwrap();
    let genesis = chain.block(0).unwrap().header;
    let sealed = workload.generate(&genesis, &mut ChainSealer(&chain), |_| {
        chain.db().flush(1)?;
        let index = chain.index().unwrap();
        assert!(index.catch_up(chain.db(), None, &mut |_| true)?);
        history.catch_up(chain.db(), &mut |_| true)?;
        Ok(())
    });
    sealed.unwrap();
    chain.index().unwrap().flush().unwrap();
    history.flush().unwrap();
    chain.db().flush(0).unwrap();
    (chain, history)
}

fn service(node: Node) -> Service {
    let served = Served::new(Arc::new(node), Limits::default());
    Service::new(Arc::new(served), Methods::of_chain())
}

fn call(service: &Service, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    ask(service, &request.to_string())
}

/// A call that does what a transaction did.
fn as_call(transaction: &Value) -> Value {
    let mut call = transaction.clone();
    let fields = call.as_object_mut().unwrap();
    if fields.contains_key("maxFeePerGas") {
        fields.remove("gasPrice");
    }
    call
}

/// Simulates a block of the chain on its parent, and compares.
fn compare(service: &Service, number: u64) {
    let made = call(
        service,
        "eth_getBlockByNumber",
        json!([format!("{number:#x}"), true]),
    );
    let made = &made["result"];
    let calls = made["transactions"].as_array().unwrap().iter();
    let calls: Vec<_> = calls.map(as_call).collect();
    let payload = json!({
        "validation": true,
        "traceTransfers": number.is_multiple_of(2),
        "blockStateCalls": [{
            "calls": calls,
            "blockOverrides": {
                "time": made["timestamp"],
                "feeRecipient": made["miner"],
                "prevRandao": made["mixHash"],
                "gasLimit": made["gasLimit"],
                "beaconRoot": made["parentBeaconBlockRoot"],
                "withdrawals": made["withdrawals"],
            },
        }],
    });
    let base = format!("{:#x}", number - 1);
    let answer = call(service, "eth_simulateV1", json!([payload, base]));
    let simulated = &answer["result"][0];
    for field in [
        "number",
        "parentHash",
        "baseFeePerGas",
        "excessBlobGas",
        "gasUsed",
        "receiptsRoot",
        "logsBloom",
        "stateRoot",
        "requestsHash",
        "blockAccessListHash",
    ] {
        assert_eq!(
            simulated[field], made[field],
            "{field} of {number}: {}",
            answer["error"]
        );
    }
}

#[test]
fn a_simulated_block_has_the_roots_of_the_one_that_was_made() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(directory.path()));
    let one_of = NonZeroU32::new(4).unwrap();
    let (chain, history) = chain_on(&disk, Some(WholeNodes { one_of }));
    let reader = service(Node::open(directory.path(), 64 << 20).unwrap());
    let writer = service(Node::of_chain(chain).with_history(history));
    let asked = r#"{"jsonrpc":"2.0","id":1,"method":"eth_capabilities"}"#;
    for service in [&writer, &reader] {
        // The history and the index have what has left the log.
        let kept = ask(service, asked)["result"].clone();
        for resource in ["state", "stateproofs", "blocks"] {
            assert_eq!(
                kept[resource],
                json!({"disabled": false, "oldestBlock": "0x0"})
            );
        }
        for number in [1, OLD + 1, BLOCKS - 2, BLOCKS - 1, BLOCKS] {
            compare(service, number);
        }
    }
}

#[test]
fn a_simulated_block_of_amsterdam_has_the_gas_and_the_access_list_of_the_one_that_was_made() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(5));
    let (chain, history) = chain_at(Fork::Amsterdam, &disk, None);
    let hash = chain.block(BLOCKS).unwrap().header.block_access_list_hash;
    assert!(hash.is_some());
    let service = service(Node::of_chain(chain).with_history(history));
    for number in BLOCKS - 3..=BLOCKS {
        compare(&service, number);
    }
}

#[test]
fn a_history_of_values_has_no_tries_to_simulate_on() {
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
    let (chain, history) = chain_on(&disk, None);
    let service = service(Node::of_chain(chain).with_history(history));
    let payload = json!({"blockStateCalls": [{}]});
    let base = format!("{OLD:#x}");
    let answer = call(&service, "eth_simulateV1", json!([payload, base]));
    assert_eq!(answer["error"]["code"], 4444, "{answer}");
    compare(&service, BLOCKS);
}

#[test]
fn the_size_of_a_simulation_is_limited() {
    let limits = Limits {
        call_gas: 100_000,
        simulated_blocks: 3,
        ..Limits::default()
    };
    let service = service_of(workload_chain(1), limits);
    let code = |payload: Value| {
        let answer = call(&service, "eth_simulateV1", json!([payload]));
        answer["error"]["code"].as_i64()
    };
    let to = "0xc100000000000000000000000000000000000000";
    let calls = |count: usize| vec![json!({"to": to}); count];
    let blocks = |blocks: Vec<Value>| json!({ "blockStateCalls": blocks });
    assert_eq!(code(blocks(vec![])), Some(-32602));
    assert_eq!(code(blocks(vec![json!({}); 3])), None);
    assert_eq!(code(blocks(vec![json!({}); 4])), Some(-38026));
    let far = json!({"blockOverrides": {"number": "0xffffffffffffffffffffffff"}});
    assert_eq!(code(blocks(vec![far])), Some(-38026));
    // Four calls have their 21,000, the fifth has too little.
    let of = |count| json!({ "calls": calls(count) });
    assert_eq!(code(blocks(vec![of(4)])), None);
    assert_eq!(code(blocks(vec![of(2), of(2)])), None);
    assert_eq!(code(blocks(vec![of(2), of(3)])), Some(-38013));
    assert_eq!(code(blocks(vec![of(1 << 17)])), Some(-38013));
}

#[test]
fn a_precompile_that_is_moved_is_called_where_it_is_now() {
    let service = service_of(workload_chain(1), Limits::default());
    let (identity, there) = (
        "0x0000000000000000000000000000000000000004",
        "0x0000000000000000000000000000000000123456",
    );
    let moved = json!({ identity: {"movePrecompileToAddress": there} });
    for (to, expected) in [(there, "0x1234"), (identity, "0x")] {
        let request = json!({"to": to, "input": "0x1234"});
        let answer = call(&service, "eth_call", json!([request, "latest", moved]));
        assert_eq!(answer["result"], expected, "{answer}");
    }
    let none = json!({ there: {"movePrecompileToAddress": identity} });
    let answer = call(&service, "eth_call", json!([{"to": there}, "latest", none]));
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
}

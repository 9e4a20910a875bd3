//! `rpc.discover`: the methods of a service, against its table and execution-apis.

use crate::common::{ask, served_of, workload_chain};
use cambium_rpc::{Engine, Limits, Methods, PoolLimits, Service};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

/// Methods of execution-apis with their parameters, in order; from its `src` at 033ca6e6.
const SPECIFIED: &[(&str, &[&str])] = &[
    ("debug_getBadBlocks", &[]),
    ("debug_getRawBlock", &["Block"]),
    ("debug_getRawBlockAccessList", &["Block"]),
    ("debug_getRawHeader", &["Block"]),
    ("debug_getRawReceipts", &["Block"]),
    ("debug_getRawTransaction", &["Transaction hash"]),
    ("debug_traceBlockByHash", &["Block hash", "TraceConfig"]),
    ("debug_traceBlockByNumber", &["Block", "TraceConfig"]),
    (
        "debug_traceTransaction",
        &["Transaction hash", "TraceConfig"],
    ),
    ("engine_exchangeCapabilities", &["Consensus client methods"]),
    (
        "engine_exchangeTransitionConfigurationV1",
        &["Consensus client configuration"],
    ),
    (
        "engine_forkchoiceUpdatedV1",
        &["Forkchoice state", "Payload attributes"],
    ),
    (
        "engine_forkchoiceUpdatedV2",
        &["Forkchoice state", "Payload attributes"],
    ),
    (
        "engine_forkchoiceUpdatedV3",
        &["Forkchoice state", "Payload attributes"],
    ),
    (
        "engine_forkchoiceUpdatedV4",
        &["Forkchoice state", "Payload attributes", "Custody columns"],
    ),
    (
        "engine_forkchoiceUpdatedV5",
        &["Forkchoice state", "Payload attributes", "Custody columns"],
    ),
    ("engine_getBlobsV1", &["Blob versioned hashes"]),
    ("engine_getBlobsV2", &["Blob versioned hashes"]),
    ("engine_getBlobsV3", &["Blob versioned hashes"]),
    (
        "engine_getBlobsV4",
        &["Blob versioned hashes", "Cell indices bitarray"],
    ),
    ("engine_getInclusionListV1", &[]),
    (
        "engine_getPayloadBodiesByHashV1",
        &["Array of block hashes"],
    ),
    (
        "engine_getPayloadBodiesByHashV2",
        &["Array of block hashes"],
    ),
    (
        "engine_getPayloadBodiesByRangeV1",
        &["Starting block number", "Number of blocks to return"],
    ),
    (
        "engine_getPayloadBodiesByRangeV2",
        &["Starting block number", "Number of blocks to return"],
    ),
    ("engine_getPayloadV1", &["Payload id"]),
    ("engine_getPayloadV2", &["Payload id"]),
    ("engine_getPayloadV3", &["Payload id"]),
    ("engine_getPayloadV4", &["Payload id"]),
    ("engine_getPayloadV5", &["Payload id"]),
    ("engine_getPayloadV6", &["Payload id"]),
    ("engine_newPayloadV1", &["Execution payload"]),
    ("engine_newPayloadV2", &["Execution payload"]),
    (
        "engine_newPayloadV3",
        &[
            "Execution payload",
            "Expected blob versioned hashes",
            "Root of the parent beacon block",
        ],
    ),
    (
        "engine_newPayloadV4",
        &[
            "Execution payload",
            "Expected blob versioned hashes",
            "Root of the parent beacon block",
            "Execution requests",
        ],
    ),
    (
        "engine_newPayloadV5",
        &[
            "Execution payload",
            "Expected blob versioned hashes",
            "Parent beacon block root",
            "Execution requests",
        ],
    ),
    (
        "engine_newPayloadV6",
        &[
            "Execution payload",
            "Expected blob versioned hashes",
            "Parent beacon block root",
            "Execution requests",
            "Inclusion list transactions",
        ],
    ),
    ("eth_accounts", &[]),
    ("eth_baseFee", &[]),
    ("eth_blobBaseFee", &[]),
    ("eth_blockNumber", &[]),
    ("eth_call", &["Transaction", "Block"]),
    ("eth_capabilities", &[]),
    ("eth_chainId", &[]),
    ("eth_coinbase", &[]),
    ("eth_config", &[]),
    ("eth_createAccessList", &["Transaction", "Block"]),
    ("eth_estimateGas", &["Transaction", "Block"]),
    (
        "eth_feeHistory",
        &["blockCount", "newestBlock", "rewardPercentiles"],
    ),
    ("eth_fillTransaction", &["Transaction"]),
    ("eth_gasPrice", &[]),
    ("eth_getBalance", &["Address", "Block"]),
    ("eth_getBlockAccessList", &["Block"]),
    (
        "eth_getBlockByHash",
        &["Block hash", "Hydrated transactions"],
    ),
    ("eth_getBlockByNumber", &["Block", "Hydrated transactions"]),
    ("eth_getBlockReceipts", &["Block"]),
    ("eth_getBlockTransactionCountByHash", &["Block hash"]),
    ("eth_getBlockTransactionCountByNumber", &["Block"]),
    ("eth_getCode", &["Address", "Block"]),
    ("eth_getFilterChanges", &["Filter identifier"]),
    ("eth_getFilterLogs", &["Filter identifier"]),
    ("eth_getLogs", &["Filter"]),
    ("eth_getProof", &["Address", "StorageKeys", "Block"]),
    ("eth_getStorageAt", &["Address", "Storage slot", "Block"]),
    ("eth_getStorageValues", &["Requests", "Block"]),
    (
        "eth_getTransactionByBlockHashAndIndex",
        &["Block hash", "Transaction index"],
    ),
    (
        "eth_getTransactionByBlockNumberAndIndex",
        &["Block", "Transaction index"],
    ),
    ("eth_getTransactionByHash", &["Transaction hash"]),
    ("eth_getTransactionCount", &["Address", "Block"]),
    ("eth_getTransactionReceipt", &["Transaction hash"]),
    ("eth_maxPriorityFeePerGas", &[]),
    ("eth_newBlockFilter", &[]),
    ("eth_newFilter", &["Filter"]),
    ("eth_newPendingTransactionFilter", &[]),
    ("eth_sendRawTransaction", &["Transaction"]),
    ("eth_sendTransaction", &["Transaction"]),
    ("eth_sign", &["Address", "Message"]),
    ("eth_signTransaction", &["Transaction"]),
    ("eth_simulateV1", &["Payload", "Block tag"]),
    ("eth_syncing", &[]),
    ("eth_uninstallFilter", &["Filter identifier"]),
    ("net_version", &[]),
    (
        "testing_buildBlockV1",
        &[
            "Parent block hash",
            "Payload attributes",
            "Transactions",
            "Extra data",
        ],
    ),
    ("txpool_content", &[]),
    ("txpool_contentFrom", &["address"]),
    ("txpool_status", &[]),
];

/// Methods of execution-apis that are not served: those of accounts and keys of the server, and later ones of the Engine API.
const NOT_SERVED: &[&str] = &[
    "debug_getBadBlocks",
    "engine_exchangeTransitionConfigurationV1",
    "engine_forkchoiceUpdatedV5",
    "engine_getBlobsV3",
    "engine_getBlobsV4",
    "engine_getInclusionListV1",
    "engine_newPayloadV6",
    "eth_coinbase",
    "eth_sendTransaction",
    "eth_sign",
    "eth_signTransaction",
];

/// The methods of a chain and those of the Engine API, each with the names of their tables.
fn services() -> [(Service, BTreeSet<String>); 2] {
    let served = served_of(workload_chain(1), Limits::default(), PoolLimits::default());
    let engine = Arc::new(Engine::new(Arc::clone(&served)));
    [Methods::of_chain().with_testing(), engine.methods()].map(|methods| {
        let names = methods.names().map(str::to_owned).collect();
        (Service::new(Arc::clone(&served), methods), names)
    })
}

fn document(service: &Service) -> Value {
    let answer = ask(
        service,
        r#"{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}"#,
    );
    answer["result"].clone()
}

fn texts<'v>(values: &'v Value, field: &str) -> Vec<&'v str> {
    let values = values.as_array().unwrap().iter();
    values.map(|own| own[field].as_str().unwrap()).collect()
}

#[test]
fn the_document_has_each_method_of_the_table() {
    for (service, mut names) in services() {
        let document = document(&service);
        names.insert("rpc.discover".to_owned());
        let listed = texts(&document["methods"], "name");
        assert!(listed.is_sorted());
        assert_eq!(listed, names.iter().collect::<Vec<_>>());
        assert!(document["openrpc"].as_str().unwrap().starts_with("1."));
        assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
        for method in document["methods"].as_array().unwrap() {
            assert_ne!(
                method["result"]["name"], "Result",
                "{method}: nothing is declared"
            );
            let params = method["params"].as_array().unwrap();
            for own in params.iter().chain([&method["result"]]) {
                assert!(own["schema"].is_object(), "{method}");
            }
            // By position nothing may follow what is missing.
            let required = params.iter().map(|own| own["required"].as_bool().unwrap());
            assert!(required.is_sorted_by_key(|required| !required), "{method}");
        }
    }
}

#[test]
fn the_parameters_are_those_of_execution_apis() {
    let documents = services().map(|(service, _)| document(&service));
    let methods = documents
        .iter()
        .flat_map(|own| own["methods"].as_array().unwrap());
    let methods: Vec<_> = methods.collect();
    for (name, specified) in SPECIFIED {
        let own = methods.iter().find(|own| own["name"] == *name);
        let Some(own) = own else {
            assert!(NOT_SERVED.contains(name), "{name} is not served");
            continue;
        };
        assert!(!NOT_SERVED.contains(name), "{name} is served");
        let params = texts(&own["params"], "name");
        assert!(params.starts_with(specified), "{name} has {params:?}");
        // What is beyond the specification may be missing.
        for more in &own["params"].as_array().unwrap()[specified.len()..] {
            assert_eq!(more["required"], false, "{name}");
        }
    }
}

#[test]
fn a_method_wants_what_it_declares() {
    for (service, _) in services() {
        for method in document(&service)["methods"].as_array().unwrap() {
            check_declared(&service, method);
        }
    }
}

fn check_declared(service: &Service, method: &Value) {
    let name = method["name"].as_str().unwrap();
    let params = method["params"].as_array().unwrap();
    let call = |params: &[Value]| {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": name, "params": params});
        ask(service, &request.to_string())
    };
    let none = call(&[]);
    // Assertions about declarations would be internal errors.
    assert_ne!(none["error"]["code"], -32603, "{name}: {none}");
    let message = none["error"]["message"].as_str().unwrap_or_default();
    if let Some(first) = params.first().filter(|first| first["required"] == true) {
        let first = first["name"].as_str().unwrap();
        let expected = format!("missing value for required argument 0 ({first})");
        assert_eq!(message, expected, "{name}");
        assert_eq!(none["error"]["code"], -32602);
        return;
    }
    assert!(!message.starts_with("missing value"), "{name}: {none}");
    let many = call(&vec![Value::Null; params.len() + 1]);
    let expected = format!("too many arguments, want at most {}", params.len());
    assert_eq!(many["error"]["message"], expected, "{name}");
}

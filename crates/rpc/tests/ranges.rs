//! Pages of accounts and slots, against proofs and traces.

use crate::common::{ask, service_of};
use alloy_primitives::{Address, B256, U256, keccak256};
use cambium_chain::{Chain, ChainSealer, Fork, InitOptions};
use cambium_index::{ChainIndex, IndexOptions};
use cambium_rpc::{Limits, Service};
use cambium_state::FaultyDisk;
use cambium_workload::{BlockSize, TOKEN, Workload, WorkloadParams};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

const BLOCKS: u64 = 4;

fn chain(preimages: bool, fork: Fork) -> Chain {
    let workload = Workload::new(WorkloadParams {
        fork,
        accounts: 60,
        senders: Some(20),
        holders: Some(30),
        erc20_percent: 60,
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(10),
        ..WorkloadParams::default()
    })
    .unwrap();
    let options = InitOptions {
        preimages,
        ..InitOptions::default()
    };
    let disk = Arc::new(FaultyDisk::new(3));
    let chain = workload.init(disk.clone(), options, &mut |_| {}).unwrap();
    let index = ChainIndex::create(disk, chain.db(), 0, IndexOptions::default()).unwrap();
    let chain = chain.with_index(index);
    let genesis = chain.block(0).unwrap().header;
    let generated = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
    generated.unwrap();
    chain
}

fn call(service: &Service, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    ask(service, &request.to_string())
}

fn result(service: &Service, method: &str, params: Value) -> Value {
    let answer = call(service, method, params);
    answer
        .get("result")
        .unwrap_or_else(|| panic!("{method}: {answer}"))
        .clone()
}

/// All accounts of a block, page by page.
fn all_accounts(
    service: &Service,
    block: &str,
    most: u64,
    incompletes: bool,
) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut start = json!("0x");
    loop {
        let params = json!([block, start, most, false, false, incompletes]);
        let page = result(service, "debug_accountRange", params);
        let accounts = page["accounts"].as_object().unwrap();
        assert!(accounts.len() as u64 <= most);
        for (name, account) in accounts {
            assert!(
                all.insert(name.clone(), account.clone()).is_none(),
                "{name} comes twice"
            );
        }
        match page.get("next") {
            Some(next) => start = next.clone(),
            None => return all,
        }
        let header = result(service, "eth_getBlockByNumber", json!([block, false]));
        assert_eq!(
            format!("0x{}", page["root"].as_str().unwrap()),
            header["stateRoot"]
        );
    }
}

#[test]
fn pages_of_accounts_are_the_whole_state() {
    let service = service_of(chain(true, Fork::Osaka), Limits::default());
    for block in ["latest", "0x1"] {
        let all = all_accounts(&service, block, 7, false);
        assert!(all.len() > 60, "{}", all.len());
        assert_eq!(all_accounts(&service, block, 1000, true), all);
        let mut slots = 0;
        for (name, dumped) in &all {
            assert_eq!(
                dumped["address"].as_str().unwrap().to_lowercase(),
                name.to_lowercase()
            );
            let keys: Vec<_> = dumped["storage"]
                .as_object()
                .into_iter()
                .flatten()
                .collect();
            let names: Vec<_> = keys.iter().map(|(key, _)| json!(key)).collect();
            slots += names.len();
            let proof = result(&service, "eth_getProof", json!([name, names, block]));
            let balance: U256 = serde_json::from_value(proof["balance"].clone()).unwrap();
            assert_eq!(dumped["balance"], balance.to_string());
            assert_eq!(
                json!(format!("{:#x}", dumped["nonce"].as_u64().unwrap())),
                proof["nonce"]
            );
            assert_eq!(dumped["root"], proof["storageHash"]);
            assert_eq!(dumped["codeHash"], proof["codeHash"]);
            let code = result(&service, "eth_getCode", json!([name, block]));
            assert_eq!(dumped.get("code").unwrap_or(&json!("0x")), &code);
            let key: B256 = serde_json::from_value(dumped["key"].clone()).unwrap();
            assert_eq!(key, keccak256(name.parse::<Address>().unwrap()));
            for (at, (_, value)) in keys.iter().enumerate() {
                let proved: U256 =
                    serde_json::from_value(proof["storageProof"][at]["value"].clone()).unwrap();
                let value = U256::from_str_radix(value.as_str().unwrap(), 16).unwrap();
                assert_eq!((value, value.is_zero()), (proved, false));
            }
        }
        assert!(slots > 30, "{slots}");
    }
}

#[test]
fn accounts_whose_addresses_are_not_known_are_shown_if_they_are_wanted() {
    let service = service_of(chain(false, Fork::Osaka), Limits::default());
    let refused = call(
        &service,
        "debug_accountRange",
        json!(["latest", "0x", 5, true, true, false]),
    );
    assert_eq!(refused["error"]["code"], -32000);
    let all = all_accounts(&service, "latest", 10, true);
    assert!(all.len() > 60);
    for (name, dumped) in &all {
        assert_eq!(*name, format!("pre({})", dumped["key"].as_str().unwrap()));
        assert!(dumped.get("address").is_none() && dumped.get("storage").is_none());
    }
    let long = json!(["latest", format!("0x{}", "0".repeat(66)), 5]);
    assert_eq!(
        call(&service, "debug_accountRange", long)["error"]["code"],
        -32602
    );
}

/// All slots of the token before a transaction, page by page: values by hashes.
fn all_slots(service: &Service, block: &str, index: u64, most: u64) -> BTreeMap<B256, B256> {
    let mut all = BTreeMap::new();
    let mut start = json!("0x00");
    loop {
        let params = json!([block, index, TOKEN, start, most]);
        let page = result(service, "debug_storageRangeAt", params);
        let slots = page["storage"].as_object().unwrap();
        assert!(slots.len() as u64 <= most);
        for (hash, slot) in slots {
            let hash: B256 = hash.parse().unwrap();
            let key: B256 = serde_json::from_value(slot["key"].clone()).unwrap();
            assert_eq!(keccak256(key), hash);
            let value = serde_json::from_value(slot["value"].clone()).unwrap();
            assert!(all.insert(hash, value).is_none());
        }
        match &page["nextKey"] {
            Value::Null => return all,
            next => start = next.clone(),
        }
    }
}

#[test]
fn a_page_of_slots_is_that_before_the_transaction() {
    for fork in [Fork::Osaka, Fork::Amsterdam] {
        slots_before_each_transaction(fork);
    }
}

fn slots_before_each_transaction(fork: Fork) {
    let service = service_of(chain(true, fork), Limits::default());
    let block = result(&service, "eth_getBlockByNumber", json!(["0x2", false]));
    let transactions = block["transactions"].as_array().unwrap();
    let number = "0x2";
    let mut expected = all_slots(&service, number, 0, 1000);
    let (mut changes, zero) = (0, B256::ZERO);
    for (index, hash) in transactions.iter().enumerate() {
        let index = index as u64;
        assert_eq!(all_slots(&service, number, index, 5), expected, "{index}");
        let tracer = json!({"tracer": "prestateTracer", "tracerConfig": {"diffMode": true}});
        let diff = result(&service, "debug_traceTransaction", json!([hash, tracer]));
        let token = format!("{TOKEN:#x}");
        let slots = |side: &str| {
            let slots = diff[side][&token]["storage"].as_object().cloned();
            slots.unwrap_or_default()
        };
        for key in slots("pre").keys() {
            expected.insert(keccak256(key.parse::<B256>().unwrap()), zero);
        }
        for (key, value) in slots("post") {
            changes += 1;
            let value = serde_json::from_value(value).unwrap();
            expected.insert(keccak256(key.parse::<B256>().unwrap()), value);
        }
        expected.retain(|_, value| *value != zero);
    }
    assert!(changes > 4, "{changes}");
    // What the last transaction leaves is what the next block begins with.
    assert_eq!(all_slots(&service, "0x3", 0, 1000), expected);
    let beyond = json!([number, transactions.len(), TOKEN, "0x", 1]);
    assert_eq!(
        call(&service, "debug_storageRangeAt", beyond)["error"]["code"],
        -32000
    );
    let nothing = json!([number, 0, Address::repeat_byte(0xee), "0x", 1]);
    let nothing = result(&service, "debug_storageRangeAt", nothing);
    assert_eq!(nothing, json!({"storage": {}, "nextKey": null}));
}

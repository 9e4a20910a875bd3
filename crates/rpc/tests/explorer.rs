//! What the explorer page asks: `cambium_*`, against what Ethereum's own methods say.

use crate::common::{made, serving::Serving};
use alloy_primitives::{B256, U256, hex, keccak256};
use cambium_chain::ChainSealer;
use cambium_history::{History, HistoryOptions};
use cambium_metrics::MetricsRegistry;
use cambium_node::Node;
use cambium_rpc::{Limits, Methods, Served, Service};
use cambium_state::FaultyDisk;
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};
use tokio_tungstenite::tungstenite::Message;

/// A server of a chain of payments and tokens, with a history from the first block on.
fn explored(blocks: u64) -> (Service, MetricsRegistry) {
    let (workload, chain) = made(blocks);
    let disk = Arc::new(FaultyDisk::new(5));
    let history = History::create(disk, chain.db(), 0, None, HistoryOptions::default()).unwrap();
    let genesis = chain.block(0).unwrap().header;
    workload
        .generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()))
        .unwrap();
    history.catch_up(chain.db(), &mut |_| true).unwrap();
    let node = Node::of_chain(chain).with_history(history);
    let registry = MetricsRegistry::new("test");
    let served = Arc::new(Served::new(Arc::new(node), Limits::default()));
    registry.add(Arc::clone(&served) as _);
    let methods = Methods::of_chain().with_explorer(registry.downgrade());
    (Service::new(served, methods), registry)
}

fn result(service: &Service, method: &str, params: Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let answer: Value =
        serde_json::from_slice(&service.call(request.to_string().as_bytes())).unwrap();
    assert!(answer.get("error").is_none(), "{method} {params}: {answer}");
    answer["result"].clone()
}

fn number(value: &Value) -> U256 {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn the_genesis_block_has_no_diff() {
    let (service, _registry) = explored(1);
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "cambium_diff", "params": ["0x0"]});
    let answer = service.call(request.to_string().as_bytes());
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
}

#[test]
fn a_diff_is_what_balances_before_and_after_say() {
    let (service, _registry) = explored(6);
    let (mut accounts, mut slots) = (0, 0);
    for block in 1..=6u64 {
        let diff = result(&service, "cambium_diff", json!([format!("{block:#x}")]));
        assert_eq!(diff["number"], block);
        let (old, new) = (format!("{:#x}", block - 1), format!("{block:#x}"));
        for account in diff["accounts"].as_array().unwrap() {
            let Some(address) = account["address"].as_str() else {
                continue;
            };
            accounts += 1;
            let path = keccak256(hex::decode(address).unwrap());
            assert_eq!(account["path"], path.to_string());
            let pair = &account["balance"];
            if !pair.is_null() && !account["created"].as_bool().unwrap() {
                for (at, value) in [(&old, &pair[0]), (&new, &pair[1])] {
                    let balance = result(&service, "eth_getBalance", json!([address, at]));
                    assert_eq!(number(&balance), number(value), "{account}");
                }
            }
            for slot in account["slots"].as_array().unwrap() {
                slots += 1;
                assert_ne!(slot["value"][0], slot["value"][1], "{account}");
            }
        }
        assert_eq!(diff["more"], false);
    }
    assert!(accounts > 50 && slots > 20, "{accounts} {slots}");
}

#[test]
fn the_line_of_an_account_has_every_block_that_changed_it_and_no_other() {
    let (service, _registry) = explored(40);
    // The account that most blocks change, and the slot.
    let mut by_account = std::collections::BTreeMap::<String, Vec<u64>>::new();
    for block in 1..=40u64 {
        let diff = result(&service, "cambium_diff", json!([format!("{block:#x}")]));
        for account in diff["accounts"].as_array().unwrap() {
            let is_changed = !account["balance"].is_null() || !account["nonce"].is_null();
            if let Some(address) = account["address"].as_str().filter(|_| is_changed) {
                by_account
                    .entry(address.to_owned())
                    .or_default()
                    .push(block);
            }
        }
    }
    let (mut looked, mut asked) = (0, 0);
    for (address, expected) in by_account.iter().take(60) {
        let mut found = Vec::new();
        let mut before = Value::Null;
        loop {
            asked += 1;
            let options = json!({ "before": before, "limit": 5 });
            let line = result(&service, "cambium_changes", json!([address, null, options]));
            for change in line["changes"].as_array().unwrap() {
                let at = change["number"].as_u64().unwrap();
                found.push(at);
                let balance = result(
                    &service,
                    "eth_getBalance",
                    json!([address, format!("{at:#x}")]),
                );
                assert_eq!(number(&balance), number(&change["balance"]));
                looked += 1;
            }
            if !line["more"].as_bool().unwrap() {
                break;
            }
            before = json!(found.last());
        }
        found.reverse();
        assert_eq!(&found, expected, "{address}");
    }
    assert!(looked > 60 && asked > 60, "{looked} {asked}");
}

#[test]
fn a_read_is_walked_to_its_value() {
    let (service, _registry) = explored(3);
    let block = result(&service, "eth_getBlockByNumber", json!(["0x3", true]));
    let transactions = block["transactions"].as_array().unwrap();
    for own in transactions {
        let address = &own["from"];
        let way = result(&service, "cambium_walk", json!([address]));
        let balance = result(&service, "eth_getBalance", json!([address, "latest"]));
        assert_eq!(number(&way["value"]["balance"]), number(&balance));
        // It has sent, so a layer has it.
        assert!(way["steps"][0]["found"].is_u64(), "{way}");
        assert_eq!(way["deviceReads"], 0);
    }
    let absent = json!(["0x00000000000000000000000000000000000000ff"]);
    let way = result(&service, "cambium_walk", absent);
    assert_eq!(way["value"], Value::Null);
    assert_eq!(way["steps"][0]["at"], "layers");
    assert!(way["steps"].as_array().unwrap().len() >= 3, "{way}");
}

#[test]
fn a_schedule_has_the_transactions_with_what_they_waited_for() {
    let (service, _registry) = explored(4);
    let block = result(&service, "eth_getBlockByNumber", json!(["0x4", true]));
    let schedule = result(&service, "cambium_schedule", json!(["0x4"]));
    let own = block["transactions"].as_array().unwrap();
    let shown = schedule["transactions"].as_array().unwrap();
    assert_eq!(own.len(), shown.len());
    let mut gas = U256::ZERO;
    for (index, (own, shown)) in own.iter().zip(shown).enumerate() {
        assert_eq!(shown["hash"], own["hash"]);
        gas += U256::from(shown["gasUsed"].as_u64().unwrap());
        assert!(shown["reads"].as_u64().unwrap() >= 2, "{shown}");
        for after in shown["after"].as_array().unwrap() {
            assert!((after.as_u64().unwrap() as usize) < index, "{shown}");
        }
        // A sender's second transaction waits for its first.
        let earlier = block["transactions"].as_array().unwrap()[..index]
            .iter()
            .rposition(|before| before["from"] == own["from"]);
        if let Some(earlier) = earlier {
            assert!(
                shown["after"].as_array().unwrap().contains(&json!(earlier)),
                "{shown}"
            );
        }
    }
    assert_eq!(gas, number(&block["gasUsed"]));
}

#[test]
fn the_map_has_all_pages_and_the_figures_are_those_of_collectors() {
    let (service, registry) = explored(2);
    let map = result(&service, "cambium_map", json!([]));
    let shards = map["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 256);
    let figures = result(&service, "cambium_figures", json!([]));
    assert_eq!(figures["role"], "test");
    let all = figures["figures"].as_array().unwrap();
    let of = |name: &str| {
        let found = all.iter().find(|figure| figure["name"] == name);
        found.unwrap_or_else(|| panic!("{name}"))["samples"][0]["value"].as_u64()
    };
    let pages: u64 = shards
        .iter()
        .map(|own| own["pages"].as_u64().unwrap())
        .sum();
    assert_eq!(of("cambium_pages"), Some(pages));
    assert_eq!(of("cambium_head_block"), Some(2));
    let text = registry.page();
    for figure in all {
        let head = format!("# HELP {} ", figure["name"].as_str().unwrap());
        assert!(text.contains(&head), "{head}");
    }
    for (shard, own) in shards.iter().enumerate() {
        let listed = result(&service, "cambium_mapShard", json!([shard]));
        let listed = listed["pages"].as_array().unwrap();
        assert_eq!(listed.len() as u64, own["pages"].as_u64().unwrap());
        for page in listed {
            let path = page["path"].as_str().unwrap();
            assert!(path.starts_with(&format!("{shard:02x}")), "{path}");
        }
    }
    let layers = result(&service, "cambium_layers", json!([]));
    assert_eq!(layers["head"]["number"], 2);
    assert_eq!(layers["layers"].as_array().unwrap().len(), 2);
    assert!(
        B256::try_from(
            hex::decode(layers["head"]["hash"].as_str().unwrap())
                .unwrap()
                .as_slice()
        )
        .is_ok()
    );
    // Without the registry the figures are gone, and the rest is not.
    drop(registry);
    let request = br#"{"jsonrpc":"2.0","id":1,"method":"cambium_figures","params":[]}"#;
    let answer: Value = serde_json::from_slice(&service.call(request)).unwrap();
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
}

#[test]
fn the_page_is_at_the_address_of_calls_and_sockets() {
    let (service, _registry) = explored(1);
    let server = Serving::new(Arc::new(service.with_page()));
    let get = |path: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for (path, kind) in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/app.css", "text/css"),
    ] {
        let answer = get(path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        assert!(
            head.contains("content-security-policy: default-src 'none'"),
            "{head}"
        );
        assert!(body.len() > 300, "{path}");
    }
    assert!(get("/../Cargo.toml").starts_with("HTTP/1.1 405"));
    // The same path is that of sockets.
    let mut socket = server.socket();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
    socket.send(Message::text(call)).unwrap();
    let answer = socket.read().unwrap();
    assert!(answer.to_text().unwrap().contains("0x1"), "{answer}");
}

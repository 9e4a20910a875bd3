//! News of transactions that wait and can be executed: filters that are asked, and subscriptions.

use crate::common::{
    ask, made_at, served_of,
    serving::{Serving, call, hear},
    signing::{GWEI, payment, signed},
};
use alloy_primitives::B256;
use cambium_chain::Fork;
use cambium_rpc::{Limits, Methods, PoolLimits, Service};
use cambium_workload::Workload;
use serde_json::{Value, json};
use std::sync::Arc;

struct Pooled {
    workload: Workload,
    service: Arc<Service>,
}

impl Pooled {
    fn new(limits: PoolLimits) -> Self {
        let (workload, chain) = made_at(3, Fork::Osaka);
        let served = served_of(chain, Limits::default(), limits);
        let service = Service::new(served, Methods::of_chain());
        Self {
            workload,
            service: Arc::new(service),
        }
    }

    fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params);
        answer
            .get("result")
            .unwrap_or_else(|| panic!("{answer}"))
            .clone()
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        ask(&self.service, &request.to_string())
    }

    /// Sends a payment, and returns its hash.
    fn send(&self, sender: u64, nonce: u64, gwei: u128) -> Value {
        let mut own = payment(&self.workload);
        own.nonce = nonce;
        own.max_priority_fee_per_gas = gwei * GWEI;
        own.max_fee_per_gas = (100 + gwei) * GWEI;
        let raw = signed(&self.workload, sender, own);
        self.result("eth_sendRawTransaction", json!([raw]))
    }
}

#[test]
fn a_filter_tells_of_transactions_when_they_become_executable() {
    let pooled = Pooled::new(PoolLimits::default());
    let before = pooled.send(3, 0, 1);
    let filter = pooled.result("eth_newPendingTransactionFilter", json!([]));
    let whole = pooled.result("eth_newPendingTransactionFilter", json!([true]));
    let news = || pooled.result("eth_getFilterChanges", json!([filter]));
    assert_eq!(news(), json!([]), "{before} was there before");
    // One that waits for another one of its sender is told of with that.
    let second = pooled.send(1, 1, 1);
    assert_eq!(news(), json!([]));
    let first = pooled.send(1, 0, 1);
    assert_eq!(news(), json!([first, second]));
    assert_eq!(news(), json!([]));
    // A replacement is another transaction.
    let replacement = pooled.send(1, 1, 200);
    let other = pooled.send(2, 0, 1);
    assert_eq!(news(), json!([replacement, other]));
    // With their fields, those that still wait.
    let objects = pooled.result("eth_getFilterChanges", json!([whole]));
    let hashes: Vec<_> = objects
        .as_array()
        .unwrap()
        .iter()
        .map(|own| &own["hash"])
        .collect();
    assert_eq!(hashes, [&first, &replacement, &other]);
    assert_eq!(objects[0]["from"], json!(pooled.workload.address(1)));
    assert_eq!(objects[0]["blockHash"], Value::Null);
    let block = pooled.result("eth_newBlockFilter", json!([]));
    assert_eq!(
        pooled.result("eth_getFilterChanges", json!([block])),
        json!([])
    );
}

#[test]
fn a_filter_that_is_asked_too_late_says_so_once() {
    let pooled = Pooled::new(PoolLimits {
        transactions: 2,
        ..PoolLimits::default()
    });
    let filter = pooled.result("eth_newPendingTransactionFilter", json!([]));
    let news = || pooled.call("eth_getFilterChanges", json!([filter]));
    for gwei in 0..4 {
        pooled.send(1, 0, 1 << (7 + gwei));
    }
    assert_eq!(news()["result"].as_array().unwrap().len(), 4);
    for gwei in 4..9 {
        pooled.send(1, 0, 1 << (7 + gwei));
    }
    assert_eq!(news()["error"]["code"], -32005);
    let last = pooled.send(2, 0, 1);
    assert_eq!(news()["result"], json!([last]));
}

#[test]
fn subscriptions_are_told_of_transactions() {
    let pooled = Pooled::new(PoolLimits::default());
    let server = Serving::new(Arc::clone(&pooled.service));
    let mut socket = server.socket();
    let ids = [
        json!(["newPendingTransactions"]),
        json!(["newPendingTransactions", true]),
    ]
    .map(|params| call(&mut socket, "eth_subscribe", params)["result"].clone());
    let sent = pooled.send(4, 0, 1);
    for (id, is_whole) in ids.iter().zip([false, true]) {
        let news = hear(&mut socket);
        assert_eq!(news["params"]["subscription"], *id);
        let result = &news["params"]["result"];
        let hash = if is_whole { &result["hash"] } else { result };
        assert_eq!(hash, &sent, "{news}");
    }
    // Heads are a subscription of their own, and one that has ended tells nothing.
    call(&mut socket, "eth_subscribe", json!(["newHeads"]));
    assert_eq!(
        call(&mut socket, "eth_unsubscribe", json!([ids[1]]))["result"],
        true
    );
    let sent = pooled.send(4, 1, 1);
    assert_eq!(hear(&mut socket)["params"]["result"], sent);
    assert_eq!(
        call(&mut socket, "eth_unsubscribe", json!([ids[0]]))["result"],
        true
    );
    pooled.send(4, 2, 1);
    assert_eq!(
        call(&mut socket, "eth_blockNumber", json!([]))["result"],
        "0x0"
    );
    let unknown = call(
        &mut socket,
        "eth_subscribe",
        json!(["newPendingTransactions", "all"]),
    );
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let _: B256 = serde_json::from_value(sent).unwrap();
}

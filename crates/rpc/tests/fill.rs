//! `eth_fillTransaction`: what is filled in is what the pool takes.

use crate::common::{
    ask, made_at, served_of,
    signing::{GWEI, sign},
};
use alloy_consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy_eips::eip2718::{Decodable2718, Encodable2718};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_chain::{ChainSealer, Fork};
use cambium_rpc::{Limits, Methods, PoolLimits, Service};
use cambium_workload::{TOKEN, Workload};
use serde_json::{Value, json};

fn made(fork: Fork) -> (Workload, Service) {
    let (workload, chain) = made_at(2, fork);
    let genesis = chain.block(0).unwrap().header;
    let generated = workload.generate(&genesis, &mut ChainSealer(&chain), |_| Ok(()));
    generated.unwrap();
    let served = served_of(chain, Limits::default(), PoolLimits::default());
    (workload, Service::new(served, Methods::of_chain()))
}

fn call(service: &Service, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    ask(service, &request.to_string())
}

fn number(value: &Value) -> u128 {
    let text = value.as_str().unwrap_or_else(|| panic!("{value}"));
    u128::from_str_radix(&text[2..], 16).unwrap()
}

#[test]
fn a_filled_transaction_is_taken_once_it_is_signed() {
    for fork in [Fork::Osaka, Fork::Amsterdam] {
        let (workload, service) = made(fork);
        let result = |method: &str, params: Value| {
            let answer = call(&service, method, params);
            answer
                .get("result")
                .unwrap_or_else(|| panic!("{answer}"))
                .clone()
        };
        let from = workload.address(1);
        let nonce = number(&result("eth_getTransactionCount", json!([from, "latest"])));
        let tip = number(&result("eth_maxPriorityFeePerGas", json!([])));
        let head = result("eth_getBlockByNumber", json!(["latest", false]));
        for more in 0..2 {
            let asked = json!({"from": from, "to": workload.address(2), "value": "0x1"});
            let filled = result("eth_fillTransaction", json!([asked]));
            let object = &filled["tx"];
            assert_eq!(object["type"], "0x2");
            assert_eq!(number(&object["nonce"]), nonce + more);
            assert_eq!(number(&object["gas"]), 21_000);
            assert_eq!(number(&object["maxPriorityFeePerGas"]), tip);
            let fee = tip + 2 * number(&head["baseFeePerGas"]);
            assert_eq!(number(&object["maxFeePerGas"]), fee);
            for field in ["r", "s", "v", "yParity"] {
                assert_eq!(object[field], "0x0", "{field}");
            }
            let raw: Bytes = serde_json::from_value(filled["raw"].clone()).unwrap();
            assert_eq!(object["hash"], json!(keccak256(&raw)));
            let TxEnvelope::Eip1559(own) = TxEnvelope::decode_2718_exact(&raw).unwrap() else {
                panic!("{filled}");
            };
            let own: TxEip1559 = own.strip_signature();
            assert_eq!(own.chain_id, workload.params().spec().chain_id);
            let signature = sign(&workload, 1, own.signature_hash().0);
            let signed = TxEnvelope::from(own.into_signed(signature));
            let raw = Bytes::from(signed.encoded_2718());
            let sent: B256 =
                serde_json::from_value(result("eth_sendRawTransaction", json!([raw]))).unwrap();
            assert_eq!(sent, *signed.tx_hash());
        }
    }
}

#[test]
fn fields_that_are_given_stay() {
    let (workload, service) = made(Fork::Osaka);
    let from = workload.address(3);
    let asked = json!({
        "from": from, "to": TOKEN, "gasPrice": "0x174876e800", "nonce": "0x7", "gas": "0x1e8480", "value": "0x5", "data": "0x1234",
    });
    let filled = call(&service, "eth_fillTransaction", json!([asked]))["result"].clone();
    let object = &filled["tx"];
    for (field, value) in [
        ("type", "0x0"),
        ("nonce", "0x7"),
        ("gas", "0x1e8480"),
        ("gasPrice", "0x174876e800"),
        ("value", "0x5"),
        ("input", "0x1234"),
        ("v", "0x0"),
        ("r", "0x0"),
        ("s", "0x0"),
    ] {
        assert_eq!(object[field], value, "{filled}");
    }
    // Nine items of a list: the fields, and a signature of zeros.
    let raw: Bytes = serde_json::from_value(filled["raw"].clone()).unwrap();
    assert_eq!(object["hash"], json!(keccak256(&raw)));
    let mut rest = &raw[..];
    let mut list = alloy_rlp::Header::decode_bytes(&mut rest, true).unwrap();
    let mut items = Vec::new();
    while !list.is_empty() {
        items.push(alloy_rlp::Header::decode_bytes(&mut list, false).unwrap());
    }
    assert_eq!(items.len(), 9);
    assert_eq!((items[0], items[4]), (&[7][..], &[5][..]));
    assert_eq!(items[6..], [b""; 3]);
    // A call of a contract gets the gas that it is estimated to take.
    let asked =
        json!({"from": from, "to": TOKEN, "data": "0x18160ddd", "maxFeePerGas": "0x174876e800"});
    let filled = call(&service, "eth_fillTransaction", json!([asked]))["result"].clone();
    let estimate = call(&service, "eth_estimateGas", json!([asked]))["result"].clone();
    assert_eq!(filled["tx"]["gas"], estimate);
    assert_eq!(number(&filled["tx"]["maxFeePerGas"]), 100 * GWEI);
    let value = U256::ZERO;
    assert_eq!(filled["tx"]["value"], json!(value));
}

#[test]
fn transactions_that_can_not_be_are_not_filled() {
    let (workload, service) = made(Fork::Osaka);
    let from = workload.address(3);
    for (asked, code) in [
        (json!({"from": from}), -32000),
        (
            json!({"from": from, "to": from, "gasPrice": "0x1", "maxFeePerGas": "0x1"}),
            -32602,
        ),
        (json!({"from": from, "to": from, "gasPrice": "0x0"}), -32602),
        (
            json!({"from": from, "to": from, "maxFeePerGas": "0x0"}),
            -32602,
        ),
        (
            json!({"from": from, "to": from, "maxFeePerGas": "0x1", "maxPriorityFeePerGas": "0x2"}),
            -32602,
        ),
        (
            json!({"from": from, "to": from, "chainId": "0x1234567"}),
            -32000,
        ),
        (
            json!({"from": from, "to": from, "value": format!("0x1{}", "0".repeat(40))}),
            -32000,
        ),
    ] {
        let answer = call(&service, "eth_fillTransaction", json!([asked]));
        assert_eq!(answer["error"]["code"], code, "{asked}: {answer}");
    }
}

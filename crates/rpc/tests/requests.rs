//! Requests that are no calls, batches, and limits.

use crate::common::{ask, service_of, workload_chain};
use cambium_node::Node;
use cambium_rpc::{Kind, Limits, Methods, RpcError, Served, Service};
use serde_json::{Value, json};
use std::sync::Arc;

fn service() -> Service {
    service_of(workload_chain(3), Limits::default())
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap()
}

#[test]
fn what_is_no_call_is_refused_with_its_code() {
    let service = service();
    for (request, expected) in [
        ("", -32700),
        ("{", -32700),
        ("nonsense", -32700),
        ("[", -32700),
        ("[]", -32600),
        ("{}", -32600),
        ("7", -32600),
        ("null", -32600),
        (r#"{"id":1,"method":"eth_chainId"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"eth_chainId"}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"eth_chainId"}"#,
            -32600,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"eth_nothing"}"#, -32601),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":{}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[1]}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":[]}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["0x12"]}"#,
            -32602,
        ),
    ] {
        let answer = ask(&service, request);
        assert_eq!(code(&answer), expected, "{request}: {answer}");
        assert_eq!(answer["jsonrpc"], "2.0");
        assert!(answer.get("id").is_some(), "{answer}");
    }
    // Nesting that would end a recursive parser.
    let deep = "[".repeat(1 << 20);
    assert_eq!(code(&ask(&service, &deep)), -32700);
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[{}{}]}}"#,
        "[".repeat(1 << 18),
        "]".repeat(1 << 18)
    );
    assert!(ask(&service, &deep).get("error").is_some());
}

#[test]
fn a_batch_is_answered_in_its_order() {
    let service = service();
    let answer = ask(
        &service,
        r#"[{"jsonrpc":"2.0","id":"a","method":"eth_blockNumber"}, 5,
            {"jsonrpc":"2.0","method":"eth_chainId"},
            {"jsonrpc":"2.0","id":null,"method":"eth_blockNumber"}, {"jsonrpc":"2.0","id":-3.5,"method":"no"}]"#,
    );
    let ids: Vec<_> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert_eq!(ids, [json!("a"), json!(null), json!(null), json!(-3.5)]);
    assert_eq!(answer[0]["result"], "0x3");
    assert_eq!(code(&answer[1]), -32600);
    assert_eq!(answer[2]["result"], "0x3");
    assert_eq!(code(&answer[3]), -32601);
    // Nobody waits for an answer.
    let silent = r#"{"jsonrpc":"2.0","method":"eth_blockNumber"}"#;
    assert_eq!(service.call(silent.as_bytes()), b"");
    assert_eq!(service.call(format!("[{silent},{silent}]").as_bytes()), b"");
}

#[test]
fn limits_are_errors() {
    let limits = Limits {
        batch: 3,
        batch_bytes: 200,
        answer_bytes: 500,
        ..Limits::default()
    };
    let node = Arc::new(Node::of_chain(workload_chain(1)));
    let methods = Methods::of_chain()
        .with("my_text", Kind::Quick, |_, mut params, reply| {
            let length: usize = params.required()?;
            reply.value(&"x".repeat(length))
        })
        .with("my_list", Kind::Quick, |_, _, reply| {
            let mut list = reply.list()?;
            list.item(&1)?;
            Err(RpcError::server("broken on the way"))
        })
        .with("my_panic", Kind::Quick, |_, _, _| panic!("a bug"));
    let service = Service::new(Arc::new(Served::new(node, limits)), methods);
    let text = |length: usize| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"my_text","params":[{length}]}}"#)
    };
    assert_eq!(
        ask(&service, &text(400))["result"].as_str().unwrap().len(),
        400
    );
    assert_eq!(code(&ask(&service, &text(600))), -32003);
    let batch = format!("[{},{},{}]", text(20), text(300), text(20));
    let answer = ask(&service, &batch);
    assert!(answer[0].get("result").is_some(), "{answer}");
    assert_eq!(code(&answer[1]), -32003);
    let four = vec![text(1); 4].join(",");
    assert_eq!(code(&ask(&service, &format!("[{four}]"))), -32600);
    let call = |name: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{name}"}}"#);
    let broken = ask(&service, &call("my_list"));
    assert_eq!(broken["error"]["message"], "broken on the way");
    assert!(broken.get("result").is_none());
    assert_eq!(code(&ask(&service, &call("my_panic"))), -32603);
}

#[test]
fn small_requests_do_not_take_much() {
    let chain = workload_chain(2);
    let head = chain.block(2).unwrap();
    let service = service_of(chain, Limits::default());
    let call = |method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    // A loop under a full stack: millions of steps, each of which would show it.
    let looping = format!("0x{}5b6103e856", "5f".repeat(1000));
    for options in [json!({}), json!({ "tracer": "erc7562Tracer" })] {
        let traced = call(
            "debug_traceCall",
            json!([{ "data": looping }, "latest", options]),
        );
        let answer = ask(&service, &traced);
        assert!(answer.get("error").is_some(), "{options}: {answer}");
    }
    let traced = call("debug_traceCall", json!([{ "data": looping }, "latest"]));
    assert_eq!(code(&ask(&service, &traced)), -32005);
    // Reverts with megabytes of output, many times.
    let revert = call("eth_call", json!([{ "data": "0x624c4b405ffd" }]));
    let batch = format!("[{}]", vec![revert; 30].join(","));
    let answer = service.call(batch.as_bytes());
    assert!(answer.len() < 26_000_000, "{}", answer.len());
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(code(&answer[0]), 3);
    assert_eq!(code(&answer[29]), -32003);
    // Nulls that mean nothing, but would be kept.
    let filter = call(
        "eth_newFilter",
        json!([{ "topics": [vec![Value::Null; 5000]] }]),
    );
    assert_eq!(code(&ask(&service, &filter)), -32602);
    // A stranger's block with more gas than a block can have, or a time before its parent's.
    for (gas, seconds) in [(u64::MAX, 12), (head.header.gas_limit, 0)] {
        let mut header = head.header.clone();
        header.parent_hash = head.header.hash_slow();
        header.number += 1;
        header.timestamp += seconds;
        header.gas_limit = gas;
        let block = cambium_chain::Block::new(header, Default::default());
        let rlp = alloy_primitives::Bytes::from(alloy_rlp::encode(&block));
        let traced = ask(&service, &call("debug_traceBlock", json!([rlp])));
        assert_eq!(code(&traced), -32000, "{traced}");
    }
}

#[test]
fn capabilities_say_what_is_kept() {
    let service = service();
    let asked = r#"{"jsonrpc":"2.0","id":1,"method":"eth_capabilities"}"#;
    let kept = ask(&service, asked)["result"].clone();
    let all = json!({"disabled": false, "oldestBlock": "0x0"});
    // Without a history the state at the head alone is there for any time to come.
    let newest = json!({
        "disabled": false,
        "oldestBlock": "0x3",
        "deleteStrategy": {"type": "window", "retentionBlocks": "0x1"},
    });
    assert_eq!(kept["head"]["number"], "0x3");
    for (resource, expected) in [
        ("blocks", &all),
        ("tx", &all),
        ("receipts", &all),
        ("logs", &all),
        ("state", &newest),
        ("stateproofs", &newest),
    ] {
        assert_eq!(&kept[resource], expected, "{resource}");
    }
}

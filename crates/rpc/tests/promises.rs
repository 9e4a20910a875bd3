//! Promises of docs/RPC.md that clients could make false: work ends with its client, memory is bounded by limits, subscriptions have no
//! gaps, and what is no call is none.

use crate::{
    common::{ask, service_of, workload_chain, workload_genesis},
    server::{Running, call, hear, json_of, receive, say, send},
};
use alloy_primitives::{Address, B256};
use cambium_chain::Chain;
use cambium_rpc::Limits;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use tokio_tungstenite::tungstenite::WebSocket;

fn code(answer: &Value) -> i64 {
    let code = answer["error"]["code"].as_i64();
    code.unwrap_or_else(|| panic!("no error: {answer}"))
}

fn with_id(id: &str, method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

#[test]
fn a_web_socket_client_that_leaves_ends_the_work() {
    let limits = Limits {
        threads: 1,
        ..Limits::default()
    };
    let server = Running::new(workload_chain(1), limits);
    // The only thread is taken by a call whose client leaves: first before its answer has begun, then in the middle of it.
    for (method, argument) in [("my_sleep", 20_000), ("my_slow_list", 20_000)] {
        let mut socket = server.socket();
        say(&mut socket, &call(method, json!([argument])));
        thread::sleep(Duration::from_millis(600));
        drop(socket);
        let started = Instant::now();
        assert_eq!(server.post(&call("eth_chainId", json!([]))).status, 200);
        assert!(started.elapsed() < Duration::from_secs(4), "{method}");
    }
}

#[test]
fn a_slow_call_keeps_nothing_else_of_its_socket_waiting() {
    let all = workload_chain(2);
    let chain = workload_genesis();
    let own = Chain::of(chain.db().clone()).unwrap();
    let server = Running::new(chain, Limits::default());
    let mut socket = server.socket();
    say(&mut socket, &call("eth_subscribe", json!(["newHeads"])));
    hear(&mut socket);
    say(&mut socket, &with_id("slow", "my_sleep", json!([3000])));
    say(&mut socket, &with_id("quick", "eth_chainId", json!([])));
    assert_eq!(hear(&mut socket)["id"], "quick");
    own.import_block(all.block_rlp(1).unwrap(), None).unwrap();
    assert_eq!(hear(&mut socket)["params"]["result"]["number"], "0x1");
    assert_eq!(hear(&mut socket)["id"], "slow");
}

#[test]
fn a_batch_over_a_web_socket_may_be_as_long_as_over_http() {
    let server = Running::new(workload_chain(1), Limits::default());
    let batch = vec![call("my_list", json!([1000])); 8].join(",");
    let mut socket = server.socket();
    say(&mut socket, &format!("[{batch}]"));
    let answer = hear(&mut socket);
    assert_eq!(answer.as_array().unwrap().len(), 8);
    assert!(answer.to_string().len() > 8_000_000);
    say(&mut socket, &call("eth_chainId", json!([])));
    assert!(hear(&mut socket).get("result").is_some());
}

#[test]
fn an_array_of_the_parts_of_a_call_is_no_call() {
    let service = service_of(workload_chain(1), Limits::default());
    let answer = ask(&service, r#"[["2.0",1,"eth_chainId",[]]]"#);
    assert_eq!(code(&answer[0]), -32600, "{answer}");
    assert_eq!(answer[0]["id"], Value::Null);
}

#[test]
fn a_subscription_is_begun_by_a_call_alone() {
    let server = Running::new(workload_chain(1), Limits::default());
    let mut socket = server.socket();
    let long = format!("\"{}\"", "x".repeat(300));
    for id in ["{}", "[1]", "true", &long] {
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_subscribe","params":["newHeads"]}}"#
        );
        say(&mut socket, &request);
        let answer = hear(&mut socket);
        assert_eq!((code(&answer), &answer["id"]), (-32600, &Value::Null));
    }
    for version in ["", r#""jsonrpc":"1.0","#] {
        let request =
            format!(r#"{{{version}"id":7,"method":"eth_subscribe","params":["newHeads"]}}"#);
        say(&mut socket, &request);
        let answer = hear(&mut socket);
        assert_eq!((code(&answer), &answer["id"]), (-32600, &json!(7)));
    }
    say(&mut socket, r#"["2.0",1,"eth_subscribe",["newHeads"]]"#);
    assert_eq!(hear(&mut socket).as_array().unwrap().len(), 4);
    // Nobody would know its name.
    say(
        &mut socket,
        r#"{"jsonrpc":"2.0","method":"eth_subscribe","params":["newHeads"]}"#,
    );
    say(&mut socket, &call("eth_subscribe", json!(["newHeads"])));
    assert_eq!(hear(&mut socket)["result"], "0x1");
}

#[test]
fn filters_of_logs_are_bounded_together() {
    let limits = Limits {
        alternatives: 10,
        ..Limits::default()
    };
    let server = Running::new(workload_chain(1), limits);
    let addresses: Vec<_> = (0..10).map(Address::repeat_byte).collect();
    let topics: Vec<_> = (0..6).map(B256::repeat_byte).collect();
    let filter = json!({ "address": addresses, "topics": [topics] });
    let mut socket = server.socket();
    let mut subscribe = || {
        say(&mut socket, &call("eth_subscribe", json!(["logs", filter])));
        hear(&mut socket)
    };
    for _ in 0..10 {
        assert!(subscribe().get("result").is_some());
    }
    assert_eq!(code(&subscribe()), -32005);
    say(&mut socket, &call("eth_unsubscribe", json!(["0x1"])));
    assert_eq!(hear(&mut socket)["result"], true);
    let new = || json_of(&server.post(&call("eth_newFilter", json!([filter]))).body);
    for _ in 0..160 {
        assert!(new().get("result").is_some());
    }
    assert_eq!(code(&new()), -32005);
    let blocks = server.post(&call("eth_newBlockFilter", json!([])));
    assert!(json_of(&blocks.body).get("result").is_some());
}

#[test]
fn a_call_without_an_identifier_has_no_answer_however_long() {
    let server = Running::new(workload_chain(1), Limits::default());
    let silent = r#"{"jsonrpc":"2.0","method":"my_list","params":[1000]}"#;
    let answer = server.post(silent);
    assert_eq!((answer.status, &*answer.body), (200, ""));
    let mut socket = server.socket();
    say(&mut socket, silent);
    thread::sleep(Duration::from_millis(300));
    say(&mut socket, &with_id("next", "eth_chainId", json!([])));
    assert_eq!(hear(&mut socket)["id"], "next");
}

#[test]
fn one_long_value_goes_in_pieces_as_well() {
    let server = Running::new(workload_chain(1), Limits::default());
    let mut stream = server.connect();
    // Reverts with 5 MB.
    send(
        &mut stream,
        &call("eth_call", json!([{ "data": "0x624c4b405ffd" }])),
    );
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1 << 16]);
    while !bytes.ends_with(b"\r\n0\r\n\r\n") {
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "it ended after {} bytes", bytes.len());
        bytes.extend(&buffer[..read]);
    }
    // Each piece is a chunk with its length before it.
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains("chunked"), "{head}");
    let lengths: Vec<_> = body.split("\r\n").step_by(2).collect();
    assert!(lengths.len() > 100, "{}", lengths.len());
    for length in lengths.iter().filter(|length| !length.is_empty()) {
        assert!(usize::from_str_radix(length, 16).unwrap() <= 1 << 16);
    }
}

/// What a client sees of heads that come while it begins to subscribe to logs: of blocks whose headers come after the answer it has the
/// logs as well.
fn heads_with_logs(
    socket: &mut WebSocket<TcpStream>,
    last: &str,
    begin: &Barrier,
    pause: Duration,
) {
    say(
        socket,
        &with_id("heads", "eth_subscribe", json!(["newHeads"])),
    );
    assert_eq!(hear(socket)["result"], "0x1");
    begin.wait();
    thread::sleep(pause);
    say(socket, &with_id("logs", "eth_subscribe", json!(["logs"])));
    let (mut is_subscribed, mut owed) = (false, BTreeMap::new());
    let mut told = BTreeSet::new();
    // All of a block is told before anything else.
    loop {
        let news = hear(socket);
        let (params, id) = (&news["params"], news["id"].as_str());
        let result = &params["result"];
        match (id, params["subscription"].as_str()) {
            (Some("logs"), _) => is_subscribed = true,
            (Some("end"), _) => break,
            (_, Some("0x1")) => {
                let bloom = result["logsBloom"].as_str().unwrap();
                if is_subscribed && bloom.contains(|digit| !"0x".contains(digit)) {
                    owed.insert(result["hash"].to_string(), result["number"].clone());
                }
                if result["number"] == last {
                    say(socket, &with_id("end", "eth_chainId", json!([])));
                }
            }
            (_, Some("0x2")) => _ = told.insert(result["blockHash"].to_string()),
            _ => panic!("{news}"),
        }
    }
    for (hash, number) in owed {
        assert!(told.contains(&hash), "no logs of block {number}");
    }
}

#[test]
fn logs_begin_with_their_subscription() {
    const AT_ONCE: usize = 10;
    const CLIENTS: u64 = 8;
    let blocks = 40;
    let all = workload_chain(blocks);
    let chain = workload_genesis();
    let own = Chain::of(chain.db().clone()).unwrap();
    let server = Running::new(chain, Limits::default());
    for first in (1..=blocks).step_by(AT_ONCE) {
        let end = first + AT_ONCE as u64 - 1;
        let (last, begin) = (format!("{end:#x}"), Barrier::new(CLIENTS as usize + 1));
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (server, last, begin) = (&server, &last, &begin);
                scope.spawn(move || {
                    let pause = Duration::from_micros(client * 1500);
                    heads_with_logs(&mut server.socket(), last, begin, pause);
                });
            }
            begin.wait();
            for number in first..=end {
                own.import_block(all.block_rlp(number).unwrap(), None)
                    .unwrap();
            }
        });
    }
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let server = Running::new(workload_chain(1), Limits::default());
    let mut stream = server.connect();
    let bodies: Vec<_> = (0..50)
        .map(|number| match number % 10 {
            0 => with_id(&number.to_string(), "my_sleep", json!([20])),
            1 => with_id(&number.to_string(), "my_list", json!([100])),
            _ => with_id(&number.to_string(), "eth_chainId", json!([])),
        })
        .collect();
    let mut all = Vec::new();
    for body in &bodies {
        write!(
            all,
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
    }
    stream.write_all(&all).unwrap();
    for number in 0..bodies.len() {
        let answer = json_of(&receive(&mut stream).body);
        assert_eq!(answer["id"], number.to_string());
    }
}

#[test]
fn a_request_under_another_name_is_refused_however_it_is_named() {
    let server = Running::new(workload_chain(1), Limits::default());
    let status = |target: &str, lines: &str| {
        let mut stream = server.connect();
        let body = call("eth_chainId", json!([]));
        let length = body.len();
        let request =
            format!("POST {target} HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        receive(&mut stream).status
    };
    for host in [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1",
        "[::1]",
        "[::1]:8545",
    ] {
        assert_eq!(status("/", &format!("Host: {host}\r\n")), 200, "{host}");
    }
    for host in [
        "",
        "[::1]evil.example",
        "[::1",
        "localhost.evil.example",
        "localhost@evil.example",
        "0x7f000001",
    ] {
        assert_eq!(status("/", &format!("Host: {host}\r\n")), 403, "{host}");
    }
    assert_eq!(
        status("/", "Host: localhost\r\nHost: evil.example\r\n"),
        403
    );
    assert_eq!(status("http://evil.example/", "Host: localhost\r\n"), 403);
    assert_eq!(status("http://localhost:1/", "Host: localhost\r\n"), 200);
    let twice = "Host: localhost\r\nOrigin: http://a.example\r\nOrigin: http://b.example\r\n";
    assert_eq!(status("/", twice), 403);
    // A WebSocket begins with GET; anything else is a call.
    let upgrade = "Host: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: abc\r\n";
    assert_eq!(status("/", upgrade), 200);
}

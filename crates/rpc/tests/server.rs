//! Servers over real sockets: what clients send that is slow, long, broken or no HTTP, and subscriptions.

use crate::common::{serving::Serving, workload_chain, workload_genesis};
use cambium_chain::Chain;
use cambium_node::Node;
use cambium_rpc::{Kind, Limits, Methods, Served, Service};
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio_tungstenite::tungstenite::{Message, WebSocket};

/// Calls of `my_sleep` whose client has left.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// A server on a port of its own. It ends when this is dropped.
pub(crate) struct Running {
    service: Arc<Service>,
    serving: Serving,
}

impl Running {
    pub(crate) fn new(chain: Chain, limits: Limits) -> Self {
        Self::with(chain, limits, None)
    }

    fn with(chain: Chain, limits: Limits, ipc: Option<PathBuf>) -> Self {
        let methods = Methods::of_chain()
            .with("my_list", Kind::Scan, |call, mut params, reply| {
                let items: u64 = params.required()?;
                let mut list = reply.list()?;
                for item in 0..items {
                    call.cancel.check()?;
                    list.item(&format!("{item:>1000}"))?;
                }
                list.end()
            })
            .with("my_slow_list", Kind::Scan, |call, mut params, reply| {
                let items: u64 = params.required()?;
                let mut list = reply.list()?;
                for item in 0..items {
                    call.cancel.check()?;
                    thread::sleep(Duration::from_millis(5));
                    list.item(&format!("{item:>5000}"))?;
                }
                list.end()
            })
            .with("my_sleep", Kind::Quick, |call, mut params, reply| {
                let millis: u64 = params.required()?;
                let end = Instant::now() + Duration::from_millis(millis);
                while Instant::now() < end {
                    if call.cancel.has_left() {
                        LEFT.fetch_add(1, Ordering::Relaxed);
                    }
                    call.cancel.check()?;
                    thread::sleep(Duration::from_millis(5));
                }
                reply.value(&"slept")
            });
        let node = Arc::new(Node::of_chain(chain));
        let service = Arc::new(Service::new(Arc::new(Served::new(node, limits)), methods));
        let serving = Serving::with_socket(Arc::clone(&service), ipc);
        Self { service, serving }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        self.serving.connect()
    }

    pub(crate) fn post(&self, body: &str) -> Answer {
        let mut stream = self.connect();
        send(&mut stream, body);
        receive(&mut stream)
    }

    pub(crate) fn socket(&self) -> WebSocket<TcpStream> {
        self.serving.socket()
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) fn send(stream: &mut TcpStream, body: &str) {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
}

/// Reads one answer, with a length or in chunks.
pub(crate) fn receive(stream: &mut TcpStream) -> Answer {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).unwrap() {
            0 => panic!("the connection ended: {:?}", String::from_utf8_lossy(&head)),
            _ => head.push(byte[0]),
        }
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1);
    let mut body = Vec::new();
    match length.map(|rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap()) {
        Some(length) => {
            body.resize(length, 0);
            stream.read_exact(&mut body).unwrap();
        }
        None => {
            assert!(lower.contains("transfer-encoding: chunked"), "{head}");
            loop {
                let mut line = Vec::new();
                while !line.ends_with(b"\r\n") {
                    stream.read_exact(&mut byte).unwrap();
                    line.push(byte[0]);
                }
                let line = String::from_utf8(line).unwrap();
                let length = usize::from_str_radix(line.trim(), 16).unwrap();
                let mut chunk = vec![0; length + 2];
                stream.read_exact(&mut chunk).unwrap();
                body.extend(&chunk[..length]);
                if length == 0 {
                    break;
                }
            }
        }
    }
    let body = String::from_utf8(body).unwrap();
    Answer { status, head, body }
}

pub(crate) fn call(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

pub(crate) fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Whether the other side closes the connection within a time.
fn closes(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[test]
fn calls_are_answered_one_after_another_on_a_connection() {
    let server = Running::new(workload_chain(2), Limits::default());
    let mut stream = server.connect();
    for _ in 0..3 {
        send(&mut stream, &call("eth_blockNumber", json!([])));
        let answer = receive(&mut stream);
        assert_eq!(answer.status, 200);
        assert!(
            answer
                .head
                .to_lowercase()
                .contains("content-type: application/json")
        );
        assert_eq!(json_of(&answer.body)["result"], "0x2");
    }
    // A batch, of which one call is unknown.
    let batch = format!(
        "[{},{}]",
        call("eth_chainId", json!([])),
        call("no_method", json!([]))
    );
    send(&mut stream, &batch);
    let answer = json_of(&receive(&mut stream).body);
    assert_eq!(answer.as_array().unwrap().len(), 2);
    assert_eq!(answer[1]["error"]["code"], -32601);
    let counts = server.service.counts();
    assert_eq!((counts.requests, counts.calls, counts.errors), (4, 5, 1));
}

#[test]
fn what_is_no_call_over_http_is_refused() {
    let limits = Limits {
        body_bytes: 10_000,
        ..Limits::default()
    };
    let server = Running::new(workload_chain(1), limits);
    let raw = |text: &str| {
        let mut stream = server.connect();
        stream.write_all(text.as_bytes()).unwrap();
        receive(&mut stream).status
    };
    assert_eq!(raw("GET / HTTP/1.1\r\nHost: [::1]:8\r\n\r\n"), 405);
    assert_eq!(
        raw("PUT / HTTP/1.1\r\nHost: [::1]:8\r\nContent-Length: 0\r\n\r\n"),
        405
    );
    let text = "POST / HTTP/1.1\r\nHost: [::1]:8\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(raw(text), 415);
    assert_eq!(
        raw("POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 2\r\n\r\n{}"),
        403
    );
    let page = "POST / HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(raw(page), 403);
    // A page of this server's own.
    let own = "POST / HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(raw(own), 200);
    let other_port = own.replace("Origin: http://localhost:1", "Origin: http://localhost:2");
    assert_eq!(raw(&other_port), 403);
    assert_eq!(raw("nonsense\r\n\r\n"), 400);
    assert_eq!(server.post(&" ".repeat(10_001)).status, 413);
    assert_eq!(server.post(&" ".repeat(10_000)).status, 200);
    let bad =
        "GET / HTTP/1.1\r\nHost: [::1]:8\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    assert_eq!(raw(bad), 400);
    // A length that never comes true, and chunks without end.
    let mut stream = server.connect();
    let head = "POST / HTTP/1.1\r\nHost: [::1]:8\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let sent = (0..100)
        .take_while(|_| stream.write_all(chunk.as_bytes()).is_ok())
        .count();
    assert!(sent < 100 || receive(&mut stream).status == 413);
}

#[test]
fn a_client_that_says_nothing_or_little_is_left() {
    let limits = Limits {
        header_time: Duration::from_millis(300),
        idle_time: Duration::from_millis(600),
        connections: 2,
        ..Limits::default()
    };
    let server = Running::new(workload_chain(1), limits);
    let silent = server.connect();
    let mut slow = server.connect();
    slow.write_all(b"POST / HTTP/1.1\r\nHos").unwrap();
    // Both connections are taken, until their time is over.
    let started = Instant::now();
    assert_eq!(server.post(&call("eth_chainId", json!([]))).status, 200);
    let waited = started.elapsed();
    assert!(
        waited > Duration::from_millis(200) && waited < Duration::from_secs(10),
        "{waited:?}"
    );
    for mut stream in [silent, slow] {
        assert!(closes(&mut stream, Duration::from_secs(5)));
    }
    // A body that does not come.
    let mut stream = server.connect();
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: [::1]:8\r\nContent-Length: 100\r\n\r\n{")
        .unwrap();
    assert_eq!(receive(&mut stream).status, 408);
}

#[test]
fn a_long_answer_leaves_while_it_is_made() {
    let limits = Limits {
        answer_bytes: 50_000_000,
        ..Limits::default()
    };
    let server = Running::new(workload_chain(1), limits);
    let answer = server.post(&call("my_list", json!([10_000])));
    assert_eq!(answer.status, 200);
    let items = json_of(&answer.body)["result"].as_array().unwrap().len();
    assert_eq!(items, 10_000);
    // More than is allowed: the answer breaks off, since it can't be taken back.
    let mut stream = server.connect();
    send(&mut stream, &call("my_list", json!([100_000])));
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    assert!(!all.ends_with(b"0\r\n\r\n"), "{read:?}");
    assert!(all.len() < 60_000_000);
    // A client that reads nothing, and leaves: the work ends.
    let mut stream = server.connect();
    send(&mut stream, &call("my_list", json!([45_000])));
    thread::sleep(Duration::from_millis(200));
    drop(stream);
    assert_eq!(server.post(&call("eth_chainId", json!([]))).status, 200);
}

#[test]
fn the_time_for_an_answer_is_limited_and_others_are_answered_meanwhile() {
    let limits = Limits {
        time: Duration::from_millis(400),
        threads: 4,
        ..Limits::default()
    };
    let server = Running::new(workload_chain(1), limits);
    let answer = json_of(&server.post(&call("my_sleep", json!([5_000]))).body);
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    // Scans have a share of the threads: quick calls go on.
    let mut scans: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for scan in &mut scans {
        send(scan, &call("my_list", json!([40_000])));
    }
    let started = Instant::now();
    assert_eq!(server.post(&call("eth_chainId", json!([]))).status, 200);
    assert!(started.elapsed() < Duration::from_millis(300));
}

pub(crate) fn say(socket: &mut WebSocket<TcpStream>, text: &str) {
    socket.send(Message::text(text)).unwrap();
}

pub(crate) fn hear(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => return json_of(&text),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_web_socket_has_answers_and_news() {
    let all = workload_chain(6);
    let chain = workload_genesis();
    let own = Chain::of(chain.db().clone()).unwrap();
    let add = |number: u64| {
        own.import_block(all.block_rlp(number).unwrap(), None)
            .unwrap();
    };
    (1..=3).for_each(add);
    let server = Running::new(chain, Limits::default());
    let mut socket = server.socket();
    say(&mut socket, &call("eth_blockNumber", json!([])));
    assert_eq!(hear(&mut socket)["result"], "0x3");
    // An answer in several frames.
    say(&mut socket, &call("my_list", json!([1_000])));
    assert_eq!(hear(&mut socket)["result"].as_array().unwrap().len(), 1_000);
    for (what, is_known) in [("newHeads", true), ("logs", true), ("rain", false)] {
        say(&mut socket, &call("eth_subscribe", json!([what])));
        let answer = hear(&mut socket);
        assert_eq!(answer.get("result").is_some(), is_known, "{answer}");
    }
    // The next blocks come.
    let made: Vec<_> = (4..=6)
        .map(|number| {
            add(number);
            all.block(number).unwrap().header
        })
        .collect();
    let (mut heads, mut logs) = (Vec::new(), 0);
    while heads.len() < made.len() {
        let news = hear(&mut socket);
        assert_eq!(news["method"], "eth_subscription");
        let result = &news["params"]["result"];
        match news["params"]["subscription"].as_str().unwrap() {
            "0x1" => heads.push(result["hash"].clone()),
            "0x2" => {
                assert_eq!(result["removed"], false);
                logs += 1;
            }
            other => panic!("{other}"),
        }
    }
    let expected: Vec<_> = made
        .iter()
        .map(|header| json!(header.hash_slow()))
        .collect();
    assert_eq!(heads, expected);
    assert!(logs > 0);
    say(&mut socket, &call("eth_unsubscribe", json!(["0x1"])));
    say(&mut socket, &call("eth_unsubscribe", json!(["0x9"])));
    let answers: Vec<_> = std::iter::repeat_with(|| hear(&mut socket))
        .filter(|answer| answer.get("id").is_some())
        .take(2)
        .collect();
    assert_eq!(answers[0]["result"], true);
    assert_eq!(answers[1]["result"], false);
    drop(server);
    // The server has said that it ends.
    loop {
        match socket.read() {
            Ok(Message::Close(_)) | Err(_) => break,
            Ok(_) => {}
        }
    }
}

#[test]
fn a_socket_in_the_file_system_has_answers_and_news() {
    let all = workload_chain(4);
    let chain = workload_genesis();
    let own = Chain::of(chain.db().clone()).unwrap();
    let add = |number: u64| {
        own.import_block(all.block_rlp(number).unwrap(), None)
            .unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cambium.ipc");
    // What an earlier process has left is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Running::with(chain, Limits::default(), Some(path.clone()));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut lines = std::io::BufReader::new(stream.try_clone().unwrap());
    let mut hear = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
        json_of(&line)
    };
    // Two calls at once, and one in pieces.
    let two = call("eth_blockNumber", json!([])) + &call("eth_chainId", json!([]));
    stream.write_all(two.as_bytes()).unwrap();
    let answers = [hear(), hear()];
    assert!(answers.iter().all(|answer| answer.get("result").is_some()));
    let (first, second) = two.split_at(20);
    stream.write_all(first.as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(50));
    stream.write_all(second.as_bytes()).unwrap();
    hear();
    hear();
    stream
        .write_all(call("my_list", json!([1_000])).as_bytes())
        .unwrap();
    assert_eq!(hear()["result"].as_array().unwrap().len(), 1_000);
    stream
        .write_all(call("eth_subscribe", json!(["newHeads"])).as_bytes())
        .unwrap();
    assert_eq!(hear()["result"], "0x1");
    add(1);
    assert_eq!(hear()["params"]["result"]["number"], "0x1");
    // What is no JSON ends the connection, and no other one.
    let mut bad = UnixStream::connect(&path).unwrap();
    bad.write_all(b"nonsense").unwrap();
    let mut rest = Vec::new();
    assert_eq!(bad.read_to_end(&mut rest).unwrap(), 0);
    stream
        .write_all(call("eth_chainId", json!([])).as_bytes())
        .unwrap();
    hear();
    drop(server);
    assert!(!path.exists());
}

#[test]
fn filters_tell_what_is_new() {
    let all = workload_chain(6);
    let chain = workload_genesis();
    let own = Chain::of(chain.db().clone()).unwrap();
    let add = |number: u64| {
        own.import_block(all.block_rlp(number).unwrap(), None)
            .unwrap();
    };
    let server = Running::new(chain, Limits::default());
    let ask = |method: &str, params: Value| {
        let answer = json_of(&server.post(&call(method, params)).body);
        answer.get("result").cloned().ok_or(answer)
    };
    let blocks = ask("eth_newBlockFilter", json!([])).unwrap();
    let logs = ask(
        "eth_newFilter",
        json!([{ "fromBlock": "0x1", "toBlock": "latest" }]),
    )
    .unwrap();
    assert_ne!(blocks, logs);
    let nothing = ask("eth_newPendingTransactionFilter", json!([])).unwrap();
    assert_eq!(
        ask("eth_getFilterChanges", json!([blocks])).unwrap(),
        json!([])
    );
    (1..=3).for_each(add);
    let hash = |number| json!(all.block(number).unwrap().header.hash_slow());
    let expected: Vec<_> = (1..=3).map(hash).collect();
    assert_eq!(
        ask("eth_getFilterChanges", json!([blocks])).unwrap(),
        json!(expected)
    );
    let new = ask("eth_getFilterChanges", json!([logs])).unwrap();
    assert!(!new.as_array().unwrap().is_empty());
    assert_eq!(
        ask("eth_getFilterChanges", json!([logs])).unwrap(),
        json!([])
    );
    assert_eq!(
        ask("eth_getFilterChanges", json!([nothing])).unwrap(),
        json!([])
    );
    add(4);
    assert_eq!(
        ask("eth_getFilterChanges", json!([blocks])).unwrap(),
        json!([hash(4)])
    );
    assert_eq!(ask("eth_uninstallFilter", json!([blocks])).unwrap(), true);
    assert_eq!(ask("eth_uninstallFilter", json!([blocks])).unwrap(), false);
    let gone = ask("eth_getFilterChanges", json!([blocks])).unwrap_err();
    assert_eq!(gone["error"]["code"], -32000);
    assert!(ask("eth_getFilterLogs", json!([nothing])).is_err());
}

#[test]
fn a_client_that_leaves_or_takes_nothing_ends_the_work() {
    let limits = Limits {
        idle_time: Duration::from_millis(500),
        connections: 1,
        ..Limits::default()
    };
    let server = Running::new(workload_chain(1), limits);
    let mut stream = server.connect();
    send(&mut stream, &call("my_sleep", json!([20_000])));
    thread::sleep(Duration::from_millis(100));
    drop(stream);
    let started = Instant::now();
    while LEFT.load(Ordering::Relaxed) == 0 {
        assert!(started.elapsed() < Duration::from_secs(5));
        thread::sleep(Duration::from_millis(10));
    }
    // The only connection is taken by one that does not read; it is closed, and the next one has its turn.
    let mut stream = server.connect();
    send(&mut stream, &call("my_list", json!([100_000])));
    thread::sleep(Duration::from_millis(100));
    assert_eq!(server.post(&call("eth_chainId", json!([]))).status, 200);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 50_000_000, "{}", rest.len());
}

//! Endpoints over REST: paths, methods and headers, and a server over real sockets, by HTTP/1.1 and HTTP/2.

use crate::{
    common::{
        consensus::Consensus,
        rest::{FORKS, SSZ, name_of, updated},
        served_of, workload_genesis,
    },
    engine::{valid, workload},
    rest::choice,
};
use alloy_primitives::{B256, Bytes};
use cambium_chain::Fork;
use cambium_rpc::{JwtSecret, Limits, PoolLimits, Server};
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{runtime::Builder, sync::oneshot};

#[test]
fn paths_methods_and_headers_are_checked_before_the_body() {
    let (known, consensus, _) = workload(Fork::Osaka);
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = consensus.send(request.body(Bytes::new()).unwrap());
        let (status, class) = answer.problem();
        (status, class)
    };
    let osaka = ("eth-execution-version", "osaka");
    let ssz = (CONTENT_TYPE.as_str(), SSZ);
    for path in [
        "/engine/v1",
        "/engine/v1/",
        "/engine/v2/payloads",
        "/engine/v1/payload",
        "/engine/v1/payloads/",
        "/engine/v1/payloads/0x0000000000000000/1",
        "/engine/v1/osaka/payloads",
        "/engine/v1/blobs",
        "/engine/v1/blobs/v5",
        "/engine/v1//payloads",
    ] {
        let class = "method-not-found".to_owned();
        let got = ask("POST", path, &[osaka, ssz]);
        // The slash at the end begins an empty identifier.
        let expected = match path {
            "/engine/v1/payloads/" => (405, class),
            _ => (404, class),
        };
        assert_eq!(got, expected, "{path}");
    }
    let own = "/engine/v1/payloads";
    for (method, path) in [
        ("GET", own),
        ("PUT", own),
        ("GET", "/engine/v1/forkchoice"),
        ("GET", "/engine/v1/bodies/hash"),
        ("POST", "/engine/v1/bodies"),
        ("POST", "/engine/v1/payloads/0x0000000000000000"),
        ("GET", "/engine/v1/blobs/v1"),
        ("POST", "/engine/v1/capabilities"),
        ("DELETE", "/engine/v1/identity"),
    ] {
        let (status, _) = ask(method, path, &[osaka, ssz]);
        assert_eq!(status, 405, "{method} {path}");
    }
    let media = |headers: &[(&str, &str)]| ask("POST", own, headers);
    let wrong = (415, "unsupported-media-type".to_owned());
    assert_eq!(media(&[osaka]), wrong);
    assert_eq!(
        media(&[osaka, (CONTENT_TYPE.as_str(), "application/json")]),
        wrong
    );
    let decode = (400, "ssz-decode-error".to_owned());
    assert_eq!(media(&[osaka, ssz]), decode);
    let with_charset = (CONTENT_TYPE.as_str(), "Application/Octet-Stream; q=1");
    assert_eq!(media(&[osaka, with_charset]), decode);
    let unsupported = (400, "unsupported-fork".to_owned());
    assert_eq!(media(&[ssz]), unsupported);
    for name in ["bellatrix", "Osaka", "bpo1", ""] {
        assert_eq!(media(&[ssz, ("eth-execution-version", name)]), unsupported);
    }
    let length = ("content-length", "67108865");
    let too_large = (413, "request-too-large".to_owned());
    assert_eq!(media(&[osaka, ssz, length]), too_large);
    let answer = consensus.post("forkchoice", Some(Fork::Osaka), vec![0; 65_537]);
    assert_eq!(answer.problem(), too_large);
    for id in [
        "0x",
        "0x00",
        "0000000000000000",
        "0x000000000000000g",
        "0x00000000000000000",
    ] {
        let answer = consensus.get(&format!("payloads/{id}"), Some(Fork::Osaka));
        assert_eq!(
            answer.problem(),
            (400, "invalid-request".to_owned()),
            "{id}"
        );
    }
    // The headers of other endpoints are not looked at.
    let capabilities = consensus.get("capabilities", None).json();
    assert_eq!(capabilities["supported_forks"], json!(FORKS.map(name_of)));
    assert_eq!(capabilities["limits"]["payload.max_bytes"], 67_108_864);
    assert_eq!(capabilities["limits"]["bodies.max_count"], 32);
    assert_eq!(capabilities["limits"]["blobs.max_versioned_hashes"], 128);
    let identity = consensus.get("identity", Some(Fork::Paris)).json();
    let version = consensus.call("engine_getClientVersionV1", json!([]));
    assert_eq!(identity, version["result"]);
    // A request that is refused changes nothing.
    for own in &known {
        assert_eq!(consensus.new_payload_ssz(own), valid(own.hash()));
    }
    let counts = consensus.service.counts();
    assert!(
        counts.errors > 30 && counts.requests > counts.errors,
        "{counts:?}"
    );
}

#[test]
fn a_service_without_rest_has_no_endpoints() {
    let (_, consensus, _) = workload(Fork::Osaka);
    let served = Arc::clone(&consensus.served);
    let service = cambium_rpc::Service::new(served, cambium_rpc::Methods::of_chain());
    let request = Request::get("/engine/v1/identity").body(Bytes::new());
    assert_eq!(service.rest(request.unwrap()).status(), 404);
}

/// A server of a chain without blocks, with a secret. It ends when this is dropped.
struct Running {
    address: SocketAddr,
    secret: JwtSecret,
    genesis: B256,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new() -> Self {
        let secret = JwtSecret::new([7; 32]);
        let limits = Limits {
            body_bytes: 1 << 20,
            header_time: Duration::from_secs(1),
            ..Limits::of_engine()
        };
        let served = served_of(workload_genesis(), limits, PoolLimits::default());
        let genesis = served.node().head().hash;
        let service = Arc::new(Consensus::new(served).service);
        let (to_address, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let own = secret.clone();
        let thread = thread::spawn(move || {
            let mut runtime = Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listening = Server::listen("127.0.0.1:0".parse().unwrap());
                let server = listening.await.unwrap();
                to_address.send(server.address()).unwrap();
                let stopped = async {
                    let _ = stopped.await;
                };
                server.with_jwt(own).run(service, stopped).await;
            });
        });
        Self {
            address: address.recv().unwrap(),
            secret,
            genesis,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn token(&self) -> String {
        format!("Authorization: Bearer {}", self.secret.token())
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// Status, head and body of an answer by HTTP/1.1.
    fn ask(&self, head: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = self.connect();
        let head = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // The server may have answered already, and read no more.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&answer)));
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), answer[end + 4..].to_vec())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

#[test]
fn a_server_has_both_transports_at_one_port_with_one_secret() {
    let running = Running::new();
    let ask = |head: &str, body: &[u8]| running.ask(head, body);
    let token = running.token();
    let (status, head, body) = ask(&format!("GET /engine/v1/identity HTTP/1.1\r\n{token}"), &[]);
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("Cambium"));
    assert_eq!(ask("GET /engine/v1/identity HTTP/1.1", &[]).0, 401);
    let (status, head, _) = ask(&format!("GET /engine/v1/payloads HTTP/1.1\r\n{token}"), &[]);
    assert_eq!(status, 405);
    assert!(head.contains("allow: post"), "{head}");

    let update = choice(running.genesis, None).encode(Fork::Osaka);
    let post = |length: usize, headers: &str| {
        format!(
            "POST /engine/v1/forkchoice HTTP/1.1\r\n{token}\r\nEth-Execution-Version: osaka\r\nContent-Length: {length}\r\n{headers}"
        )
    };
    let ssz = format!("Content-Type: {SSZ}");
    let (status, head, body) = ask(&post(update.len(), &ssz), &update);
    assert_eq!(status, 200, "{head}");
    assert!(head.contains(&format!("content-type: {SSZ}")), "{head}");
    assert_eq!(updated(&body)["payloadStatus"], valid(running.genesis));
    let without = post(update.len(), &ssz).replace(&token, "X-None: 1");
    assert_eq!(ask(&without, &update).0, 401);
    assert_eq!(ask(&post(update.len(), "Accept: */*"), &update).0, 415);
    // Too much, said before the body is sent, and found while it comes.
    assert_eq!(ask(&post(65_537, &ssz), &[]).0, 413);
    let chunked = format!(
        "POST /engine/v1/payloads HTTP/1.1\r\n{token}\r\nEth-Execution-Version: osaka\r\n{ssz}\r\nTransfer-Encoding: chunked"
    );
    let mut body = format!("{:x}\r\n", (1 << 20) + 1).into_bytes();
    body.extend(vec![0; (1 << 20) + 1]);
    body.extend(b"\r\n0\r\n\r\n");
    let (status, _, body) = ask(&chunked, &body);
    assert_eq!(status, 413, "{}", String::from_utf8_lossy(&body));
    let json = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
    let head = format!(
        "POST / HTTP/1.1\r\n{token}\r\nContent-Length: {}",
        json.len()
    );
    let (status, _, body) = ask(&head, json.as_bytes());
    assert_eq!(status, 200);
    assert!(String::from_utf8(body).unwrap().contains("0x0"));
}

#[test]
fn requests_share_a_connection_of_http_2() {
    let running = Running::new();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(running.address).await;
        let stream = TokioIo::new(stream.unwrap());
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let token = format!("Bearer {}", running.secret.token());
        let update = choice(running.genesis, None).encode(Fork::Osaka);
        let request = |host: &str, token: &str| {
            Request::post(format!("http://{host}/engine/v1/forkchoice"))
                .header("authorization", token)
                .header("eth-execution-version", "osaka")
                .header(CONTENT_TYPE, SSZ)
                .body(Full::new(Bytes::from(update.clone()).0))
                .unwrap()
        };
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let answer = sender.clone().send_request(request("localhost", &token));
            answers.spawn(async move {
                let answer = answer.await.unwrap();
                assert_eq!(answer.status(), 200);
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                updated(&body)["payloadStatus"].clone()
            });
        }
        let all = answers.join_all().await;
        assert!(all.iter().all(|status| *status == valid(running.genesis)));
        let refused = sender
            .clone()
            .send_request(request("localhost", "Bearer 1"));
        assert_eq!(refused.await.unwrap().status(), 401);
        let refused = sender.clone().send_request(request("example.org", &token));
        assert_eq!(refused.await.unwrap().status(), 403);
        let call = Request::post("http://localhost/")
            .header("authorization", &token)
            .body(Full::new(
                r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#.into(),
            ));
        let answer = sender.clone().send_request(call.unwrap()).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], br#"{"jsonrpc":"2.0","id":1,"result":"0x0"}"#);
        drop(sender);
        connection.await.unwrap().unwrap();
    });
}

#[test]
fn a_connection_that_begins_nothing_is_closed() {
    let running = Running::new();
    for first in [
        &b""[..],
        b"P",
        b"PR",
        b"PRI * HTTP/2.0\r\n",
        b"PRINT / HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = running.connect();
        stream.write_all(first).unwrap();
        let mut rest = Vec::new();
        // In a second, or with what HTTP/2 says of an error.
        let ended = stream.read_to_end(&mut rest);
        let is_closed =
            |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(
            ended.as_ref().err().is_none_or(is_closed),
            "{first:?}: {ended:?}"
        );
    }
}

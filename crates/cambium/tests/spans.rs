//! `--otlp`: spans go to a collector of OpenTelemetry.

use crate::support::program;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    sync::mpsc,
    thread,
};

/// Whether bytes occur in others. Names are in the messages as they are.
fn has(bytes: &[u8], part: &str) -> bool {
    bytes
        .windows(part.len())
        .any(|window| window == part.as_bytes())
}

/// Takes one request after another, and passes on the path and the body of each.
fn collector() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (mut path, mut length, mut line) = (String::new(), 0, String::new());
            while stream.read_line(&mut line).expect("a line") > 2 {
                if let Some(rest) = line.strip_prefix("POST ") {
                    path = rest.split(' ').next().unwrap_or_default().to_owned();
                }
                let lower = line.to_lowercase();
                if let Some(bytes) = lower.strip_prefix("content-length:") {
                    length = bytes.trim().parse().expect("a number");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("the body");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).expect("it listens");
            if sender.send((path, body)).is_err() {
                break;
            }
        }
    });
    (url, receiver)
}

#[test]
fn a_collector_gets_the_spans_of_a_run() {
    let (url, requests) = collector();
    let run = program()
        .args(["demo", "--accounts", "300", "--blocks", "4", "--otlp", &url])
        .env("OTEL_SERVICE_NAME", "a-name-of-its-own")
        .output()
        .expect("it starts");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let got: Vec<_> = requests.try_iter().collect();
    assert!(!got.is_empty());
    assert!(got.iter().all(|(path, _)| path == "/v1/traces"));
    let all: Vec<u8> = got.into_iter().flat_map(|(_, body)| body).collect();
    // What a block goes through, a field of one, and the process.
    for part in [
        "execute",
        "commit",
        "merge",
        "prove",
        "number",
        "a-name-of-its-own",
    ] {
        assert!(has(&all, part), "{part}");
    }
    assert!(!has(&all, "reqwest") && !has(&all, "hyper"));
}

#[test]
fn a_run_does_not_need_its_collector() {
    // Nobody listens there.
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", gone.local_addr().expect("its address"));
    drop(gone);
    let run = |url: &str| {
        let run = program()
            .args(["demo", "--accounts", "300", "--blocks", "2", "--otlp", url])
            .output();
        crate::support::Run::of(run.expect("it starts"))
    };
    run(&url).fails(0, &["ExportError"]);
    run("http://not an address").fails(2, &["not an address"]);
    for wrong in ["https://127.0.0.1:4318", "127.0.0.1:4318"] {
        run(wrong).fails(2, &["over HTTP alone"]);
    }
}

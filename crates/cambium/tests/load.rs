//! A server under load, beside the process that imports into its database: what it takes, how long it takes, and what clients that mean it
//! harm take from others.
//!
//! Times are printed and not asserted, but for a plain request while others do their worst.

#[macro_use]
mod support;

use cambium_seeds::is_long;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::{Shutdown, TcpStream},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use support::{
    Fixture,
    http::{Client, call, http},
    say,
    served::Served,
};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// Blocks that the server has when it starts.
const FIRST: u64 = 60;
/// Files of blocks that are imported meanwhile, and blocks of each.
const SLICES: u64 = 24;
const SLICE: u64 = 5;
/// Memory that the database of the server may take.
const DB_MEMORY: &str = "128M";
/// What requests and answers may hold together by default.
const HELD: u64 = 512 << 20;
/// What a server takes besides, and what the allocator keeps.
const SLACK: u64 = 512 << 20;
/// A plain request is answered within this time whatever others do. Alone it takes a millisecond.
const QUICK: Duration = Duration::from_secs(5);

/// A request with its name in the report.
type Asked = (&'static str, String);

/// A server whose database another process imports into.
struct Loaded {
    fixture: Fixture,
    server: Served,
    /// What requests are about.
    known: Value,
}

impl Loaded {
    fn start() -> Self {
        let blocks = FIRST + SLICES * SLICE;
        let fixture = Fixture::generate(1000, blocks, 30);
        fixture.import(&fixture.chain()).done();
        let export = |name: &str, from: u64, to: u64| {
            let file = fixture.path(name);
            let [from, to] = [from, to].map(|number| number.to_string());
            cambium!(
                "export",
                &file,
                "--from",
                from,
                "--to",
                to,
                "-d",
                fixture.db()
            )
            .done();
            file
        };
        let first = export("first.rlp", 1, FIRST);
        for slice in 0..SLICES {
            let from = FIRST + slice * SLICE + 1;
            export(&format!("{slice}.rlp"), from, from + SLICE - 1);
        }
        let copy = fixture.path("copy");
        let genesis = fixture.genesis();
        cambium!(
            "import",
            &first,
            "--genesis",
            genesis,
            "--index",
            "-d",
            &copy
        )
        .done();
        let server = Served::start(&copy, &["--memory", DB_MEMORY]);
        let known = server.result("eth_getBlockByNumber", json!(["0x5", true]));
        Self {
            fixture,
            server,
            known,
        }
    }

    /// Imports a slice by a process of its own.
    fn import(&self, slice: u64) {
        let file: PathBuf = self.fixture.path(&format!("{slice}.rlp"));
        let copy = self.fixture.path("copy");
        cambium!("import", file, "--index", "-d", copy).done();
    }

    fn client(&self) -> Client {
        Client::new(&self.server.address)
    }

    /// A figure of the process, in bytes.
    fn memory(&self, figure: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with(figure))
            .unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// Requests of all kinds, the heavy ones less often.
    fn mixed(&self) -> Vec<Asked> {
        let transaction = &self.known["transactions"][0];
        let (sender, hash) = (&transaction["from"], &transaction["hash"]);
        let token = "0x70ce000000000000000000000000000000000000";
        let balance = format!("0x70a08231{:0>64}", &sender.as_str().unwrap()[2..]);
        let held = json!({ "to": token, "data": balance });
        let one = call("eth_getBalance", json!([sender, "latest"]));
        let batch = format!("[{}]", vec![&*one; 20].join(","));
        let logs =
            |from: &str, to: &str| json!([{ "fromBlock": from, "toBlock": to, "address": token }]);
        let kinds = [
            (8, "head", call("eth_blockNumber", json!([]))),
            (8, "balance", one),
            (
                4,
                "old balance",
                call("eth_getBalance", json!([sender, "0x10"])),
            ),
            (
                4,
                "block",
                call("eth_getBlockByNumber", json!(["latest", true])),
            ),
            (
                4,
                "receipt",
                call("eth_getTransactionReceipt", json!([hash])),
            ),
            (4, "call", call("eth_call", json!([held, "latest"]))),
            (
                2,
                "proof",
                call("eth_getProof", json!([sender, [], "latest"])),
            ),
            (2, "batch of 20", batch),
            (
                2,
                "logs of 40 blocks",
                call("eth_getLogs", logs("0x1", "0x28")),
            ),
            (
                1,
                "fees",
                call("eth_feeHistory", json!(["0x10", "latest", [50]])),
            ),
            (
                1,
                "trace",
                call(
                    "debug_traceTransaction",
                    json!([hash, { "tracer": "callTracer" }]),
                ),
            ),
        ];
        let kinds = kinds.into_iter();
        kinds
            .flat_map(|(times, name, body)| vec![(name, body); times])
            .collect()
    }

    /// Asks at a concurrency until the end. Returns the times of each kind.
    fn load(&self, threads: usize, time: Duration) -> BTreeMap<&'static str, Vec<Duration>> {
        let asked = self.mixed();
        let all = Mutex::new(BTreeMap::<_, Vec<_>>::new());
        let end = Instant::now() + time;
        thread::scope(|scope| {
            for thread in 0..threads {
                let (asked, all) = (&asked, &all);
                scope.spawn(move || {
                    let mut client = self.client();
                    let mut own = Vec::new();
                    let mut at = thread * 7;
                    while Instant::now() < end {
                        let (name, body) = &asked[at % asked.len()];
                        // Another kind each time: the step has no divisor in common with the number of requests.
                        at += 13;
                        let begun = Instant::now();
                        let answer = client.ask(body);
                        own.push((*name, begun.elapsed()));
                        let has_error = |one: &Value| one.get("error").is_some();
                        let fails = match &answer {
                            Value::Array(all) => all.len() != 20 || all.iter().any(has_error),
                            one => has_error(one),
                        };
                        assert!(!fails, "{body}: {answer}");
                    }
                    let mut all = all.lock().unwrap();
                    for (name, taken) in own {
                        all.entry(name).or_default().push(taken);
                    }
                });
            }
        });
        all.into_inner().unwrap()
    }

    /// Does something while plain requests are asked. Prints how long they took, and what the server took.
    fn meanwhile<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        let (count, slowest) = (AtomicU64::new(0), AtomicU64::new(0));
        let done = thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = self.client();
                let plain = call("eth_blockNumber", json!([]));
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    client.ask(&plain);
                    count.fetch_add(1, Ordering::Relaxed);
                    slowest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            // Whatever happens, the other thread ends.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            is_over.store(true, Ordering::Relaxed);
            done
        });
        let slowest = Duration::from_micros(slowest.into_inner());
        say(&format!(
            "{what}: {} plain requests, the slowest {slowest:?}; resident {} MiB",
            count.into_inner(),
            self.memory("VmRSS") >> 20
        ));
        let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(slowest < QUICK, "{what}: a plain request took {slowest:?}");
        done
    }

    /// Waits until the server has given memory back.
    fn rests_at(&self, most: u64) {
        let begun = Instant::now();
        while self.memory("VmRSS") > most {
            let has = self.memory("VmRSS") >> 20;
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{has} MiB stay, {} are expected",
                most >> 20
            );
            // The allocator gives back when it is used.
            self.client().ask(&call("eth_blockNumber", json!([])));
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

/// Malformed heads and bodies: each is refused, or its connection closed.
fn malformed(loaded: &Loaded) {
    let bodies = [
        "nonsense\r\n\r\n".to_owned(),
        "POST / HTTP/9.9\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n".to_owned(),
        format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(1 << 20)
        ),
        format!("POST / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(5000)),
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
        "\u{0}\u{1}\u{2}\r\n\r\n".to_owned(),
    ];
    for round in 0..200 {
        let mut client = loaded.client();
        // The server may have closed before all is sent.
        let _ = client
            .stream
            .write_all(bodies[round % bodies.len()].as_bytes());
        let _ = client.stream.shutdown(Shutdown::Write);
        if let Some((status, _)) = client.answer() {
            assert!((400..500).contains(&status), "{status}");
        }
    }
    let refused = |body: &str, code: i64| {
        let mut client = loaded.client();
        let answer = client.ask(body);
        assert_eq!(answer["error"]["code"], code, "{answer}");
    };
    refused(&"[".repeat(5 << 20), -32700);
    refused(&"{\"a\":".repeat(1 << 20), -32700);
    refused(&format!("[{}1]", "1,".repeat(2 << 20)), -32600);
    let deep = format!("{}{}", "[".repeat(2 << 20), "]".repeat(2 << 20));
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_call","params":{deep}}}"#);
    refused(&deep, -32602);
    let mut client = loaded.client();
    // More than a body may have; the server may close before all is sent.
    let _ = client.stream.write_all(&http(&" ".repeat(6 << 20)));
    assert!(client.answer().is_none_or(|(status, _)| status == 413));
}

/// Heads and bodies that come byte by byte, over most of the connections that there may be.
fn slow(loaded: &Loaded, time: Duration) {
    let mut heads: Vec<_> = (0..250).map(|_| loaded.client()).collect();
    let mut bodies: Vec<_> = (0..200).map(|_| loaded.client()).collect();
    for client in &mut heads {
        client
            .stream
            .write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nX: ")
            .unwrap();
    }
    for client in &mut bodies {
        let head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\n";
        client.stream.write_all(head).unwrap();
    }
    let end = Instant::now() + time;
    while Instant::now() < end {
        for client in heads.iter_mut().chain(&mut bodies) {
            let _ = client.stream.write_all(b"x");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Answers of many megabytes that nobody reads.
fn unread(loaded: &Loaded, time: Duration) {
    let revert = call("eth_call", json!([{ "data": "0x623d09005ffd" }]));
    let batch = http(&format!("[{}]", [&*revert; 3].join(",")));
    let mut clients: Vec<_> = (0..100).map(|_| loaded.client()).collect();
    for client in &mut clients {
        client.stream.write_all(&batch).unwrap();
    }
    let end = Instant::now() + time;
    while Instant::now() < end {
        let resident = loaded.memory("VmRSS");
        assert!(resident < HELD + SLACK, "{} MiB", resident >> 20);
        thread::sleep(Duration::from_millis(100));
    }
}

/// Requests that do not wait for the answers of those before.
fn pipelined(loaded: &Loaded) {
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = loaded.client();
                let body = |id: u64| {
                    json!({ "jsonrpc": "2.0", "id": id, "method": "eth_chainId" }).to_string()
                };
                let all: Vec<u8> = (0..500).flat_map(|id| http(&body(id))).collect();
                client.stream.write_all(&all).unwrap();
                for id in 0..500 {
                    let (status, answer) = client.answer().expect("an answer");
                    let answer: Value = serde_json::from_slice(&answer).unwrap();
                    assert_eq!((status, &answer["id"]), (200, &json!(id)));
                }
            });
        }
    });
}

type Socket = WebSocket<TcpStream>;

fn hear(socket: &mut Socket) -> Value {
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

/// Thousands of subscriptions, with blocks coming: each is told of each block, in order.
fn subscribed(loaded: &Loaded, slices: std::ops::Range<u64>) {
    const SOCKETS: usize = 40;
    const OF_SOCKET: usize = 100;
    let mut sockets: Vec<_> = (0..SOCKETS)
        .map(|_| {
            let url = format!("ws://{}/", loaded.server.address);
            client(url, loaded.client().stream).unwrap().0
        })
        .collect();
    for socket in &mut sockets {
        for _ in 0..OF_SOCKET {
            let subscribe = call("eth_subscribe", json!(["newHeads"]));
            socket.send(Message::text(subscribe)).unwrap();
            assert!(hear(socket).get("result").is_some());
        }
    }
    let first = FIRST + slices.start * SLICE + 1;
    let end = FIRST + slices.end * SLICE;
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| slices.for_each(|slice| loaded.import(slice)));
        for socket in &mut sockets {
            scope.spawn(move || {
                for number in first..=end {
                    for _ in 0..OF_SOCKET {
                        let news = hear(socket);
                        let told = &news["params"]["result"]["number"];
                        assert_eq!(*told, format!("{number:#x}"), "{news}");
                    }
                }
            });
        }
    });
    let told = SOCKETS as u64 * OF_SOCKET as u64 * (end + 1 - first);
    say(&format!(
        "{told} heads were told in {:?}, with their import",
        begun.elapsed()
    ));
}

#[test]
fn a_server_bears_load_beside_an_import_and_clients_that_mean_it_harm() {
    let loaded = Loaded::start();
    let time = Duration::from_secs(if is_long() { 60 } else { 10 });
    let is_over = AtomicBool::new(false);
    let imported = thread::scope(|scope| {
        let imports = scope.spawn(|| {
            let pause = time / (SLICES as u32);
            let mut slice = 0;
            while slice < SLICES - 4 && !is_over.load(Ordering::Relaxed) {
                loaded.import(slice);
                slice += 1;
                thread::sleep(pause / 2);
            }
            slice
        });
        for threads in [1, 4, 16, 64] {
            let part = time / 4;
            let times = loaded.load(threads, part);
            let total: usize = times.values().map(Vec::len).sum();
            say(&format!(
                "{threads} at once: {:.0} requests a second; resident {} MiB",
                total as f64 / part.as_secs_f64(),
                loaded.memory("VmRSS") >> 20
            ));
            for (name, mut all) in times {
                all.sort();
                let [half, most] = [50, 99].map(|percent| percentile(&all, percent));
                say(&format!(
                    "  {name:<18} {:>6} p50 {half:>10.1?} p99 {most:>10.1?}",
                    all.len()
                ));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        imports.join().unwrap()
    });
    assert!(imported > 2, "{imported}");
    let rest = loaded.memory("VmRSS") + (128 << 20);
    // The caches of the database, and what the answers that are being made have.
    assert!(
        loaded.memory("VmHWM") < SLACK,
        "{} MiB",
        loaded.memory("VmHWM") >> 20
    );

    let part = time / 4;
    loaded.meanwhile("malformed requests", || malformed(&loaded));
    loaded.meanwhile("slow requests", || slow(&loaded, part));
    loaded.meanwhile("answers that nobody reads", || unread(&loaded, part));
    loaded.rests_at(rest);
    loaded.meanwhile("pipelined requests", || pipelined(&loaded));
    loaded.meanwhile("4,000 subscriptions", || {
        subscribed(&loaded, imported..imported + 2)
    });
    loaded.rests_at(rest);
    let report = loaded.server.stop();
    let head = FIRST + (imported + 2) * SLICE;
    assert_eq!(report["head_number"], support::quantity(head));
}

//! The server of figures, and clients that mean it no good.

use cambium_metrics::{
    LabelledMetrics, MetricsHost, MetricsLimits, MetricsPage, MetricsRegistry, MetricsServer,
};
use cambium_testkit::exposition::{ask, get, scrape};
use parking_lot::Mutex;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinHandle};

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Limits for tests: short times, few connections.
fn limits() -> MetricsLimits {
    MetricsLimits {
        connections: 4,
        request_time: Duration::from_millis(400),
        page_time: Duration::from_millis(400),
        time: Duration::from_millis(1_200),
        ..MetricsLimits::default()
    }
}

/// A process as a test wants it.
#[derive(Default)]
struct Host {
    not_ready: Mutex<Option<String>>,
    /// Held by a test so that a page can't be made.
    stuck: Mutex<()>,
    series: usize,
    panics: bool,
}

impl MetricsHost for Host {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        let _stuck = self.stuck.lock();
        assert!(!self.panics, "the test wants it");
        for number in 0..self.series {
            metrics.labels(&[("number", &format!("{number:0>200}"))]);
            metrics.gauge("test_series", "Many.", number as u64);
        }
        metrics.labels(&[]);
        metrics.counter("tests", "Some.", 3);
    }

    fn ready(&self) -> Result<(), String> {
        self.not_ready.lock().clone().map_or(Ok(()), Err)
    }
}

struct Serving {
    runtime: Runtime,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn serve(host: &Arc<Host>) -> Serving {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(MetricsServer::listen(FREE)).unwrap();
    let address = server.address();
    let registry = MetricsRegistry::new("test");
    registry.add(Arc::<Host>::clone(host));
    let (stop, stopped) = oneshot::channel();
    let task = runtime.spawn(server.run(registry, limits(), async {
        let _ = stopped.await;
    }));
    Serving {
        runtime,
        address,
        stop,
        task,
    }
}

#[test]
fn requests_are_answered_as_http_wants_it() {
    let host = Arc::new(Host::default());
    let serving = serve(&host);
    let at = serving.address;
    assert_eq!(scrape(at).value("cambium_tests_total", &[]), 3.0);
    let page = get(at, "/metrics?name=x");
    assert_eq!(page.status(), 200, "{page:?}");
    let lower = page.head.to_lowercase();
    let kind = format!("content-type: {}", MetricsPage::CONTENT_TYPE);
    let length = format!("content-length: {}", page.body.len());
    for header in [&kind, &length, "connection: close"] {
        assert!(lower.contains(header), "no {header} in {lower}");
    }
    // HEAD has the headers alone. The figures may have changed, and so the length.
    let head = ask(at, b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((head.status(), head.body.as_str()), (200, ""), "{head:?}");
    assert!(head.head.to_lowercase().contains("content-length: "));
    assert_eq!(get(at, "/health").status(), 200);
    assert_eq!(get(at, "/ready").status(), 200);
    *host.not_ready.lock() = Some("it is behind\nby far".to_owned());
    let ready = get(at, "/ready");
    assert_eq!(
        (ready.status(), ready.body.as_str()),
        (503, "it is behind\n")
    );
    assert_eq!(get(at, "/health").status(), 200);
    for path in ["/", "/metrics/", "/Metrics", "/../metrics", "/%6detrics"] {
        assert_eq!(get(at, path).status(), 404, "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let request = format!("{method} /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let answer = ask(at, request.as_bytes());
        assert_eq!(answer.status(), 405, "{method}");
        assert!(answer.head.to_lowercase().contains("allow: get, head"));
    }
    // An old client, and one with a body that nobody reads.
    let old = ask(at, b"GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(old.status(), 200);
    let body = [
        &b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n"[..],
        &[b'x'; 9999],
    ];
    assert_eq!(ask(at, &body.concat()).status(), 200);
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        assert_eq!(ask(at, garbage).status(), 400, "{garbage:?}");
    }
    assert_eq!(get(at, "/health").status(), 200);
}

/// Reads until the server closes the connection. Returns how long that took.
fn closed(stream: &mut TcpStream) -> Duration {
    let started = Instant::now();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return started.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return started.elapsed();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_request_that_comes_slowly_or_is_huge_is_ended() {
    let serving = serve(&Arc::new(Host::default()));
    // A byte now and then, for ever.
    let mut slow = TcpStream::connect(serving.address).unwrap();
    let mut writer = slow.try_clone().unwrap();
    let writing = thread::spawn(move || {
        for byte in b"GET /metrics HTTP/1.1\r\nA: ".iter().chain(&[b'a'; 1_000]) {
            if writer.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    let taken = closed(&mut slow);
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    writing.join().unwrap();
    // One that says nothing.
    let mut silent = TcpStream::connect(serving.address).unwrap();
    assert!(closed(&mut silent) < Duration::from_secs(5));
    // A header, and many of them, that are more than any request needs, and a path.
    let long = [&b"GET /metrics HTTP/1.1\r\nA: "[..], &vec![b'a'; 1 << 20]].concat();
    assert_eq!(ask(serving.address, &long).status(), 431);
    let many = [
        &b"GET /metrics HTTP/1.1\r\n"[..],
        &b"A: b\r\n".repeat(100_000),
    ]
    .concat();
    assert_eq!(ask(serving.address, &many).status(), 431);
    let path = [&b"GET /"[..], &vec![b'a'; 1 << 20]].concat();
    let status = ask(serving.address, &path).status();
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(get(serving.address, "/health").status(), 200);
}

#[test]
fn many_connections_wait_for_each_other() {
    let serving = serve(&Arc::new(Host::default()));
    let idle: Vec<_> = (0..30)
        .map(|_| TcpStream::connect(serving.address).unwrap())
        .collect();
    // Each group of them is closed after the time for a request.
    assert_eq!(get(serving.address, "/health").status(), 200);
    drop(idle);
    let at = serving.address;
    let clients: Vec<_> = (0..20)
        .map(|_| thread::spawn(move || scrape(at).value("cambium_tests_total", &[])))
        .collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), 3.0);
    }
}

#[test]
fn one_request_of_a_pipeline_is_answered() {
    let serving = serve(&Arc::new(Host::default()));
    let request = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = ask(serving.address, &request.repeat(100));
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.body, "the process lives\n");
}

/// Neither the process nor other clients wait for one that reads nothing.
#[test]
fn a_client_that_reads_no_answer_is_ended() {
    let host = Arc::new(Host {
        series: 40_000,
        ..Host::default()
    });
    let serving = serve(&host);
    let mut lazy: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(serving.address).unwrap();
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_millis(600));
    // The page is made, and nothing of the process is held for them.
    assert!(host.stuck.try_lock_for(Duration::from_secs(10)).is_some());
    let started = Instant::now();
    assert_eq!(get(serving.address, "/health").status(), 200);
    assert!(started.elapsed() < Duration::from_secs(10));
    for stream in &mut lazy {
        assert!(closed(stream) < Duration::from_secs(10));
    }
}

/// A process that does not come to show its figures is still alive, and takes one thread for all who ask.
#[test]
fn a_process_that_is_stuck_says_so() {
    let host = Arc::new(Host::default());
    let serving = serve(&host);
    let stuck = host.stuck.lock();
    for _ in 0..3 {
        let answer = get(serving.address, "/metrics");
        assert_eq!(answer.status(), 503, "{answer:?}");
        assert!(answer.body.contains("no figures within"), "{answer:?}");
    }
    assert_eq!(get(serving.address, "/health").status(), 200);
    assert_eq!(get(serving.address, "/ready").status(), 200);
    drop(stuck);
    scrape(serving.address);
    let panics = serve(&Arc::new(Host {
        panics: true,
        ..Host::default()
    }));
    for _ in 0..2 {
        // On a busy machine the panic's backtrace may take longer than the figures are waited for.
        let mut asked = (0..10).map(|_| get(panics.address, "/metrics").status());
        assert_eq!(asked.find(|status| *status != 503), Some(500));
    }
    assert_eq!(get(panics.address, "/health").status(), 200);
}

#[test]
fn it_ends_at_once_whoever_is_connected() {
    let host = Arc::new(Host::default());
    let Serving {
        runtime,
        address,
        stop,
        task,
    } = serve(&host);
    let mut idle = TcpStream::connect(address).unwrap();
    idle.write_all(b"GET /met").unwrap();
    thread::sleep(Duration::from_millis(50));
    let started = Instant::now();
    stop.send(()).unwrap();
    runtime.block_on(task).unwrap();
    assert!(started.elapsed() < Duration::from_millis(300));
    closed(&mut idle);
    // Nobody listens any more, and nothing of the process is held.
    assert!(TcpStream::connect(address).is_err());
    drop(runtime);
    assert_eq!(Arc::strong_count(&host), 1);
}

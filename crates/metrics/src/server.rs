//! Figures over HTTP: bounded in connections, bytes and time.

use super::{page::MetricsPage, registry::MetricsRegistry};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least number of bytes that the transport takes for a request.
const HEADER_BYTES_MIN: usize = 8 << 10;
const TEXT: &str = "text/plain; charset=utf-8";

/// Limits of a [`MetricsServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsLimits {
    /// Most connections. Further ones wait until one ends.
    pub connections: usize,
    /// Most bytes of a request, at least 8 KiB.
    pub request_bytes: usize,
    /// Longest time for a request to come.
    pub request_time: Duration,
    /// Longest time for a page to be made.
    pub page_time: Duration,
    /// Longest time of a connection, from its beginning until its answer is sent.
    pub time: Duration,
}

impl Default for MetricsLimits {
    fn default() -> Self {
        Self {
            connections: 32,
            request_bytes: HEADER_BYTES_MIN,
            request_time: Duration::from_secs(2),
            page_time: Duration::from_secs(5),
            time: Duration::from_secs(10),
        }
    }
}

/// A server that listens, and answers once it [runs](MetricsServer::run).
///
/// | path | answer to GET and HEAD |
/// |---|---|
/// | `/metrics` | [`MetricsRegistry::page`] |
/// | `/health` | 200 |
/// | `/ready` | 200, or 503 with the reason of [`MetricsRegistry::ready`] |
///
/// A connection has one request, and is closed after its answer.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens at an address. Port 0 is any that is free.
    ///
    /// # Errors
    ///
    /// If the address can't be had.
    pub async fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The address at which it listens, with the port that it got.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` ends. Connections that are open then are closed.
    pub async fn run(
        self,
        registry: MetricsRegistry,
        limits: MetricsLimits,
        stop: impl Future<Output = ()>,
    ) {
        let accepting = tokio::spawn(accept(self.listener, registry, limits));
        stop.await;
        accepting.abort();
        // What it has of the registry is gone then.
        let _ = accepting.await;
    }
}

/// Accepts connections, as many as there may be at once. All of them end with it.
async fn accept(listener: TcpListener, registry: MetricsRegistry, limits: MetricsLimits) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let asking = Arc::new(Asking {
        registry,
        pages: Arc::new(Semaphore::new(1)),
        looks: Arc::new(Semaphore::new(1)),
        limits,
    });
    let mut open = JoinSet::new();
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // There may be no file descriptors left.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while open.try_join_next().is_some() {}
        let asking = Arc::clone(&asking);
        open.spawn(async move {
            let _permit = permit;
            let _ = timeout(limits.time, answer(stream, asking)).await;
        });
    }
}

/// Answers the request of a connection. Errors are the client's.
async fn answer(stream: TcpStream, asking: Arc<Asking>) {
    let limits = asking.limits;
    let service = service_fn(move |request| {
        let asking = Arc::clone(&asking);
        async move { Ok::<_, Infallible>(asking.respond(&request).await) }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_time)
        .max_buf_size(limits.request_bytes.max(HEADER_BYTES_MIN))
        .keep_alive(false)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Asks the process, for one client at a time: a host that waits takes one thread, not one for each request.
struct Asking {
    registry: MetricsRegistry,
    pages: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    limits: MetricsLimits,
}

impl Asking {
    async fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/metrics" | "/health" | "/ready") {
            let what = format!("there is no {path:?}: /metrics, /health and /ready are there\n");
            return text(StatusCode::NOT_FOUND, what);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let what = "GET and HEAD are answered\n".to_owned();
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, what);
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        match path {
            "/metrics" => match self.ask(&self.pages, MetricsRegistry::page).await {
                Ok(page) => response(StatusCode::OK, MetricsPage::CONTENT_TYPE, page),
                Err(failed) => failed,
            },
            "/ready" => match self.ask(&self.looks, MetricsRegistry::ready).await {
                Ok(Ok(())) => text(StatusCode::OK, "ready\n".to_owned()),
                Ok(Err(why)) => {
                    let why = why.lines().next().unwrap_or_default();
                    text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
                }
                Err(failed) => failed,
            },
            _ => text(StatusCode::OK, "the process lives\n".to_owned()),
        }
    }

    /// Asks the process on a thread that may wait for a lock.
    async fn ask<T: Send + 'static>(
        &self,
        turns: &Arc<Semaphore>,
        ask: impl FnOnce(&MetricsRegistry) -> T + Send + 'static,
    ) -> Result<T, Response<Full<Bytes>>> {
        let registry = self.registry.clone();
        let asked = timeout(self.limits.page_time, async {
            let turn = Arc::clone(turns).acquire_owned().await;
            let ask = move || {
                let _turn = turn;
                ask(&registry)
            };
            spawn_blocking(ask).await
        });
        match asked.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "collecting the figures ended in a panic, which is a bug\n".to_owned(),
            )),
            Err(_) => Err(text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("no figures within {:?}\n", self.limits.page_time),
            )),
        }
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    response(status, TEXT, text)
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // The answer to HEAD has it, too.
    headers.insert(CONTENT_LENGTH, length);
    response
}

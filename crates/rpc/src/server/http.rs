//! HTTP/1.1: one request after another on a connection, each with its answer. HTTP/2, as the Engine API over REST wants it:
//! several at once.

use super::{
    access::Access,
    body::{Broken, received},
    impatient::Impatient,
    ipc::Ipc,
    jwt::JwtSecret,
    rest, session,
    websocket::Socket,
};
use crate::{
    dispatch::{Answer, Service, error_text},
    engine::is_rest,
    figures::Alive,
    held::{Held, no_room},
    limits::Limits,
    reply::Piece,
};
use cambium_metrics::MetricsHost;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY,
        CONTENT_TYPE, REFERRER_POLICY, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_VERSION, UPGRADE, VARY, X_CONTENT_TYPE_OPTIONS,
    },
};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Most bytes of the header of a request.
const HEADER_BYTES: usize = 64 << 10;
/// What begins a connection of HTTP/2, and no request of HTTP/1.1 (RFC 9113).
const HTTP2: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pause until more of the first bytes may be there.
const PEEK_PAUSE: Duration = Duration::from_millis(5);
/// Most requests at once of a connection of HTTP/2. Clients begin up to 100 before they are told.
const STREAMS: u32 = 128;
/// Bytes that may come before they are taken: of a request, and of all requests of a connection of HTTP/2.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Longest time for requests that have begun, once the server is to end.
const END: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its address can't be had.
    #[error("{address} can't be listened at: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Its socket in the file system can't be had.
    #[error("{} can't be listened at: {source}", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A server that listens, and answers once it [runs](Server::run).
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    access: Access,
    ipc: Option<Ipc>,
    jwt: Option<JwtSecret>,
}

impl Server {
    /// Listens at an address. Port 0 is any that is free.
    ///
    /// # Errors
    ///
    /// If the address can't be had.
    pub async fn listen(address: SocketAddr) -> Result<Self, ServeError> {
        let error = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(error)?;
        let address = listener.local_addr().map_err(error)?;
        let access = Access::default();
        Ok(Self {
            listener,
            address,
            access,
            ipc: None,
            jwt: None,
        })
    }

    /// Sets which browsers may call.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Listens at a socket in the file system as well, of which the user of this process alone may write. A socket that nobody listens
    /// at any more is replaced.
    ///
    /// # Errors
    ///
    /// If the socket can't be made, or somebody listens there.
    pub fn with_socket(self, path: &Path) -> Result<Self, ServeError> {
        let ipc = Ipc::listen(path).map_err(|source| ServeError::Socket {
            path: path.to_owned(),
            source,
        })?;
        let ipc = Some(ipc);
        Ok(Self { ipc, ..self })
    }

    /// Answers those alone who have a token of this secret.
    #[must_use]
    pub fn with_jwt(self, secret: JwtSecret) -> Self {
        let jwt = Some(secret);
        Self { jwt, ..self }
    }

    /// The address at which it listens, with the port that it got.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stop` ends, and then those that have begun.
    pub async fn run(self, service: Arc<Service>, stop: impl Future<Output = ()>) {
        let (to_end, ends) = watch::channel(());
        let access = Arc::new((self.access, self.jwt));
        let ipc = self.ipc;
        let beside = ipc.map(|ipc| tokio::spawn(ipc.run(Arc::clone(&service), ends.clone())));
        let accepting = tokio::spawn(accept(self.listener, service, access, ends));
        stop.await;
        drop(to_end);
        let _ = timeout(END, async {
            let _ = accepting.await;
            if let Some(beside) = beside {
                let _ = beside.await;
            }
        })
        .await;
    }
}

/// Accepts connections, as many as there may be at once, until it is to end; then waits for their last answers.
async fn accept(
    listener: TcpListener,
    service: Arc<Service>,
    access: Arc<(Access, Option<JwtSecret>)>,
    mut ends: watch::Receiver<()>,
) {
    let permits = Arc::new(Semaphore::new(service.served.limits.connections));
    let mut open = JoinSet::new();
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            accepted = accepted => accepted,
            _ = ends.changed() => break,
        };
        let Ok((stream, _)) = accepted else {
            // Of one connection, or of all: there may be no file descriptors left.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while open.try_join_next().is_some() {}
        let shared = Shared {
            service: Arc::clone(&service),
            access: Arc::clone(&access),
            counted: Arc::new((permit.ok(), Alive::connection(&service.figures))),
            ends: ends.clone(),
        };
        open.spawn(connection(stream, shared));
    }
    while open.join_next().await.is_some() {}
}

/// What the requests of a connection share.
#[derive(Clone)]
struct Shared {
    service: Arc<Service>,
    access: Arc<(Access, Option<JwtSecret>)>,
    /// Held by what the connection becomes as well.
    counted: Arc<(Option<OwnedSemaphorePermit>, Alive)>,
    ends: watch::Receiver<()>,
}

/// Serves a connection. Errors are the client's.
async fn connection(stream: TcpStream, shared: Shared) {
    let _ = stream.set_nodelay(true);
    let limits = shared.service.served.limits;
    let mut ends = shared.ends.clone();
    // HTTP/2 is for the interface whose specification wants it.
    let is_http2 = match shared.service.rest {
        None => false,
        Some(_) => tokio::select! {
            begun = timeout(limits.header_time, begins_http2(&stream)) => match begun {
                Ok(Ok(is_http2)) => is_http2,
                _ => return,
            },
            _ = ends.changed() => return,
        },
    };
    // Who leaves, or takes nothing of an answer, ends the work on it.
    let stream = TokioIo::new(Impatient::new(stream, limits.idle_time));
    let answers = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    if is_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEADER_BYTES as u32)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(limits.idle_time / 2)
            .keep_alive_timeout(limits.header_time)
            .serve_connection(stream, answers);
        serve_until(connection, ends, |own| own.graceful_shutdown()).await;
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_time)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(stream, answers)
            .with_upgrades();
        serve_until(connection, ends, |own| own.graceful_shutdown()).await;
    }
}

/// Whether a connection begins with the preface of HTTP/2, which is not taken from it.
async fn begins_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; HTTP2.len()];
    loop {
        let there = stream.peek(&mut first).await?;
        if there == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if there == HTTP2.len() || first[..there] != HTTP2[..there] {
            return Ok(first[..there] == HTTP2[..there]);
        }
        sleep(PEEK_PAUSE).await;
    }
}

/// Serves a connection until it ends, or until its last answers once the server is to end.
async fn serve_until<C: Future>(
    connection: C,
    mut ends: watch::Receiver<()>,
    end: impl FnOnce(Pin<&mut C>),
) {
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = ends.changed() => {}
    }
    end(connection.as_mut());
    let _ = connection.await;
}

type Reply = Response<BoxBody<Bytes, GivenUp>>;

/// Whether a request is to become a WebSocket.
fn is_upgrade(request: &Request<Incoming>) -> bool {
    let upgrade = request.headers().get(UPGRADE);
    request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && upgrade.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

impl Shared {
    async fn respond(self, request: Request<Incoming>) -> Reply {
        let (access, jwt) = &*self.access;
        let site = match access.check(request.uri(), request.headers()) {
            Ok(site) => site,
            Err(why) => return plain(StatusCode::FORBIDDEN, why),
        };
        if let (None, Some(look)) = (jwt, looked_at(&self.service, &request)) {
            return look;
        }
        if let Some(jwt) = jwt
            && let Err(why) = jwt.check(request.headers())
        {
            return plain(StatusCode::UNAUTHORIZED, why);
        }
        let mut reply = match () {
            () if is_upgrade(&request) => upgrade(self, request),
            () if request.method() == Method::OPTIONS && site.is_some() => preflight(),
            () if self.service.rest.is_some() && is_rest(&request) => {
                let answered = rest::respond(&self.service, request).await;
                answered.map(whole)
            }
            () => respond(&self.service, request).await,
        };
        if let Some(site) = site {
            let headers = reply.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, site);
            headers.insert(VARY, HeaderValue::from_static("origin"));
        }
        reply
    }
}

/// The answer to one who looks whether the server lives, or is ready; `None` for any other request.
fn looked_at(service: &Service, request: &Request<Incoming>) -> Option<Reply> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) || is_upgrade(request) {
        return None;
    }
    match request.uri().path() {
        "/health" => Some(plain(StatusCode::OK, "the process lives\n")),
        "/ready" => Some(match service.served.ready() {
            Ok(()) => plain(StatusCode::OK, "ready\n"),
            // Why is for the operator, whose figures and log have it.
            Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        }),
        path if service.has_page => cambium_page::asset(path).map(page),
        _ => None,
    }
}

/// A file of the explorer page. A browser asks for it again each time: another version of the server may answer.
fn page(asset: &cambium_page::Asset) -> Reply {
    let mut reply = Response::new(whole(Bytes::from_static(asset.bytes)));
    let headers = reply.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, asset.content_type),
        (
            CONTENT_SECURITY_POLICY,
            cambium_page::CONTENT_SECURITY_POLICY,
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Tells a browser what it may send.
fn preflight() -> Reply {
    let mut reply = plain(StatusCode::OK, "");
    let headers = reply.headers_mut();
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("POST"),
    );
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("content-type"),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    reply
}

/// Makes a connection a WebSocket, which goes on by itself.
fn upgrade(shared: Shared, request: Request<Incoming>) -> Reply {
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let version = request.headers().get(SEC_WEBSOCKET_VERSION);
    let (Some(key), true) = (key, version.is_some_and(|version| version == "13")) else {
        return plain(
            StatusCode::BAD_REQUEST,
            "this is no WebSocket of version 13\n",
        );
    };
    let accept = derive_accept_key(key.as_bytes());
    tokio::spawn(async move {
        let _counted = shared.counted;
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            let bytes_max = shared.service.served.limits.body_bytes;
            let socket = Socket::new(upgraded, bytes_max).await;
            session::serve(socket, shared.service, shared.ends).await;
        }
    });
    let mut reply = plain(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = reply.headers_mut();
    headers.remove(CONTENT_TYPE);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    reply
}

async fn respond(service: &Arc<Service>, request: Request<Incoming>) -> Reply {
    if request.method() != Method::POST {
        let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "calls are sent by POST\n");
        reply
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("POST"));
        return reply;
    }
    if !is_json(&request) {
        let what = "the content type of a call is application/json\n";
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, what);
    }
    let limits = &service.served.limits;
    let held = service.share();
    let body = received(request.into_body(), limits.body_bytes, &held);
    let body = match timeout(limits.idle_time, body).await {
        Ok(Ok(body)) => body,
        Ok(Err(why)) => return broken(&why, limits),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the request took too long\n"),
    };
    let mut answer = service.answer(body, held).await;
    let body = match answer.pieces.recv().await {
        None => {
            return plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the answer was given up\n",
            );
        }
        Some(Piece::Last(all)) => whole(held_until_sent(all, &answer)),
        Some(Piece::More(first)) => Pieces {
            first: Some(first),
            rest: Some(answer),
        }
        .boxed(),
    };
    json(body)
}

fn json(body: BoxBody<Bytes, GivenUp>) -> Reply {
    let mut reply = Response::new(body);
    let json = HeaderValue::from_static(JSON);
    reply.headers_mut().insert(CONTENT_TYPE, json);
    reply
}

/// The answer to a request that did not come as a whole.
fn broken(why: &Broken, limits: &Limits) -> Reply {
    match why {
        Broken::TooLarge => plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("a request has at most {} bytes\n", limits.body_bytes),
        ),
        Broken::NoRoom => json(whole(error_text("null", &no_room()))),
        Broken::BrokeOff => plain(StatusCode::BAD_REQUEST, "the request broke off\n"),
    }
}

/// Bytes that count as held until the connection has sent them.
struct HeldBytes {
    bytes: Vec<u8>,
    _held: Arc<Held>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn held_until_sent(bytes: Vec<u8>, answer: &Answer) -> Bytes {
    Bytes::from_owner(HeldBytes {
        bytes,
        _held: Arc::clone(&answer.held),
    })
}

fn is_json(request: &Request<Incoming>) -> bool {
    let Some(given) = request.headers().get(CONTENT_TYPE) else {
        return true;
    };
    let given = given.to_str().unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(JSON)
}

/// A body that is there as a whole.
fn whole(bytes: impl Into<Bytes>) -> BoxBody<Bytes, GivenUp> {
    let body = Full::new(bytes.into());
    body.map_err(|never| match never {}).boxed()
}

fn plain(status: StatusCode, text: &str) -> Reply {
    let mut reply = Response::new(whole(text.as_bytes().to_vec()));
    *reply.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, text);
    reply
}

/// A part of an answer has gone, and the rest does not come: the connection breaks off.
#[derive(Debug, thiserror::Error)]
#[error("the answer was given up")]
struct GivenUp;

/// An answer that is sent while it is made.
struct Pieces {
    first: Option<Vec<u8>>,
    /// `None` after the last piece.
    rest: Option<Answer>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = GivenUp;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GivenUp>>> {
        let frame = |bytes, answer: &Answer| {
            Poll::Ready(Some(Ok(Frame::data(held_until_sent(bytes, answer)))))
        };
        let Self { first, rest } = &mut *self;
        let Some(answer) = rest else {
            return Poll::Ready(None);
        };
        if let Some(first) = first.take() {
            return frame(first, answer);
        }
        match answer.pieces.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Piece::More(bytes))) => frame(bytes, answer),
            Poll::Ready(Some(Piece::Last(bytes))) => {
                let last = frame(bytes, answer);
                *rest = None;
                last
            }
            Poll::Ready(None) => {
                *rest = None;
                Poll::Ready(Some(Err(GivenUp)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

//! A shard's process as a server: calls are bounded in number, bytes and time, and refused early beyond that.

use super::{
    figures::{Call, Method, OK, Open, REFUSED, ServerFigures, Waiting, outcome_of},
    tls::{TlsError, TlsFiles},
    wire::{
        Answer, Fault, ReadCall, ReadReply, SnapshotCall, SnapshotReply, StatusCall, StatusReply,
        SubmitCall, SubmitReply, UpdateCall, UpdateReply, Which, WitnessCall, WitnessReply,
        builder::builder_server::{Builder as BuilderCalls, BuilderServer},
        shard::shard_server::{Shard as ShardMethods, ShardServer},
    },
};
use crate::{
    bag::{ReadError, ReadRequest},
    range::ShardRange,
    shard::{Shard, ShardStats},
    submission::Submission,
};
use alloy_primitives::B256;
use prost::bytes::Bytes;
use std::{
    convert::Infallible,
    future::Future,
    io::{self, Write},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
    time::timeout,
};
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status,
    body::Body,
    transport::{
        Server as Tonic,
        server::{Connected, TcpConnectInfo},
    },
};

/// Bytes of a part of an update or of a snapshot.
const PART_BYTES: usize = 1 << 20;
/// Parts of a stream that wait for its receiver.
const PARTS_WAITING: usize = 4;
/// Longest time from a connection to its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What a call that panics is answered with.
const PANIC: &str = "the call ended in a panic, which is a bug";
/// Room in a message beside what it is about.
pub(super) const MESSAGE_ROOM: usize = 4 << 10;

/// What a server serves: a shard, once there is one, and the updates that it keeps.
pub trait ShardHost: Send + Sync + 'static {
    /// The shard; `None` while it has no state to serve.
    fn shard(&self) -> Option<Arc<Shard>>;

    /// A record, in the encoding of the stream; `None` if it is not kept. May wait for a disk.
    ///
    /// # Errors
    ///
    /// What is wrong with the record that is kept.
    fn record(&self, wanted: Wanted) -> Result<Option<alloy_primitives::Bytes>, String>;

    /// What who loads a snapshot gets with it.
    fn note(&self) -> Vec<u8> {
        Vec::new()
    }

    /// What the process is at.
    fn status(&self) -> HostStatus;
}

/// A record of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The update of the block with this hash.
    Block(B256),
    /// What is at this position.
    Position(u64),
}

/// What a shard's process is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Which part of the state it is for.
    pub range: ShardRange,
    /// What it does while it has no state to serve; empty once it has.
    pub loading: String,
    /// Position in the stream of updates up to which all is applied.
    pub position: u64,
    /// The newest epoch that was opened in the stream.
    pub epoch: u64,
    /// What is wrong; empty if nothing is.
    pub trouble: String,
}

/// A shard alone, that keeps no updates.
impl ShardHost for Arc<Shard> {
    fn shard(&self) -> Option<Arc<Shard>> {
        Some(Self::clone(self))
    }

    fn record(&self, _wanted: Wanted) -> Result<Option<alloy_primitives::Bytes>, String> {
        Ok(None)
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            range: self.range(),
            loading: String::new(),
            position: 0,
            epoch: 0,
            trouble: String::new(),
        }
    }
}

/// Limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most connections. Further ones wait until one ends.
    pub connections: usize,
    /// Most calls at once on a connection. Further ones wait.
    pub calls_of_connection: usize,
    /// Most calls that are answered at once, each on a thread.
    pub calls: usize,
    /// Most calls that wait for that. Further ones are refused.
    pub waiting: usize,
    /// Most bytes of a request.
    pub request_bytes: usize,
    /// Longest time for the answer to a call that does not say how long it waits.
    pub time: Duration,
    /// Most snapshots that are sent at once.
    pub snapshots: usize,
    /// Longest time for which the receiver of an update or a snapshot may take nothing.
    pub stall: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            calls_of_connection: 256,
            calls: 2 * cambium_crew::threads(),
            waiting: 1024,
            request_bytes: 4 << 20,
            time: Duration::from_secs(10),
            snapshots: 2,
            stall: Duration::from_secs(30),
        }
    }
}

/// Why a server can't start, or ends.
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
    /// The files for TLS can't be used.
    #[error(transparent)]
    Tls(#[from] Box<TlsError>),
    /// The transport fails.
    #[error("the server: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// A server that listens, and answers once it [runs](Server::run).
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    figures: Arc<ServerFigures>,
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
        let figures = Arc::new(ServerFigures::new());
        Ok(Self {
            listener,
            address,
            figures,
        })
    }

    /// The address at which it listens, with the port that it got.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it answers, for collectors. It can be kept while the server runs.
    pub fn figures(&self) -> Arc<ServerFigures> {
        Arc::clone(&self.figures)
    }

    /// Answers calls until `stop` ends, and then those that have begun.
    ///
    /// # Errors
    ///
    /// If the files for TLS can't be used, or the transport fails.
    pub async fn run(
        self,
        host: Arc<impl ShardHost>,
        limits: ServerLimits,
        tls: Option<&TlsFiles>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.figures.serves(&Method::OF_SHARDS);
        let methods = Methods {
            host,
            figures: self.figures(),
            calls: Arc::new(Semaphore::new(limits.calls)),
            snapshots: Arc::new(Semaphore::new(limits.snapshots)),
            turned_away: AtomicU64::new(0),
            limits,
        };
        let service = ShardServer::new(methods)
            .max_decoding_message_size(limits.request_bytes + MESSAGE_ROOM)
            .max_encoding_message_size(usize::MAX);
        self.serve(service, limits, tls, stop).await
    }

    /// Serves calls to a builder until `stop` ends, as [`Server::run`].
    ///
    /// # Errors
    ///
    /// As [`Server::run`].
    pub async fn run_builder(
        self,
        host: Arc<impl BuilderHost>,
        limits: ServerLimits,
        tls: Option<&TlsFiles>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.figures.serves(&Method::OF_BUILDERS);
        let methods = BuilderMethods {
            host,
            figures: self.figures(),
            calls: Arc::new(Semaphore::new(limits.calls)),
            limits,
        };
        let service = BuilderServer::new(methods)
            .max_decoding_message_size(limits.request_bytes + MESSAGE_ROOM)
            .max_encoding_message_size(usize::MAX);
        self.serve(service, limits, tls, stop).await
    }

    async fn serve<S>(
        self,
        service: S,
        limits: ServerLimits,
        tls: Option<&TlsFiles>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError>
    where
        S: tower_service::Service<
                http::Request<Body>,
                Response = http::Response<Body>,
                Error = Infallible,
            > + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let mut server = Tonic::builder()
            .concurrency_limit_per_connection(limits.calls_of_connection)
            .max_concurrent_streams(u32::try_from(limits.calls_of_connection).ok())
            .http2_keepalive_interval(Some(Duration::from_secs(20)))
            .tcp_nodelay(true)
            .timeout(limits.time);
        if let Some(tls) = tls {
            server = server.tls_config(tls.server().map_err(Box::new)?)?;
        }
        let (to_serve, incoming) = mpsc::channel(1);
        let accepting = accept(self.listener, limits.connections, to_serve, self.figures);
        let accepting = tokio::spawn(accepting);
        let incoming = ReceiverStream::new(incoming);
        let served = server.serve_with_incoming_shutdown(service, incoming, stop);
        let served = served.await;
        accepting.abort();
        Ok(served?)
    }
}

/// Accepts connections, as many as there may be at once.
async fn accept(
    listener: TcpListener,
    connections: usize,
    to_serve: mpsc::Sender<io::Result<Connection>>,
    figures: Arc<ServerFigures>,
) {
    let permits = Arc::new(Semaphore::new(connections));
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let connection = match listener.accept().await {
            Ok((stream, _)) => stream.set_nodelay(true).map(|()| Connection {
                stream,
                _permit: permit,
                _open: Open::new(&figures),
            }),
            // Of one connection, or of all: there may be no file descriptors left.
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(connection) = connection else { continue };
        if to_serve.is_closed() {
            return;
        }
        let to_serve = to_serve.clone();
        tokio::spawn(async move {
            // Whoever says nothing at first does not stay.
            let first = timeout(FIRST_BYTE, connection.stream.readable()).await;
            if let Ok(Ok(())) = first {
                let _ = to_serve.send(Ok(connection)).await;
            }
        });
    }
}

/// A connection, which counts while it lives.
struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
    _open: Open,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The methods of the service.
struct Methods<H> {
    host: Arc<H>,
    figures: Arc<ServerFigures>,
    calls: Arc<Semaphore>,
    snapshots: Arc<Semaphore>,
    turned_away: AtomicU64,
    limits: ServerLimits,
}

impl<H: ShardHost> Methods<H> {
    /// Waits for a turn, unless too many do.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, Status> {
        let (own, waiting) = Waiting::new(&self.figures);
        if waiting >= self.limits.waiting as u64 {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return Err(Status::resource_exhausted(format!(
                "{waiting} calls wait: ask a replica, or later"
            )));
        }
        let permit = Arc::clone(&self.calls).acquire_owned().await;
        drop(own);
        permit.map_err(|_| Status::unavailable("the server ends"))
    }

    /// Runs `work` on a thread that may wait, in its turn.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&H) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let permit = self.turn().await?;
        let host = Arc::clone(&self.host);
        let work = spawn_blocking(move || {
            let _permit = permit;
            work(&host)
        });
        work.await.map_err(|_| Status::internal(PANIC))
    }

    /// Counts a call from here on.
    fn begin<T>(&self, method: Method, call: &Request<T>) -> Call {
        Call::begin(&self.figures, method, call.metadata(), self.limits.time)
    }

    async fn update_parts(&self, call: UpdateCall) -> Result<Parts<UpdateReply>, Status> {
        let wanted = match call.which {
            Some(Which::Block(hash)) => B256::try_from(&hash[..]).ok().map(Wanted::Block),
            Some(Which::Position(position)) => Some(Wanted::Position(position)),
            None => None,
        };
        let wanted = wanted.ok_or_else(|| {
            Status::invalid_argument("a block's hash of 32 bytes, or a position, is wanted")
        })?;
        let record = self.in_turn(move |host| host.record(wanted)).await?;
        let update = record
            .map_err(Status::data_loss)?
            .ok_or_else(|| Status::not_found("this record is not kept here"))?
            .0;
        let sender = PartSender {
            figures: Arc::clone(&self.figures),
            method: Method::Update,
            stall: self.limits.stall,
        };
        let parts = sender.send_all(update).map(|part| Ok(UpdateReply { part }));
        Ok(Box::pin(parts))
    }

    fn snapshot_parts(&self) -> Result<Parts<SnapshotReply>, Status> {
        let busy =
            |_| Status::resource_exhausted("snapshots are sent to others: ask a replica, or later");
        let permit = Arc::clone(&self.snapshots)
            .try_acquire_owned()
            .map_err(busy)?;
        let shard = self.host.shard().ok_or_else(|| loading(&*self.host))?;
        let (to_send, parts) = mpsc::channel(PARTS_WAITING);
        let stall = self.limits.stall;
        let host = Arc::clone(&self.host);
        let figures = Arc::clone(&self.figures);
        spawn_blocking(move || {
            let _permit = permit;
            // It may wait for whoever follows the stream.
            let note = host.note();
            let out = PartWriter {
                parts: &to_send,
                part: Vec::with_capacity(PART_BYTES),
                stall,
                runtime: Handle::current(),
                figures,
            };
            // An error is that of a receiver that has gone, or takes nothing.
            let _ = shard.write_snapshot(out, &note);
        });
        let parts = ReceiverStream::new(parts).map(|part| Ok(SnapshotReply { part }));
        Ok(Box::pin(parts))
    }
}

type Parts<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl<H: ShardHost> ShardMethods for Methods<H> {
    type UpdateStream = Parts<UpdateReply>;
    type SnapshotStream = Parts<SnapshotReply>;

    async fn status(&self, call: Request<StatusCall>) -> Result<Response<StatusReply>, Status> {
        let own = self.begin(Method::Status, &call);
        let found = self.in_turn(|host| (host.status(), host.shard().map(|shard| shard.stats())));
        let (status, stats) = own.ended(found.await)?;
        let turned_away = self.turned_away.load(Ordering::Relaxed);
        Ok(Response::new(status_reply(status, stats, turned_away)))
    }

    async fn read(&self, call: Request<ReadCall>) -> Result<Response<ReadReply>, Status> {
        let own = self.begin(Method::Read, &call);
        let call = call.into_inner();
        let answer = self.in_turn(move |host| answer(host, &call.request)).await;
        let answer = match answer {
            Ok(Ok(bag)) => {
                self.figures.add_bytes(Method::Read, bag.len());
                own.end(OK);
                Answer::Bag(bag)
            }
            Ok(Err(error)) => {
                own.end(outcome_of(&error));
                Answer::Fault(Fault::from(&error))
            }
            Err(status) => return own.ended(Err(status)),
        };
        let answer = Some(answer);
        Ok(Response::new(ReadReply { answer }))
    }

    async fn update(
        &self,
        call: Request<UpdateCall>,
    ) -> Result<Response<Self::UpdateStream>, Status> {
        let own = self.begin(Method::Update, &call);
        let parts = self.update_parts(call.into_inner()).await;
        own.ended(parts.map(Response::new))
    }

    async fn snapshot(
        &self,
        call: Request<SnapshotCall>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let own = self.begin(Method::Snapshot, &call);
        own.ended(self.snapshot_parts().map(Response::new))
    }
}

/// What a builder serves.
pub trait BuilderHost: Send + Sync + 'static {
    /// Takes a submission for one of the next blocks.
    ///
    /// # Errors
    ///
    /// Why it does not.
    fn submit(&self, submission: Submission) -> Result<(), String>;

    /// A block that it has built, with what executing it needs, in JSON; `None` if it is not kept. It may take long.
    fn witness(&self, block: &B256) -> Option<Bytes>;
}

struct BuilderMethods<H> {
    host: Arc<H>,
    figures: Arc<ServerFigures>,
    calls: Arc<Semaphore>,
    limits: ServerLimits,
}

impl<H: BuilderHost> BuilderMethods<H> {
    /// Counts a call from here on.
    fn begin<T>(&self, method: Method, call: &Request<T>) -> Call {
        Call::begin(&self.figures, method, call.metadata(), self.limits.time)
    }

    /// Hands over a submission. `Ok(Err)` says why the builder does not take it.
    async fn submitted(&self, submission: &[u8]) -> Result<Result<(), String>, Status> {
        let (waiting, _) = Waiting::new(&self.figures);
        let _permit = self.calls.acquire().await;
        drop(waiting);
        let submission = Submission::decode(submission);
        let submission = submission.map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(self.host.submit(submission))
    }

    async fn witness_parts(&self, hash: &[u8]) -> Result<Parts<WitnessReply>, Status> {
        let hash = B256::try_from(hash)
            .map_err(|_| Status::invalid_argument("a block's hash has 32 bytes"))?;
        let host = Arc::clone(&self.host);
        let made = spawn_blocking(move || host.witness(&hash)).await;
        let witness = made.map_err(|_| Status::internal(PANIC))?;
        let witness = witness.ok_or_else(|| Status::not_found("this block is not kept here"))?;
        let sender = PartSender {
            figures: Arc::clone(&self.figures),
            method: Method::Witness,
            stall: self.limits.stall,
        };
        let parts = sender
            .send_all(witness)
            .map(|part| Ok(WitnessReply { part }));
        Ok(Box::pin(parts))
    }
}

#[tonic::async_trait]
impl<H: BuilderHost> BuilderCalls for BuilderMethods<H> {
    type WitnessStream = Parts<WitnessReply>;

    async fn submit(&self, call: Request<SubmitCall>) -> Result<Response<SubmitReply>, Status> {
        let own = self.begin(Method::Submit, &call);
        let taken = match self.submitted(&call.into_inner().submission).await {
            Ok(taken) => taken,
            Err(status) => return own.ended(Err(status)),
        };
        own.end(if taken.is_ok() { OK } else { REFUSED });
        let refused = taken.err().unwrap_or_default();
        Ok(Response::new(SubmitReply { refused }))
    }

    async fn witness(
        &self,
        call: Request<WitnessCall>,
    ) -> Result<Response<Self::WitnessStream>, Status> {
        let own = self.begin(Method::Witness, &call);
        let parts = self.witness_parts(&call.into_inner().hash).await;
        own.ended(parts.map(Response::new))
    }
}

/// Sends bytes in parts, and counts them.
struct PartSender {
    figures: Arc<ServerFigures>,
    method: Method,
    /// Longest time for which the receiver may take nothing.
    stall: Duration,
}

impl PartSender {
    /// The parts of bytes, which are dropped if their receiver takes nothing for too long.
    fn send_all(self, bytes: Bytes) -> ReceiverStream<Bytes> {
        let (to_send, parts) = mpsc::channel(PARTS_WAITING);
        tokio::spawn(async move {
            for part in parts_of(bytes) {
                let length = part.len();
                match timeout(self.stall, to_send.send(part)).await {
                    Ok(Ok(())) => self.figures.add_bytes(self.method, length),
                    _ => return,
                }
            }
        });
        ReceiverStream::new(parts)
    }
}

/// The parts in which bytes are sent.
fn parts_of(bytes: Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..bytes.len()).step_by(PART_BYTES);
    starts.map(move |start| bytes.slice(start..bytes.len().min(start + PART_BYTES)))
}

/// Answers a read. The bag is in the encoding in which it travels.
fn answer(host: &impl ShardHost, request: &[u8]) -> Result<Bytes, ReadError> {
    let request = ReadRequest::decode(request)?;
    let shard = host.shard().ok_or_else(|| ReadError::Unavailable {
        index: host.status().range.index(),
        what: loading(host).message().to_owned(),
    })?;
    Ok(shard.read(&request)?.encode().into())
}

fn loading(host: &impl ShardHost) -> Status {
    let loading = host.status().loading;
    Status::unavailable(format!("the shard has no state yet: {loading}"))
}

fn status_reply(status: HostStatus, stats: Option<ShardStats>, turned_away: u64) -> StatusReply {
    let mut reply = StatusReply {
        index: status.range.index() as u32,
        count: status.range.count() as u32,
        loading: status.loading,
        position: status.position,
        epoch: status.epoch,
        trouble: status.trouble,
        turned_away,
        ..StatusReply::default()
    };
    if let Some(stats) = stats {
        reply.oldest = Some(stats.oldest.into());
        reply.newest = Some(stats.newest.into());
        reply.versions = stats.versions as u64;
        reply.memory_bytes = stats.memory_bytes as u64;
        reply.updates = stats.updates;
        reply.refused = stats.refused;
        reply.reads = stats.reads;
        reply.keys = stats.keys;
        reply.bag_bytes = stats.bag_bytes;
    }
    reply
}

/// Sends what is written in parts, and waits for a receiver that is slower.
struct PartWriter<'p> {
    parts: &'p mpsc::Sender<Bytes>,
    part: Vec<u8>,
    stall: Duration,
    runtime: Handle,
    figures: Arc<ServerFigures>,
}

impl PartWriter<'_> {
    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART_BYTES));
        let length = part.len();
        let sent = timeout(self.stall, self.parts.send(part.into()));
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => {
                self.figures.add_bytes(Method::Snapshot, length);
                Ok(())
            }
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for PartWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART_BYTES - self.part.len();
        let taken = &bytes[..bytes.len().min(room)];
        self.part.extend(taken);
        if self.part.len() == PART_BYTES {
            self.send()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.part.is_empty() {
            true => Ok(()),
            false => self.send(),
        }
    }
}

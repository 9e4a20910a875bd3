//! A way to a shard in another process. What it answers is not believed: readers verify it.

use super::{
    faults::shortened,
    server::{MESSAGE_ROOM, Wanted},
    tls::{TlsError, TlsFiles},
    wire::{
        Answer, ReadCall, ReadReply, SnapshotCall, StatusCall, StatusReply, SubmitCall, UpdateCall,
        Which, WitnessCall, builder::builder_client, shard::shard_client,
    },
};
use crate::{
    bag::{NodeBag, ReadError, ReadRequest},
    range::ShardRange,
    shard::{Shard, ShardLimits},
    shards::{Answered, Service},
    snapshot::SnapshotError,
    submission::{SUBMISSION_BYTES_MAX, Submission},
    update::UPDATE_BYTES_MAX,
};
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use prost::bytes::{Buf, Bytes};
use std::{
    io::{self, Read},
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::mpsc, task::spawn_blocking, time::timeout};
use tonic::{
    Request, Status, Streaming,
    transport::{Channel, Endpoint},
};

/// Longest time for a record, or for a block with its witness.
const TRANSFER: Duration = Duration::from_secs(60);
/// Parts of a snapshot that wait to be loaded.
const PARTS_WAITING: usize = 4;

/// Limits of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Longest time for a connection.
    pub connect: Duration,
    /// Longest time for an answer.
    pub time: Duration,
    /// Most bytes of a request. Larger ones are divided.
    pub request_bytes: usize,
    /// Most bytes of an answer.
    pub answer_bytes: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            time: Duration::from_secs(5),
            request_bytes: 4 << 20,
            answer_bytes: 80 << 20,
        }
    }
}

/// There can be no way to a shard.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It is no address.
    #[error("{address:?} is no address of a shard, such as http://127.0.0.1:7100: {source}")]
    Address {
        /// The text that was given as one.
        address: String,
        /// What is wrong.
        source: tonic::transport::Error,
    },
    /// The files for TLS can't be used.
    #[error(transparent)]
    Tls(#[from] Box<TlsError>),
}

/// A way to an address, on which nothing is sent yet.
fn channel(
    address: &str,
    limits: ClientLimits,
    tls: Option<&TlsFiles>,
) -> Result<Channel, ConnectError> {
    let no_address = |source| ConnectError::Address {
        address: address.to_owned(),
        source,
    };
    let mut endpoint = Endpoint::from_shared(address.to_owned())
        .map_err(no_address)?
        .connect_timeout(limits.connect)
        .tcp_nodelay(true)
        .http2_adaptive_window(true);
    if let Some(tls) = tls {
        let config = tls.client().map_err(Box::new)?;
        endpoint = endpoint.tls_config(config).map_err(no_address)?;
    }
    Ok(endpoint.connect_lazy())
}

/// A connection to a builder's process, as [`ShardClient`] is one to a shard's.
#[derive(Clone, Debug)]
pub struct BuilderClient {
    client: builder_client::BuilderClient<Channel>,
    address: String,
    limits: ClientLimits,
}

impl BuilderClient {
    /// A way to the process at an address, as [`ShardClient::new`].
    ///
    /// # Errors
    ///
    /// As [`ShardClient::new`].
    pub fn new(
        address: &str,
        limits: ClientLimits,
        tls: Option<&TlsFiles>,
    ) -> Result<Self, ConnectError> {
        let client = builder_client::BuilderClient::new(channel(address, limits, tls)?)
            .max_decoding_message_size(limits.answer_bytes)
            .max_encoding_message_size(SUBMISSION_BYTES_MAX + MESSAGE_ROOM);
        Ok(Self {
            client,
            address: address.to_owned(),
            limits,
        })
    }

    /// Hands over a submission. `Ok(Err)` says why the builder does not take it.
    ///
    /// # Errors
    ///
    /// What the process or the network says.
    pub async fn submit(&self, submission: &Submission) -> Result<Result<(), String>, String> {
        let call = SubmitCall {
            submission: submission.encode().into(),
        };
        let mut client = self.client.clone();
        let reply = timeout(self.limits.time, client.submit(call)).await;
        let reply = reply.map_err(|_| silent(&self.address, self.limits.time))?;
        let reply = reply.map_err(|status| shown(&self.address, &status))?;
        Ok(match reply.into_inner().refused {
            refused if refused.is_empty() => Ok(()),
            refused => Err(shortened(refused)),
        })
    }

    /// A block with what executing it needs, in JSON; `None` if the process does not keep it.
    ///
    /// # Errors
    ///
    /// What the process or the network says.
    pub async fn witness(&self, block: &B256) -> Result<Option<Vec<u8>>, String> {
        let call = WitnessCall {
            hash: Bytes::copy_from_slice(block.as_slice()),
        };
        let (address, time) = (&self.address, self.limits.time);
        let mut client = self.client.clone();
        let reply = timeout(time, client.witness(call)).await;
        let mut parts = match reply.map_err(|_| silent(address, time))? {
            Ok(reply) => reply.into_inner(),
            Err(status) if status.code() == tonic::Code::NotFound => return Ok(None),
            Err(status) => return Err(shown(address, &status)),
        };
        let mut witness = Vec::new();
        let started = Instant::now();
        loop {
            if started.elapsed() > TRANSFER {
                return Err(format!("{address}: it took more than {TRANSFER:?}"));
            }
            let part = timeout(time, parts.message()).await;
            let part = part.map_err(|_| silent(address, time))?;
            let Some(reply) = part.map_err(|status| shown(address, &status))? else {
                return Ok(Some(witness));
            };
            witness.extend(&reply.part[..]);
            if witness.len() > WITNESS_BYTES_MAX {
                return Err(format!(
                    "{address}: a witness of more bytes than any may have"
                ));
            }
        }
    }
}

/// Most bytes of a block's witness in JSON.
const WITNESS_BYTES_MAX: usize = 1 << 30;

fn silent(address: &str, time: Duration) -> String {
    format!("{address}: no answer within {time:?}")
}

fn shown(address: &str, status: &Status) -> String {
    let mut text = status.message().to_owned();
    // The reason is with the source, most often: that nobody listens there.
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    format!("{address}: {}", shortened(text))
}

/// A connection to a shard's process, which is made when it is needed and again after it has ended.
#[derive(Clone, Debug)]
pub struct ShardClient {
    client: shard_client::ShardClient<Channel>,
    address: String,
    limits: ClientLimits,
}

impl ShardClient {
    /// A way to the process at an address, such as `http://127.0.0.1:7100`. Nothing is sent yet. It must be called within a runtime
    /// of tokio.
    ///
    /// # Errors
    ///
    /// If it is no address, or if the files for TLS can't be used.
    pub fn new(
        address: &str,
        limits: ClientLimits,
        tls: Option<&TlsFiles>,
    ) -> Result<Self, ConnectError> {
        let channel = channel(address, limits, tls)?;
        let client = shard_client::ShardClient::new(channel)
            .max_decoding_message_size(limits.answer_bytes)
            .max_encoding_message_size(limits.request_bytes + MESSAGE_ROOM);
        Ok(Self {
            client,
            address: address.to_owned(),
            limits,
        })
    }

    /// The address of the process, as it was given.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn call<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.limits.time);
        request
    }

    /// What the process is at.
    ///
    /// # Errors
    ///
    /// What the process or the network says.
    pub async fn status(&self) -> Result<StatusReply, String> {
        let mut client = self.client.clone();
        let call = client.status(self.call(StatusCall {}));
        let reply = timeout(self.limits.time, call).await;
        let reply = reply.map_err(|_| self.silent())?;
        let mut reply = reply.map_err(|status| self.shown(&status))?.into_inner();
        reply.loading = shortened(reply.loading);
        reply.trouble = shortened(reply.trouble);
        Ok(reply)
    }

    /// Asks for nodes on the paths of accounts and slots, and for codes.
    ///
    /// # Errors
    ///
    /// [`ReadError`] says why there is no answer.
    pub async fn read(
        &self,
        range: ShardRange,
        block: BlockId,
        request: Vec<u8>,
    ) -> Result<NodeBag, ReadError> {
        let index = range.index();
        let unavailable = |what| ReadError::Unavailable { index, what };
        let call = ReadCall {
            request: request.into(),
        };
        let mut client = self.client.clone();
        let reply = timeout(self.limits.time, client.read(self.call(call))).await;
        let reply = reply.map_err(|_| unavailable(self.silent()))?;
        let ReadReply { answer } = reply
            .map_err(|status| unavailable(self.shown(&status)))?
            .into_inner();
        match answer {
            Some(Answer::Bag(bag)) => NodeBag::decode(&bag)
                .map_err(|error| unavailable(format!("{}: {error}", self.address))),
            Some(Answer::Fault(fault)) => Err(fault.into_error(block, index, range.count())),
            None => Err(unavailable(format!("{}: an empty answer", self.address))),
        }
    }

    /// A record, in the encoding of the stream; `None` if the process does not keep it. Nothing of it is verified.
    ///
    /// # Errors
    ///
    /// What the process or the network says.
    pub async fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let which = match wanted {
            Wanted::Block(hash) => Which::Block(Bytes::copy_from_slice(hash.as_slice())),
            Wanted::Position(position) => Which::Position(position),
        };
        let call = UpdateCall { which: Some(which) };
        let mut client = self.client.clone();
        let reply = timeout(self.limits.time, client.update(Request::new(call))).await;
        let mut parts = match reply.map_err(|_| self.silent())? {
            Ok(reply) => reply.into_inner(),
            Err(status) if status.code() == tonic::Code::NotFound => return Ok(None),
            Err(status) => return Err(self.shown(&status)),
        };
        let mut update = Vec::new();
        let started = Instant::now();
        while let Some(reply) = self.next(&mut parts).await? {
            update.extend(&reply.part[..]);
            if started.elapsed() > TRANSFER {
                return Err(format!("{}: it took more than {TRANSFER:?}", self.address));
            }
            if update.len() > UPDATE_BYTES_MAX + MESSAGE_ROOM {
                let address = &self.address;
                return Err(format!(
                    "{address}: an update of more bytes than any may have"
                ));
            }
        }
        Ok(Some(update))
    }

    /// Loads the state of the oldest block that the process has, with a note. It is verified to be that of a block, which the caller
    /// has to know; the note is not.
    ///
    /// # Errors
    ///
    /// If the snapshot can't be had, or is not what it says.
    pub async fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        let failed = |what| SnapshotError::Io {
            at: 0,
            source: io::Error::other(what),
        };
        let mut client = self.client.clone();
        let reply = timeout(self.limits.time, client.snapshot(SnapshotCall {})).await;
        let reply = reply.map_err(|_| failed(self.silent()))?;
        let reply = reply.map_err(|status| failed(self.shown(&status)))?;
        let mut parts = reply.into_inner();
        let (to_load, waiting) = mpsc::channel(PARTS_WAITING);
        let loading = spawn_blocking(move || {
            let source = PartReader {
                parts: waiting,
                part: Bytes::new(),
            };
            Shard::read_snapshot(source, range, limits)
        });
        loop {
            let part = match self.next(&mut parts).await {
                Ok(Some(reply)) if reply.part.is_empty() => Err(io::Error::other("an empty part")),
                Ok(Some(reply)) => Ok(reply.part),
                Ok(None) => break,
                Err(what) => Err(io::Error::other(what)),
            };
            let is_last = part.is_err();
            if to_load.send(part).await.is_err() || is_last {
                break;
            }
        }
        drop(to_load);
        let loaded = loading.await;
        loaded.unwrap_or_else(|_| {
            Err(failed(
                "loading ended in a panic, which is a bug".to_owned(),
            ))
        })
    }

    async fn next<T>(&self, parts: &mut Streaming<T>) -> Result<Option<T>, String> {
        let part = timeout(self.limits.time, parts.message()).await;
        let part = part.map_err(|_| self.silent())?;
        part.map_err(|status| self.shown(&status))
    }

    fn silent(&self) -> String {
        silent(&self.address, self.limits.time)
    }

    fn shown(&self, status: &Status) -> String {
        shown(&self.address, status)
    }
}

/// The parts of a snapshot as they come.
struct PartReader {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    part: Bytes,
}

impl Read for PartReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part?,
                None => return Ok(0),
            }
        }
        let count = self.part.len().min(out.len());
        self.part.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}

/// A shard in another process, for [`Shards`](crate::Shards).
#[derive(Clone, Debug)]
pub struct RemoteShard {
    client: ShardClient,
    range: ShardRange,
    runtime: Handle,
}

impl RemoteShard {
    /// The shard `range`, which `client` is a way to. Its calls run on `runtime`.
    pub const fn new(client: ShardClient, range: ShardRange, runtime: Handle) -> Self {
        Self {
            client,
            range,
            runtime,
        }
    }

    /// The request, unless it is too long for a message: then it is to be divided.
    fn encoded(&self, request: &ReadRequest) -> Result<Vec<u8>, ReadError> {
        let bytes = request.encode();
        match bytes.len() <= self.client.limits.request_bytes {
            true => Ok(bytes),
            false => Err(ReadError::TooBig {
                bytes_max: self.client.limits.request_bytes,
            }),
        }
    }
}

impl Service for RemoteShard {
    /// Waits for the answer: not to be called on a thread of the runtime.
    fn read(&self, request: &ReadRequest) -> Result<NodeBag, ReadError> {
        let bytes = self.encoded(request)?;
        let answer = self.client.read(self.range, request.block, bytes);
        self.runtime.block_on(answer)
    }

    fn begin(&self, request: &ReadRequest, answered: Answered) -> Option<Answered> {
        let (client, range, block) = (self.client.clone(), self.range, request.block);
        match self.encoded(request) {
            Ok(bytes) => drop(self.runtime.spawn(async move {
                answered.with(client.read(range, block, bytes).await);
            })),
            Err(error) => answered.with(Err(error)),
        }
        None
    }
}

//! The connection to the servers, its options and errors.

use async_nats::{
    ConnectOptions,
    jetstream::{
        self, ErrorCode,
        context::{GetStreamError, GetStreamErrorKind},
    },
};
use std::{
    error::Error,
    future::Future,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// Where the servers are, and what is to be on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsOptions {
    /// Addresses of servers: `nats://HOST:PORT`, or `tls://HOST:PORT`.
    pub urls: Vec<String>,
    /// File with the credentials of a user.
    pub credentials: Option<PathBuf>,
    /// Certificates, for a connection by TLS.
    pub tls: Option<NatsTls>,
    /// Name of the stream, with which the names of all buckets begin: letters, digits, `-` and `_`.
    pub name: String,
    /// Whether what is not there is made, with the options that follow. Otherwise it has to be there, as it may be.
    pub makes: bool,
    /// On how many servers each record is: 1, 3 or 5.
    pub replicas: usize,
    /// Most bytes of the stream of records. Appending fails beyond it, until old records are removed.
    pub stream_bytes_max: u64,
    /// Most bytes of all snapshots.
    pub snapshot_bytes_max: u64,
    /// Most bytes of one message. A longer record is divided, and appended as one batch, of at most 1,000 messages.
    pub message_bytes_max: usize,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// How long a member is there without renewing its lease. Above ten seconds, so that it survives the election of a leader.
    pub lease: Duration,
}

/// Certificates of a connection by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsTls {
    /// File with the certificates of the authorities.
    pub authorities: PathBuf,
    /// Files with this client's certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl Default for NatsOptions {
    fn default() -> Self {
        Self {
            urls: vec!["nats://127.0.0.1:4222".to_owned()],
            credentials: None,
            tls: None,
            name: "cambium".to_owned(),
            makes: false,
            replicas: 3,
            stream_bytes_max: 16 << 30,
            snapshot_bytes_max: 256 << 30,
            message_bytes_max: 512 << 10,
            timeout: Duration::from_secs(5),
            lease: Duration::from_secs(15),
        }
    }
}

/// The servers can't be reached, refuse, or have something else than was asked for.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// There is no connection.
    #[error("NATS at {urls}: {what}")]
    Connect {
        /// Addresses of the servers.
        urls: String,
        /// What is wrong.
        what: String,
    },
    /// What is to be there is not.
    #[error("there is no cluster {name:?} on these servers: {what}")]
    NoCluster {
        /// Name of the cluster.
        name: String,
        /// What the servers say.
        what: String,
    },
    /// The options make no sense.
    #[error("options of NATS: {0}")]
    Options(String),
    /// A stream or bucket is there with another configuration.
    #[error(
        "NATS has {name} with {what}: change its configuration by hand, while all servers are up, or choose another name"
    )]
    Other {
        /// Name of the stream.
        name: String,
        /// What differs.
        what: String,
    },
    /// A request fails.
    #[error("NATS: {0}")]
    Request(String),
    /// A stored value is not one that this program has written.
    #[error("NATS: the value of {key} is malformed: {value:?}")]
    Malformed {
        /// Its key.
        key: String,
        /// The value.
        value: String,
    },
    /// A snapshot is not the one that its pointer names.
    #[error("snapshot {name} is damaged: {what}")]
    Snapshot {
        /// Name of the object.
        name: String,
        /// What is wrong with it.
        what: String,
    },
}

pub(super) fn request_error(error: impl std::fmt::Display) -> NatsError {
    NatsError::Request(error.to_string())
}

/// A connection to the servers. Clones share it.
#[derive(Clone, Debug)]
pub struct Nats {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
    context: jetstream::Context,
    options: NatsOptions,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Nats {
    /// Connects. The connection is made anew whenever it is lost.
    ///
    /// # Errors
    ///
    /// If no server answers, or if the options make no sense.
    pub fn connect(options: NatsOptions) -> Result<Self, NatsError> {
        check(&options)?;
        let failed = |what: String| NatsError::Connect {
            urls: options.urls.join(", "),
            what,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("nats")
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let connected = runtime.block_on(async {
            let mut connect = ConnectOptions::new()
                .name("cambium")
                .connection_timeout(options.timeout)
                .request_timeout(Some(options.timeout))
                .max_reconnects(None)
                // A server that can't be reached any more does not say so.
                .ping_interval(PING)
                .reconnect_delay_callback(|attempt| {
                    Duration::from_millis((20 << attempt.min(6)) as u64)
                });
            if let Some(file) = &options.credentials {
                let with = connect.credentials_file(file).await;
                connect = with.map_err(|error| format!("{}: {error}", file.display()))?;
            }
            if let Some(tls) = &options.tls {
                connect = connect
                    .add_root_certificates(tls.authorities.clone())
                    .require_tls(true);
                if let Some((certificate, key)) = &tls.client {
                    connect = connect.add_client_certificate(certificate.clone(), key.clone());
                }
            }
            let client = connect.connect(&options.urls[..]).await;
            client.map_err(|error| error.to_string())
        });
        let client = connected.map_err(failed)?;
        let max = client.max_payload();
        if max < options.message_bytes_max + HEADERS_BYTES {
            let own = options.message_bytes_max;
            return Err(NatsError::Options(format!(
                "messages of {own} bytes and their headers exceed the servers' max_payload of {max}"
            )));
        }
        // It starts a task.
        let mut context = runtime.block_on(async { jetstream::new(client) });
        context.set_timeout(options.timeout);
        Ok(Self {
            inner: Arc::new(Inner {
                runtime: Some(runtime),
                context,
                options,
            }),
        })
    }

    /// Waits for a future on this thread.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = self.inner.runtime.as_ref();
        runtime.expect("it is taken on drop alone").block_on(future)
    }

    pub(super) fn context(&self) -> &jetstream::Context {
        &self.inner.context
    }

    /// Looks for something that has to be there, as long as the servers may need to choose a leader.
    pub(super) async fn look_for<T, E: Error + 'static>(
        &self,
        look: impl AsyncFn(&jetstream::Context) -> Result<T, E>,
    ) -> Result<T, NatsError> {
        let started = Instant::now();
        loop {
            let error = match look(self.context()).await {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            match refusal(&error) {
                Some(ErrorCode::STREAM_NOT_FOUND) => {
                    return Err(NatsError::NoCluster {
                        name: self.inner.options.name.clone(),
                        what: error.to_string(),
                    });
                }
                Some(_) => return Err(request_error(error)),
                // No answer, or none yet.
                None if started.elapsed() > ELECTION => return Err(request_error(error)),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Where the servers are, and what is on them.
    pub fn options(&self) -> &NatsOptions {
        &self.inner.options
    }
}

/// Asks again after what fails, as long as servers may need to choose a leader.
pub(super) async fn ride_out<T>(
    ask: impl AsyncFn() -> Result<T, NatsError>,
) -> Result<T, NatsError> {
    let started = Instant::now();
    loop {
        match ask().await {
            Err(NatsError::Request(_)) if started.elapsed() < ELECTION => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// The code with which the servers refuse a request. `None` if they have not answered, or can't answer now.
fn refusal(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<GetStreamError>() {
            return match found.kind() {
                GetStreamErrorKind::JetStream(said) if said.code() != UNAVAILABLE => {
                    Some(said.error_code())
                }
                _ => None,
            };
        }
        next = error.source();
    }
    None
}

/// How the servers say that they have no leader.
const UNAVAILABLE: usize = 503;
/// Longest time that servers far from each other need to choose a leader.
const ELECTION: Duration = Duration::from_secs(15);
/// Time between two looks whether the server still answers: after three, another one is taken.
const PING: Duration = Duration::from_secs(3);
/// Pause before they are asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// Bytes that are left for the headers of a message.
const HEADERS_BYTES: usize = 4 << 10;

fn check(options: &NatsOptions) -> Result<(), NatsError> {
    let wrong = |what: &str| Err(NatsError::Options(what.to_owned()));
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if options.urls.is_empty() {
        return wrong("there is no URL of a server");
    }
    if options.name.is_empty() || !options.name.chars().all(is_allowed) {
        return wrong("the name of the stream has letters, digits, - and _ alone");
    }
    if ![1, 3, 5].contains(&options.replicas) {
        return wrong("the number of replicas is 1, 3 or 5");
    }
    if options.message_bytes_max < 1 << 10 {
        return wrong("messages have at least 1024 bytes");
    }
    if i64::try_from(options.stream_bytes_max).is_err()
        || i64::try_from(options.snapshot_bytes_max).is_err()
    {
        return wrong("a limit of bytes is too high");
    }
    if options.replicas > 1 && options.lease <= Duration::from_secs(10) {
        return wrong("a lease of ten seconds or less does not survive the election of a leader");
    }
    Ok(())
}

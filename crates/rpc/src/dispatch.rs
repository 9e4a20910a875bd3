//! From the bytes of a request to those of its answer.

use crate::{
    cancel::{Cancel, Leaving},
    discovery::discoverable,
    engine::Rest,
    error::RpcError,
    events::Events,
    figures::{Figures, ServiceCounts},
    held::{Held, Room, no_room},
    limits::Kind,
    params::Params,
    reply::{Out, PIECE_BYTES, PIECES_WAITING, Piece, Reply, too_large},
    served::Served,
    table::{Call, Method, Methods},
};
use cambium_metrics::{LabelledMetrics, MetricsHost};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    io::Write,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
    time::timeout,
};

/// Longest request that is taken apart where requests are received; longer ones are by a thread of the pool.
const SHORT_BYTES: usize = 256 << 10;
/// Longest request that is answered where requests are received, if its work is brief.
const BRIEF_BYTES: usize = 1 << 10;
/// Most bytes of an identifier.
const ID_BYTES_MAX: usize = 256;
/// Most bytes of an error that is written whatever was written before.
const SHORT_ERROR_BYTES: usize = 1024;
/// A call that takes longer is told to the log.
const SLOW: Duration = Duration::from_secs(1);
/// Bytes that the answer to any request may have: it is held from the beginning.
const ANSWER_BYTES: usize = PIECE_BYTES;
const NULL: &str = "null";

/// What answers requests: methods of a chain, on a bounded number of threads.
pub struct Service {
    pub(crate) served: Arc<Served>,
    /// What figures call it.
    name: &'static str,
    methods: Methods,
    pub(crate) rest: Option<Rest>,
    /// Whether the explorer page is served.
    pub(crate) has_page: bool,
    pub(crate) figures: Arc<Figures>,
    threads: Arc<Semaphore>,
    shares: [Arc<Semaphore>; Kind::ALL.len()],
    room: Room,
    /// Requests that are being answered where they were received.
    brief: AtomicUsize,
    events: Mutex<Weak<Events>>,
}

/// An answer on its way.
pub(crate) struct Answer {
    pub(crate) pieces: mpsc::Receiver<Piece>,
    /// Kept until the client has the answer.
    pub(crate) held: Arc<Held>,
    /// Dropped with the answer: then the work ends.
    _leaving: Leaving,
}

/// A call as it is sent.
#[derive(Deserialize)]
pub(crate) struct RawCall<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "some")]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
}

impl<'a> RawCall<'a> {
    /// The call that a text is; `None` if it is none. An array with the same values is none.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let is_object = text.trim_ascii_start().starts_with('{');
        is_object.then(|| serde_json::from_str(text).ok()).flatten()
    }

    /// Whether its identifier may be repeated in an answer, if it has one.
    pub(crate) fn has_good_id(&self) -> bool {
        self.id
            .map(RawValue::get)
            .is_none_or(|id| id.len() <= ID_BYTES_MAX && !id.starts_with(['{', '[', 't', 'f']))
    }

    pub(crate) fn is_of_version_2(&self) -> bool {
        self.jsonrpc.as_deref() == Some("2.0")
    }
}

/// An identifier that is there, null included.
fn some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

/// A call that was found in a request, with places in its bytes.
struct Found {
    /// `None` for a call that wants no answer.
    id: Option<Range<usize>>,
    call: Result<(Method, Option<Range<usize>>), RpcError>,
}

/// A request, taken apart.
enum Request {
    One(Found),
    Batch(Vec<Found>),
    Bad(RpcError),
}

impl Request {
    /// The heaviest kind of work in it.
    fn kind(&self) -> Kind {
        let kind = |found: &Found| {
            found
                .call
                .as_ref()
                .map_or(Kind::Quick, |(method, _)| method.kind)
        };
        match self {
            Self::One(found) => kind(found),
            Self::Batch(all) => all.iter().map(kind).max().unwrap_or(Kind::Quick),
            Self::Bad(_) => Kind::Quick,
        }
    }

    /// Whether it is answered, rather than one call without an identifier.
    fn is_answered(&self) -> bool {
        !matches!(self, Self::One(Found { id: None, .. }))
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({:?})", self.served)
    }
}

impl Service {
    /// Serves methods of a chain, and `rpc.discover`, which lists them.
    pub fn new(served: Arc<Served>, methods: Methods) -> Self {
        let limits = served.limits;
        Self {
            threads: Arc::new(Semaphore::new(limits.threads)),
            shares: Kind::ALL.map(|kind| Arc::new(Semaphore::new(limits.threads_of(kind)))),
            brief: AtomicUsize::new(0),
            // A request that is allowed has room at least while there is no other.
            room: Room::new(limits.held_bytes.max(limits.body_bytes + 2 * ANSWER_BYTES)),
            events: Mutex::default(),
            served,
            name: "rpc",
            methods: discoverable(methods).counted_anew(),
            rest: None,
            has_page: false,
            figures: Arc::default(),
        }
    }

    /// Sets what figures call it, `rpc` otherwise: the label `service` tells several services of a process apart.
    #[must_use]
    pub fn with_name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Serves the explorer page at `/` as well, whose requests [`Methods::with_explorer`] answers.
    #[must_use]
    pub fn with_page(self) -> Self {
        Self {
            has_page: true,
            ..self
        }
    }

    /// Serves the Engine API over REST as well, by the same server.
    #[must_use]
    pub fn with_rest(self, rest: Rest) -> Self {
        let rest = Some(rest);
        Self { rest, ..self }
    }

    /// What was answered so far.
    pub fn counts(&self) -> ServiceCounts {
        self.figures.counts()
    }

    /// Bytes that requests and their answers hold now.
    pub fn held_bytes(&self) -> usize {
        self.room.held_bytes()
    }

    /// The share of a request in the room of the server, which grows while the request comes.
    pub(crate) fn share(&self) -> Arc<Held> {
        self.room.share()
    }

    /// What happens on the chain. It is followed while somebody wants it.
    pub(crate) fn events(&self) -> Arc<Events> {
        let mut events = self.events.lock();
        events.upgrade().unwrap_or_else(|| {
            let new = Events::of(&self.served);
            *events = Arc::downgrade(&new);
            new
        })
    }

    /// Answers a request on this thread, at once: for servers that are not this crate's.
    ///
    /// ```
    /// # use cambium_node::Node;
    /// # use cambium_rpc::{Limits, Methods, Served, Service};
    /// # use cambium_state::{FaultyDisk, Options};
    /// # use cambium_workload::{Workload, WorkloadParams};
    /// # use std::sync::Arc;
    /// # let params = WorkloadParams { accounts: 100, senders: Some(10), ..WorkloadParams::default() };
    /// # let chain = Workload::new(params)?.init(Arc::new(FaultyDisk::new(1)), Options::default(), &mut |_| {})?;
    /// let node = Arc::new(Node::of_chain(chain));
    /// let service = Service::new(Arc::new(Served::new(node, Limits::default())), Methods::of_chain());
    /// let answer = service.call(br#"{"jsonrpc":"2.0","id":7,"method":"eth_blockNumber"}"#);
    /// assert_eq!(answer, br#"{"jsonrpc":"2.0","id":7,"result":"0x0"}"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call(&self, request: &[u8]) -> Vec<u8> {
        let limits = &self.served.limits;
        let taken = self.take_apart(request);
        let bytes_max = match taken {
            Request::Batch(_) => limits.batch_bytes,
            _ => limits.answer_bytes,
        };
        let mut out = Out::kept(bytes_max);
        // Nothing goes before the end, so nothing is given up.
        let _ = self.run(request, taken, &Cancel::after(limits.time), &mut out);
        out.into_rest()
    }

    /// Begins to answer a request. `held` is its share.
    pub(crate) async fn answer(self: &Arc<Self>, body: Vec<u8>, held: Arc<Held>) -> Answer {
        let cancel = Cancel::after(self.served.limits.time);
        let (to, pieces) = mpsc::channel(PIECES_WAITING);
        let answer = Answer {
            pieces,
            held: Arc::clone(&held),
            _leaving: cancel.leaving(),
        };
        if !held.grow_to(body.len() + ANSWER_BYTES) {
            let _ = to.send(refusal(&no_room())).await;
            return answer;
        }
        let request = (body.len() <= SHORT_BYTES).then(|| self.take_apart(&body));
        let kind = request.as_ref().map_or(Kind::Scan, Request::kind);
        let permits = match self.turn(kind).await {
            Ok(permits) => permits,
            Err(error) => {
                let _ = to.send(refusal(&error)).await;
                return answer;
            }
        };
        let is_brief = kind.is_brief()
            && body.len() <= BRIEF_BYTES
            && matches!(request, Some(Request::One(_)));
        let here = is_brief.then(|| self.place_here()).flatten();
        match (here, request) {
            (Some(_here), Some(request)) => {
                let out = Out::kept(self.served.limits.answer_bytes);
                self.answer_to(
                    &body,
                    request,
                    &cancel,
                    out.holding(held, body.len()),
                    |last| to.try_send(last).is_ok(),
                );
            }
            (_, request) => self.hand_over(body, request, permits, cancel, held, to),
        }
        answer
    }

    /// A place to answer a brief request on a thread of the network, if fewer than half of these do so: a read may have to wait for the
    /// disk, and the others go on meanwhile.
    fn place_here(&self) -> Option<Here<'_>> {
        let most = Handle::current().metrics().num_workers() / 2;
        let here = Here(&self.brief);
        (here.0.fetch_add(1, Ordering::Relaxed) < most).then_some(here)
    }

    /// Answers a request on a thread of the pool.
    fn hand_over(
        self: &Arc<Self>,
        body: Vec<u8>,
        request: Option<Request>,
        permits: [OwnedSemaphorePermit; 2],
        cancel: Cancel,
        held: Arc<Held>,
        to: mpsc::Sender<Piece>,
    ) {
        let service = Arc::clone(self);
        spawn_blocking(move || {
            let _permits = permits;
            let request = request.unwrap_or_else(|| service.take_apart(&body));
            let limits = &service.served.limits;
            let out = match &request {
                Request::Batch(_) => Out::kept(limits.batch_bytes),
                one if one.is_answered() => Out::streaming(to.clone(), limits.answer_bytes),
                _ => Out::unwanted(limits.answer_bytes),
            };
            let out = out.holding(held, body.len());
            service.answer_to(&body, request, &cancel, out, |last| {
                to.blocking_send(last).is_ok()
            });
        });
    }

    /// Answers a request, and sends the last piece of the answer.
    fn answer_to(
        &self,
        body: &[u8],
        request: Request,
        cancel: &Cancel,
        mut out: Out,
        send: impl FnOnce(Piece) -> bool,
    ) {
        let (figures, is_wanted) = (&self.figures, request.is_answered());
        figures.request_bytes.add(body.len() as u64);
        let ran = self.run(body, request, cancel, &mut out);
        figures.answer_bytes.add(out.len());
        let sent = match ran {
            _ if !is_wanted => send(Piece::Last(Vec::new())),
            Ok(()) => send(Piece::Last(out.into_rest())),
            Err(GivenUp) => false,
        };
        if !sent {
            figures.given_up.add(1);
        }
    }

    /// Waits for a thread, and for the share of the kind.
    pub(crate) async fn turn(&self, kind: Kind) -> Result<[OwnedSemaphorePermit; 2], RpcError> {
        let limits = &self.served.limits;
        let (_waiting, before) = Waiting::new(&self.figures);
        if before >= limits.waiting as u64 {
            return Err(RpcError::new(
                RpcError::LIMIT,
                "too many requests wait: ask again later",
            ));
        }
        let share = Arc::clone(&self.shares[kind as usize]);
        let threads = Arc::clone(&self.threads);
        let both = async {
            let share = share.acquire_owned().await;
            (share, threads.acquire_owned().await)
        };
        match timeout(limits.time, both).await {
            Ok((Ok(share), Ok(thread))) => Ok([share, thread]),
            Ok(_) => Err(RpcError::server("the server ends")),
            Err(_) => Err(RpcError::new(
                RpcError::TIMEOUT,
                "no thread was free in time: ask again later",
            )),
        }
    }

    fn take_apart(&self, body: &[u8]) -> Request {
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first != Some(&b'[') {
            return match serde_json::from_slice::<&RawValue>(body) {
                Ok(raw) => Request::One(self.find(body, raw)),
                Err(error) => Request::Bad(parse_error(&error)),
            };
        }
        let raws: Vec<&RawValue> = match serde_json::from_slice(body) {
            Ok(raws) => raws,
            Err(error) => return Request::Bad(parse_error(&error)),
        };
        let most = self.served.limits.batch;
        if raws.is_empty() {
            return Request::Bad(RpcError::new(RpcError::REQUEST, "empty batch"));
        }
        if raws.len() > most {
            let what = format!("batch too large: {} calls, {most} at most", raws.len());
            return Request::Bad(RpcError::new(RpcError::REQUEST, what));
        }
        Request::Batch(raws.into_iter().map(|raw| self.find(body, raw)).collect())
    }

    fn find(&self, body: &[u8], raw: &RawValue) -> Found {
        let bad = |id, what: &str| Found {
            id: Some(id),
            call: Err(RpcError::new(RpcError::REQUEST, what)),
        };
        let place = |part: &str| {
            let start = part.as_ptr().addr() - body.as_ptr().addr();
            start..start + part.len()
        };
        let Some(call) = RawCall::of(raw.get()) else {
            return bad(0..0, "invalid request");
        };
        if !call.has_good_id() {
            return bad(0..0, "invalid request: the id is a string or a number");
        }
        let id = call.id.map(|id| place(id.get()));
        let given = id.clone().unwrap_or(0..0);
        let Some(name) = &call.method else {
            return bad(given, "invalid request: there is no method");
        };
        if !call.is_of_version_2() {
            return bad(given, "invalid request: jsonrpc is not \"2.0\"");
        }
        let Some(method) = self.methods.get(name) else {
            let name: String = name.chars().take(80).collect();
            let what = format!("the method {name} does not exist/is not available");
            return Found {
                id,
                call: Err(RpcError::new(RpcError::NO_METHOD, what)),
            };
        };
        Found {
            id,
            call: Ok((
                method.clone(),
                call.params.map(|params| place(params.get())),
            )),
        }
    }

    fn run(
        &self,
        body: &[u8],
        request: Request,
        cancel: &Cancel,
        out: &mut Out,
    ) -> Result<(), GivenUp> {
        self.figures.requests.add(1);
        match request {
            Request::Bad(error) => {
                self.figures.failed(error.code);
                write_error(out, NULL, &error)
            }
            Request::One(found) => self.run_one(body, found, cancel, out),
            Request::Batch(all) => self.run_batch(body, all, cancel, out),
        }
    }

    fn run_batch(
        &self,
        body: &[u8],
        all: Vec<Found>,
        cancel: &Cancel,
        out: &mut Out,
    ) -> Result<(), GivenUp> {
        let mut is_first = true;
        for found in all {
            if found.id.is_some() {
                let between: &[u8] = if is_first { b"[" } else { b"," };
                is_first = false;
                out.exempt(|out| out.write_all(between))
                    .map_err(|_| GivenUp)?;
            }
            self.run_one(body, found, cancel, out)?;
        }
        match is_first {
            true => Ok(()),
            false => out.exempt(|out| out.write_all(b"]")).map_err(|_| GivenUp),
        }
    }

    fn run_one(
        &self,
        body: &[u8],
        found: Found,
        cancel: &Cancel,
        out: &mut Out,
    ) -> Result<(), GivenUp> {
        let text = |place: Range<usize>| match std::str::from_utf8(&body[place]) {
            Ok("") | Err(_) => NULL,
            Ok(text) => text,
        };
        let wants_answer = found.id.is_some();
        let id = text(found.id.unwrap_or(0..0));
        let start = out.len();
        self.figures.calls.add(1);
        let result = match found.call {
            Err(error) => Err(error),
            Ok((method, params)) => {
                let mut reply = Reply::new(out, id);
                let params = params.map(text);
                let began = Instant::now();
                let run = || self.run_method(&method, params, cancel, &mut reply);
                // A method that panics costs its own answer.
                let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                    Err(RpcError::internal("the method panicked, which is a bug"))
                });
                let result = reply.end(result);
                let taken = began.elapsed();
                method.figures.add(result.is_ok(), taken);
                tell_slow(&method.signature.name, taken, out.len() - start);
                result
            }
        };
        if let Err(error) = &result {
            self.figures.failed(error.code);
        }
        match result {
            _ if !wants_answer && !out.has_gone_since(start) => {
                out.rewind(start);
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(_) if out.has_gone_since(start) => Err(GivenUp),
            Err(error) => {
                out.rewind(start);
                write_error(out, id, &error)
            }
        }
    }

    fn run_method(
        &self,
        method: &Method,
        params: Option<&str>,
        cancel: &Cancel,
        reply: &mut Reply<'_>,
    ) -> Result<(), RpcError> {
        let _span = tracing::debug_span!("call", method = &*method.signature.name).entered();
        cancel.check()?;
        let params = Params::parse(params)?.of(&method.signature);
        let node = self.served.node();
        let call = Call {
            node: &node,
            served: &self.served,
            cancel: &cancel.renewed(self.served.limits.time_of(method.kind)),
        };
        (method.run)(&call, params, reply)
    }
}

impl MetricsHost for Service {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        let own = ("service", self.name);
        for method in self.methods.sorted() {
            let name = &method.signature.name;
            method.figures.report(own, name, metrics);
        }
        if let Some(rest) = &self.rest {
            rest.report(own, metrics);
        }
        let limits = &self.served.limits;
        for kind in Kind::ALL {
            metrics.labels(&[own, ("kind", kind.name())]);
            let all = limits.threads_of(kind);
            let busy = all - self.shares[kind as usize].available_permits().min(all);
            metrics.gauges([
                (
                    "api_threads_taken",
                    "Threads that a kind of work has, those that wait for a thread of the pool among them.",
                    busy as u64,
                ),
                (
                    "api_threads_max",
                    "Threads that a kind of work may have at once.",
                    all as u64,
                ),
            ]);
        }
        metrics.labels(&[own]);
        metrics.gauges([(
            "api_bytes_held",
            "Bytes that requests and their answers hold in memory.",
            self.room.held_bytes() as u64,
        )]);
        self.figures.report(own, metrics);
        metrics.labels(&[]);
    }
}

/// Tells the log of a call that took long.
pub(crate) fn tell_slow(method: &str, taken: Duration, bytes: u64) {
    if taken >= SLOW {
        let seconds = taken.as_secs_f64();
        tracing::info!(method, seconds, bytes, "a slow call");
    }
}

/// The answer can't be whole, and a part of it has gone.
struct GivenUp;

/// A request that is answered where it was received.
struct Here<'a>(&'a AtomicUsize);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that waits.
struct Waiting<'a>(&'a Figures);

impl<'a> Waiting<'a> {
    /// Returns how many waited before.
    fn new(figures: &'a Figures) -> (Self, u64) {
        let before = figures.waiting.add(1);
        (Self(figures), before)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.sub(1);
    }
}

fn parse_error(error: &serde_json::Error) -> RpcError {
    RpcError::new(RpcError::PARSE, format!("parse error: {error}"))
}

/// Writes an error. A long one, which has the output of a revert, counts as results do; another one takes its place if it is too long.
fn write_error(out: &mut Out, id: &str, error: &RpcError) -> Result<(), GivenUp> {
    let text = serde_json::to_vec(error).map_err(|_| GivenUp)?;
    if text.len() > SHORT_ERROR_BYTES && !out.has_room(text.len()) {
        return write_error(out, id, &too_large());
    }
    let written = out.exempt(|out| {
        write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":")?;
        out.write_all(&text)?;
        out.write_all(b"}")
    });
    written.map_err(|_| GivenUp)
}

/// The answer to a request that is refused as a whole.
fn refusal(error: &RpcError) -> Piece {
    Piece::Last(error_text(NULL, error).into_bytes())
}

/// The answer that is an error.
pub(crate) fn error_text(id: &str, error: &RpcError) -> String {
    let mut out = Out::kept(u64::MAX);
    let _ = write_error(&mut out, id, error);
    String::from_utf8(out.into_rest()).unwrap_or_default()
}

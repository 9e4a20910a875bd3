//! From the bytes of a request to those of its answer.

use crate::{
    cancel::{Cancel, Leaving},
    error::RpcError,
    events::Events,
    limits::Kind,
    params::Params,
    reply::{Out, PIECES_WAITING, Piece, Reply, too_large},
    served::Served,
    table::{Call, Method, Methods},
};
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
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
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
const NULL: &str = "null";

/// What answers requests: methods of a chain, on a bounded number of threads.
pub struct Service {
    pub(crate) served: Arc<Served>,
    methods: Methods,
    threads: Arc<Semaphore>,
    shares: [Arc<Semaphore>; Kind::ALL.len()],
    waiting: AtomicUsize,
    /// Requests that are being answered where they were received.
    brief: AtomicUsize,
    events: Mutex<Weak<Events>>,
    requests: AtomicU64,
    calls: AtomicU64,
    errors: AtomicU64,
}

/// What was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Requests, each of them one call or a batch.
    pub requests: u64,
    /// Calls.
    pub calls: u64,
    /// Calls, and requests that are none, whose answer was an error.
    pub errors: u64,
}

/// An answer on its way.
pub(crate) struct Answer {
    pub(crate) pieces: mpsc::Receiver<Piece>,
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
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({:?})", self.served)
    }
}

impl Service {
    /// Serves methods of a chain.
    pub fn new(served: Arc<Served>, methods: Methods) -> Self {
        let limits = served.limits;
        Self {
            threads: Arc::new(Semaphore::new(limits.threads)),
            shares: Kind::ALL.map(|kind| Arc::new(Semaphore::new(limits.threads_of(kind)))),
            waiting: AtomicUsize::new(0),
            brief: AtomicUsize::new(0),
            events: Mutex::default(),
            requests: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            served,
            methods,
        }
    }

    /// What was answered so far.
    pub fn counts(&self) -> ServiceCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServiceCounts {
            requests: get(&self.requests),
            calls: get(&self.calls),
            errors: get(&self.errors),
        }
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

    /// Begins to answer a request.
    pub(crate) async fn answer(self: &Arc<Self>, body: Vec<u8>) -> Answer {
        let cancel = Cancel::after(self.served.limits.time);
        let (to, pieces) = mpsc::channel(PIECES_WAITING);
        let answer = Answer {
            pieces,
            _leaving: cancel.leaving(),
        };
        let request = (body.len() <= SHORT_BYTES).then(|| self.take_apart(&body));
        let kind = request.as_ref().map_or(Kind::Scan, Request::kind);
        let permits = match self.turn(kind).await {
            Ok(permits) => permits,
            Err(error) => {
                let mut out = Out::kept(u64::MAX);
                let _ = write_error(&mut out, NULL, &error);
                let _ = to.send(Piece::Last(out.into_rest())).await;
                return answer;
            }
        };
        let is_brief = kind.is_brief()
            && body.len() <= BRIEF_BYTES
            && matches!(request, Some(Request::One(_)));
        let here = is_brief.then(|| self.place_here()).flatten();
        match (here, request) {
            (Some(_here), Some(request)) => {
                let mut out = Out::kept(self.served.limits.answer_bytes);
                if self.run(&body, request, &cancel, &mut out).is_ok() {
                    let _ = to.try_send(Piece::Last(out.into_rest()));
                }
            }
            (_, request) => self.hand_over(body, request, permits, cancel, to),
        }
        answer
    }

    /// A place to answer a brief request on a thread of the network, if fewer than half of these do so: a read may have to wait for the
    /// disk, and the others go on meanwhile.
    fn place_here(&self) -> Option<Waiting<'_>> {
        let most = Handle::current().metrics().num_workers() / 2;
        let here = Waiting(&self.brief);
        (here.0.fetch_add(1, Ordering::Relaxed) < most).then_some(here)
    }

    /// Answers a request on a thread of the pool.
    fn hand_over(
        self: &Arc<Self>,
        body: Vec<u8>,
        request: Option<Request>,
        permits: [OwnedSemaphorePermit; 2],
        cancel: Cancel,
        to: mpsc::Sender<Piece>,
    ) {
        let service = Arc::clone(self);
        spawn_blocking(move || {
            let _permits = permits;
            let request = request.unwrap_or_else(|| service.take_apart(&body));
            let limits = &service.served.limits;
            let mut out = match request {
                Request::Batch(_) => Out::kept(limits.batch_bytes),
                _ => Out::streaming(to.clone(), limits.answer_bytes),
            };
            if service.run(&body, request, &cancel, &mut out).is_ok() {
                let _ = to.blocking_send(Piece::Last(out.into_rest()));
            }
        });
    }

    /// Waits for a thread, and for the share of the kind.
    async fn turn(&self, kind: Kind) -> Result<[OwnedSemaphorePermit; 2], RpcError> {
        let limits = &self.served.limits;
        let waiting = Waiting(&self.waiting);
        if waiting.0.fetch_add(1, Ordering::Relaxed) >= limits.waiting {
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
        let Ok(call) = serde_json::from_str::<RawCall<'_>>(raw.get()) else {
            return bad(0..0, "invalid request");
        };
        let id = match call.id.map(RawValue::get) {
            None => None,
            Some(id) if id.len() > ID_BYTES_MAX || id.starts_with(['{', '[', 't', 'f']) => {
                return bad(0..0, "invalid request: the id is a string or a number");
            }
            Some(id) => Some(place(id)),
        };
        let given = id.clone().unwrap_or(0..0);
        let Some(name) = call.method else {
            return bad(given, "invalid request: there is no method");
        };
        if call.jsonrpc.as_deref() != Some("2.0") {
            return bad(given, "invalid request: jsonrpc is not \"2.0\"");
        }
        let Some(method) = self.methods.get(&name) else {
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
        count(&self.requests);
        match request {
            Request::Bad(error) => {
                count(&self.errors);
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
        count(&self.calls);
        let result = match found.call {
            Err(error) => Err(error),
            Ok((method, params)) => {
                let mut reply = Reply::new(out, id);
                let params = params.map(text);
                let run = || self.run_method(&method, params, cancel, &mut reply);
                // A method that panics costs its own answer.
                let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                    Err(RpcError::internal("the method panicked, which is a bug"))
                });
                reply.end(result)
            }
        };
        if result.is_err() {
            count(&self.errors);
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
        cancel.check()?;
        let params = Params::parse(params)?;
        let node = self.served.node();
        let call = Call {
            node: &node,
            served: &self.served,
            cancel: &cancel.renewed(self.served.limits.time_of(method.kind)),
        };
        (method.run)(&call, params, reply)
    }
}

fn count(counter: &AtomicU64) {
    // Nothing else is told by the number.
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The answer can't be whole, and a part of it has gone.
struct GivenUp;

/// A request that is counted.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

/// The answer that is an error.
pub(crate) fn error_text(id: &str, error: &RpcError) -> String {
    let mut out = Out::kept(u64::MAX);
    let _ = write_error(&mut out, id, error);
    String::from_utf8(out.into_rest()).unwrap_or_default()
}

//! Calls over a connection that stays, with subscriptions.
//!
//! Requests are answered in any order: an answer is sent once it has begun to come, and is whole before the next one. The client is
//! listened to meanwhile, so that its leaving ends the work. A subscription whose client does not read is ended with the connection,
//! rather than kept in memory.

use crate::{
    dispatch::{Answer, RawCall, Service, error_text},
    error::RpcError,
    events::{BlockEvent, Events, WantsLogs},
    figures::Alive,
    filter::{FilterObject, alternatives},
    methods::pool::pending_object,
    reply::Piece,
};
use alloy_rpc_types_eth::Log;
use cambium_index::LogFilter;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, future::Future, sync::Arc};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch},
    task::{JoinSet, spawn_blocking},
    time::{Instant, timeout},
};

/// Requests of a connection that are answered at once. Further ones are not read until one is.
const AT_ONCE: usize = 16;
/// Most alternatives of all filters of a connection, as a multiple of those of one address or topic.
const ALTERNATIVES: usize = 16;

/// Batches of a connection that are answered at once: their answers are kept until they are whole. Further ones wait.
const BATCHES_AT_ONCE: usize = 1;

/// Why a connection ends.
pub(super) struct Ended;

/// What comes from a client.
pub(super) enum Heard {
    /// A request.
    Request(Vec<u8>),
    /// A sign of life.
    Alive,
}

/// A way to a client that stays.
pub(super) trait Wire: Send {
    /// Whether a client that is there gives signs of life when it is asked to.
    const HAS_SIGNS: bool;

    /// What comes next; `None` at the end. Nothing is lost if it is not waited for any more.
    fn next(&mut self) -> impl Future<Output = Option<Result<Heard, Ended>>> + Send;

    /// Sends a part of a message.
    fn send(
        &mut self,
        part: Vec<u8>,
        is_first: bool,
        is_last: bool,
    ) -> impl Future<Output = Result<(), Ended>> + Send;

    /// Asks for a sign of life.
    fn ping(&mut self) -> impl Future<Output = Result<(), Ended>> + Send;

    /// Says that the server ends.
    fn close(&mut self) -> impl Future<Output = Result<(), Ended>> + Send;
}

/// What a subscription is told of.
enum Topic {
    Heads,
    /// Transactions that became executable, with all their fields or their hashes alone.
    Pending {
        whole: bool,
    },
    Logs(
        LogFilter,
        #[allow(dead_code, reason = "counts while it lives")] WantsLogs,
    ),
}

/// Pending transactions, for all subscriptions of a connection.
struct Pending {
    count: watch::Receiver<u64>,
    /// How many of them the client was told of, or were there before.
    told: u64,
}

/// Serves a connection until it ends.
pub(super) async fn serve(wire: impl Wire, service: Arc<Service>, ends: watch::Receiver<()>) {
    let connection = Connection {
        wire,
        service,
        answers: JoinSet::new(),
        batches: Arc::new(Semaphore::new(BATCHES_AT_ONCE)),
        asked_bytes: 0,
        topics: BTreeMap::new(),
        next: 1,
    };
    // Errors are the client's.
    let _ = connection.run(ends).await;
}

/// An answer that has begun to come.
struct Begun {
    /// Its first piece, until that is sent; `None` if the answer was given up.
    first: Option<Piece>,
    rest: Answer,
    request_bytes: usize,
    /// The turn of a batch, which ends with this.
    _turn: Option<OwnedSemaphorePermit>,
}

/// The next piece of the answer that is being sent.
async fn next_piece(sending: &mut Option<Begun>) -> Option<Piece> {
    match sending {
        Some(begun) => begun.rest.pieces.recv().await,
        None => std::future::pending().await,
    }
}

struct Connection<W> {
    wire: W,
    service: Arc<Service>,
    /// Requests that are answered, until their answers have begun. They end with the connection.
    answers: JoinSet<Begun>,
    /// Bytes of these.
    asked_bytes: usize,
    /// One turn: answers of batches are whole in memory, so one is made at a time.
    batches: Arc<Semaphore>,
    topics: BTreeMap<u64, (Topic, Alive)>,
    next: u64,
}

impl<W: Wire> Connection<W> {
    async fn run(mut self, mut ends: watch::Receiver<()>) -> Result<(), Ended> {
        let idle = self.service.served.limits.idle_time;
        let mut events: Option<(Arc<Events>, broadcast::Receiver<Arc<BlockEvent>>)> = None;
        let mut pending: Option<Pending> = None;
        let (mut heard, mut pinged) = (Instant::now(), Instant::now());
        let mut sending: Option<Begun> = None;
        // Further ones are not read until it is begun.
        let mut next_request: Option<Vec<u8>> = None;
        loop {
            if sending.is_none()
                && self.takes_more()
                && let Some(request) = next_request.take()
            {
                self.take(request, &mut events, &mut pending).await?;
            }
            let is_free = sending.is_none();
            let event = async {
                match &mut events {
                    Some((_, events)) => events.recv().await,
                    None => std::future::pending().await,
                }
            };
            let new_pending = async {
                match &mut pending {
                    Some(pending) => pending.count.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                heard_now = self.wire.next(), if next_request.is_none() => {
                    heard = Instant::now();
                    match heard_now {
                        Some(Ok(Heard::Request(bytes))) => next_request = Some(bytes),
                        Some(Ok(Heard::Alive)) => {}
                        Some(Err(ended)) => return Err(ended),
                        None => return Ok(()),
                    }
                }
                Some(begun) = self.answers.join_next(), if is_free => {
                    let mut begun = begun.map_err(|_| Ended)?;
                    self.asked_bytes -= begun.request_bytes;
                    let first = begun.first.take();
                    let is_whole = self.send_piece(first, true).await?;
                    sending = (!is_whole).then_some(begun);
                }
                piece = next_piece(&mut sending) => {
                    if self.send_piece(piece, false).await? {
                        sending = None;
                    }
                }
                event = event, if is_free => match event {
                    Ok(event) => self.tell(&event).await?,
                    // Too far behind.
                    Err(_) => return Ok(()),
                },
                // The pool lives as long as the service.
                _ = new_pending, if is_free => if let Some(pending) = &mut pending {
                    self.tell_pending(pending).await?;
                },
                () = tokio::time::sleep_until(heard.max(pinged) + idle / 2), if W::HAS_SIGNS => {
                    // What it says is not read while it has too many requests.
                    if heard.elapsed() >= 2 * idle && next_request.is_none() {
                        return Ok(());
                    }
                    pinged = Instant::now();
                    timeout(idle, self.wire.ping()).await.map_err(|_| Ended)??;
                }
                _ = ends.changed() => {
                    let _ = self.wire.close().await;
                    return Ok(());
                }
            }
        }
    }

    /// Whether another request may be begun.
    fn takes_more(&self) -> bool {
        self.answers.len() < AT_ONCE && self.asked_bytes < self.service.served.limits.body_bytes
    }

    /// Sends to a client that has to take it in time.
    async fn send(&mut self, part: Vec<u8>, is_first: bool, is_last: bool) -> Result<(), Ended> {
        let limit = self.service.served.limits.idle_time;
        let sent = timeout(limit, self.wire.send(part, is_first, is_last)).await;
        sent.unwrap_or(Err(Ended))
    }

    /// Sends a piece of an answer. Returns whether it was the last one.
    async fn send_piece(&mut self, piece: Option<Piece>, is_first: bool) -> Result<bool, Ended> {
        match piece {
            None => Err(Ended),
            // Nobody waits for an answer.
            Some(Piece::Last(rest)) if is_first && rest.is_empty() => Ok(true),
            Some(Piece::Last(rest)) => self.send(rest, is_first, true).await.map(|()| true),
            Some(Piece::More(part)) => self.send(part, is_first, false).await.map(|()| false),
        }
    }

    /// Begins to answer a message.
    async fn take(
        &mut self,
        bytes: Vec<u8>,
        events: &mut Option<(Arc<Events>, broadcast::Receiver<Arc<BlockEvent>>)>,
        pending: &mut Option<Pending>,
    ) -> Result<(), Ended> {
        if let Some(answer) = self.subscription(&bytes, events, pending) {
            return self.send(answer.into_bytes(), true, true).await;
        }
        let request_bytes = bytes.len();
        self.asked_bytes += request_bytes;
        let service = Arc::clone(&self.service);
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let batches = (first == Some(&b'[')).then(|| Arc::clone(&self.batches));
        let held = service.share();
        // Without room it is refused when its turn comes.
        let _ = held.grow_to(request_bytes);
        self.answers.spawn(async move {
            let turn = match batches {
                Some(batches) => batches.acquire_owned().await.ok(),
                None => None,
            };
            let mut rest = service.answer(bytes, held).await;
            let first = rest.pieces.recv().await;
            Begun {
                first,
                rest,
                request_bytes,
                _turn: turn,
            }
        });
        Ok(())
    }

    /// Answers a call that begins or ends a subscription; `None` for any other one.
    fn subscription(
        &mut self,
        bytes: &[u8],
        events: &mut Option<(Arc<Events>, broadcast::Receiver<Arc<BlockEvent>>)>,
        pending: &mut Option<Pending>,
    ) -> Option<String> {
        let call = RawCall::of(std::str::from_utf8(bytes).ok()?)?;
        if !call.has_good_id() || !call.is_of_version_2() {
            return None;
        }
        // Who wants no answer would not know the subscription.
        let id = call.id?.get();
        let result = match call.method.as_deref()? {
            "eth_subscribe" => self
                .subscribe(call.params, events, pending)
                .map(|id| format!("\"{id:#x}\"")),
            "eth_unsubscribe" => self.unsubscribe(call.params).map(|was| was.to_string()),
            _ => return None,
        };
        let is_pending = |(topic, _): &(Topic, Alive)| matches!(topic, Topic::Pending { .. });
        if self.topics.values().all(is_pending) {
            *events = None;
        }
        if !self.topics.values().any(is_pending) {
            *pending = None;
        }
        Some(match result {
            Ok(result) => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"),
            Err(error) => error_text(id, &error),
        })
    }

    fn subscribe(
        &mut self,
        params: Option<&RawValue>,
        events: &mut Option<(Arc<Events>, broadcast::Receiver<Arc<BlockEvent>>)>,
        pending: &mut Option<Pending>,
    ) -> Result<u64, RpcError> {
        let limits = self.service.served.limits;
        if self.topics.len() >= limits.subscriptions {
            let what = format!(
                "a connection has at most {} subscriptions",
                limits.subscriptions
            );
            return Err(RpcError::new(RpcError::LIMIT, what));
        }
        let mut params = crate::params::Params::parse(params.map(RawValue::get))?;
        let name: String = params.required()?;
        let all = self.service.events();
        let topic = match &*name {
            "newHeads" => Topic::Heads,
            "newPendingTransactions" => {
                let whole = params.optional()?.unwrap_or(false);
                if pending.is_none() {
                    *pending = Some(Pending::of(&self.service)?);
                }
                Topic::Pending { whole }
            }
            "logs" => {
                let filter: FilterObject = params.optional()?.unwrap_or_default();
                let (filter, _) = filter.checked(limits.alternatives)?;
                self.check_alternatives(&filter)?;
                Topic::Logs(filter, all.wanting_logs())
            }
            name => {
                let name: String = name.chars().take(80).collect();
                return Err(RpcError::params(format!(
                    "there is no subscription to {name:?}: newHeads, logs and newPendingTransactions are there"
                )));
            }
        };
        if events.is_none() && !matches!(topic, Topic::Pending { .. }) {
            let receiver = all.subscribe();
            *events = Some((all, receiver));
        }
        let id = self.next;
        self.next += 1;
        let alive = Alive::subscription(&self.service.figures);
        self.topics.insert(id, (topic, alive));
        Ok(id)
    }

    /// Whether the filters of all subscriptions are within the limits with another one.
    fn check_alternatives(&self, filter: &LogFilter) -> Result<(), RpcError> {
        let others = self.topics.values().map(|(topic, _)| match topic {
            Topic::Logs(filter, _) => alternatives(filter),
            Topic::Heads | Topic::Pending { .. } => 0,
        });
        let most = ALTERNATIVES * self.service.served.limits.alternatives;
        if others.sum::<usize>() + alternatives(filter) > most {
            let what = format!(
                "the subscriptions of a connection have at most {most} addresses and topics"
            );
            return Err(RpcError::new(RpcError::LIMIT, what));
        }
        Ok(())
    }

    fn unsubscribe(&mut self, params: Option<&RawValue>) -> Result<bool, RpcError> {
        let mut params = crate::params::Params::parse(params.map(RawValue::get))?;
        let id: alloy_primitives::U64 = params.required()?;
        Ok(self.topics.remove(&id.to()).is_some())
    }

    /// Tells of transactions that became executable. The connection ends where some are not remembered any more.
    async fn tell_pending(&mut self, pending: &mut Pending) -> Result<(), Ended> {
        let new = match self.service.served.pool() {
            Some(pool) => pool.announced_since(pending.told).ok_or(Ended)?,
            None => return Ok(()),
        };
        pending.told += new.len() as u64;
        let topics = self.topics.iter();
        let topics: Vec<_> = topics
            .filter_map(|(id, (topic, _))| match topic {
                Topic::Pending { whole } => Some((*id, *whole)),
                Topic::Heads | Topic::Logs(..) => None,
            })
            .collect();
        for own in new {
            for (id, whole) in &topics {
                let text = match whole {
                    false => news(*id, &own.hash),
                    // It may have left the pool already.
                    true => match own.transaction() {
                        Some(own) => news(*id, &pending_object(&own)),
                        None => continue,
                    },
                };
                self.send(text.into_bytes(), true, true).await?;
            }
        }
        Ok(())
    }

    /// Tells of a block, one text after another. Where something is missing the connection ends, so that nobody believes to know all.
    async fn tell(&mut self, event: &Arc<BlockEvent>) -> Result<(), Ended> {
        if event.is_gap {
            return Err(Ended);
        }
        let wants_logs = |(topic, _): &(Topic, Alive)| matches!(topic, Topic::Logs(..));
        if event.known_logs().is_none() && self.topics.values().any(wants_logs) {
            // Nobody wanted logs yet when the block came.
            let (event, service) = (Arc::clone(event), Arc::clone(&self.service));
            let read = spawn_blocking(move || event.read_logs(&service.served));
            read.await.map_err(|_| Ended)?;
        }
        let topics: Vec<u64> = self.topics.keys().copied().collect();
        for id in topics {
            let topic = self.topics.get(&id).map(|(topic, _)| topic);
            let own = match topic {
                Some(Topic::Heads) => {
                    if let Some(header) = &event.header {
                        let text = news(id, header);
                        self.send(text.into_bytes(), true, true).await?;
                    }
                    continue;
                }
                Some(Topic::Logs(filter, _)) => {
                    let logs = event.known_logs().and_then(Option::as_ref);
                    let logs = logs.ok_or(Ended)?;
                    let passes = |log: &&Log| filter.passes(&log.inner.address, log.topics());
                    logs.iter().filter(passes).collect::<Vec<_>>()
                }
                Some(Topic::Pending { .. }) | None => continue,
            };
            for log in own {
                self.send(news(id, log).into_bytes(), true, true).await?;
            }
        }
        Ok(())
    }
}

impl Pending {
    /// From now on.
    fn of(service: &Service) -> Result<Self, RpcError> {
        let pool = service.served.pool();
        let pool =
            pool.ok_or_else(|| RpcError::server("this server has no pool of transactions"))?;
        let mut count = pool.announced();
        let told = *count.borrow_and_update();
        Ok(Self { count, told })
    }
}

/// What a subscription is told.
fn news(id: u64, result: &impl Serialize) -> String {
    let result = serde_json::to_string(result).unwrap_or_default();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"eth_subscription\",\"params\":{{\"subscription\":\"{id:#x}\",\"result\":{result}}}}}"
    )
}

//! Calls over a connection that stays, with subscriptions.
//!
//! Requests are answered in any order, one answer after another. A subscription whose client does not read is ended with the
//! connection, rather than kept in memory.

use crate::{
    dispatch::{Answer, RawCall, Service, error_text},
    error::RpcError,
    events::{BlockEvent, Events, WantsLogs},
    figures::Alive,
    filter::FilterObject,
    methods::pool::pending_object,
    reply::Piece,
};
use alloy_rpc_types_eth::Log;
use cambium_index::LogFilter;
use serde::Serialize;
use serde_json::value::RawValue;
use std::{collections::BTreeMap, future::Future, sync::Arc};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, watch},
    time::{Instant, timeout},
};

/// Requests of a connection that are answered at once. Further ones are not read until one is.
const AT_ONCE: usize = 16;

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

/// An answer on its way to the client.
struct Answered {
    answer: Answer,
    /// Of the request.
    bytes: usize,
    /// The turn of a batch, which ends with this.
    turn: Option<OwnedSemaphorePermit>,
}

/// Pending transactions, for all subscriptions of a connection.
struct Pending {
    count: watch::Receiver<u64>,
    /// How many of them the client was told of, or were there before.
    told: u64,
}

/// Serves a connection until it ends.
pub(super) async fn serve(wire: impl Wire, service: Arc<Service>, ends: watch::Receiver<()>) {
    let (answered, answers) = mpsc::channel(AT_ONCE);
    let batches = Arc::new(Semaphore::new(BATCHES_AT_ONCE));
    let connection = Connection {
        wire,
        service,
        answered,
        batches,
        asked: 0,
        asked_bytes: 0,
        topics: BTreeMap::new(),
        next: 1,
    };
    // Errors are the client's.
    let _ = connection.run(answers, ends).await;
}

struct Connection<W> {
    wire: W,
    service: Arc<Service>,
    /// For answers that are on their way.
    answered: mpsc::Sender<Answered>,
    /// Turns of batches.
    batches: Arc<Semaphore>,
    /// Requests that have no answer yet.
    asked: usize,
    /// Their bytes.
    asked_bytes: usize,
    topics: BTreeMap<u64, (Topic, Alive)>,
    next: u64,
}

impl<W: Wire> Connection<W> {
    async fn run(
        mut self,
        mut answers: mpsc::Receiver<Answered>,
        mut ends: watch::Receiver<()>,
    ) -> Result<(), Ended> {
        let idle = self.service.served.limits.idle_time;
        let mut events: Option<(Arc<Events>, broadcast::Receiver<Arc<BlockEvent>>)> = None;
        let mut pending: Option<Pending> = None;
        let (mut heard, mut pinged) = (Instant::now(), Instant::now());
        loop {
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
                heard_now = self.wire.next(), if self.takes_more() => {
                    heard = Instant::now();
                    match heard_now {
                        Some(Ok(Heard::Request(bytes))) => {
                            self.take(bytes, &mut events, &mut pending).await?;
                        }
                        Some(Ok(Heard::Alive)) => {}
                        Some(Err(ended)) => return Err(ended),
                        None => return Ok(()),
                    }
                }
                Some(answer) = answers.recv() => {
                    self.asked -= 1;
                    self.asked_bytes -= answer.bytes;
                    self.send_answer(answer.answer).await?;
                    drop(answer.turn);
                }
                event = event => match event {
                    Ok(event) => self.tell(&event).await?,
                    // Too far behind.
                    Err(_) => return Ok(()),
                },
                // The pool lives as long as the service.
                _ = new_pending => if let Some(pending) = &mut pending {
                    self.tell_pending(pending).await?;
                },
                () = tokio::time::sleep_until(heard.max(pinged) + idle / 2), if W::HAS_SIGNS => {
                    // What it says is not read while it has too many requests.
                    if heard.elapsed() >= 2 * idle && self.takes_more() {
                        return Ok(());
                    }
                    self.wire.ping().await?;
                    pinged = Instant::now();
                }
                _ = ends.changed() => {
                    let _ = self.wire.close().await;
                    return Ok(());
                }
            }
        }
    }

    /// Whether further requests are read.
    fn takes_more(&self) -> bool {
        self.asked < AT_ONCE && self.asked_bytes < self.service.served.limits.body_bytes
    }

    /// Sends to a client that has to take it in time.
    async fn send(&mut self, part: Vec<u8>, is_first: bool, is_last: bool) -> Result<(), Ended> {
        let limit = self.service.served.limits.idle_time;
        let sent = timeout(limit, self.wire.send(part, is_first, is_last)).await;
        sent.unwrap_or(Err(Ended))
    }

    async fn send_answer(&mut self, mut answer: Answer) -> Result<(), Ended> {
        let mut is_first = true;
        loop {
            match answer.pieces.recv().await {
                None => return Err(Ended),
                // Nobody waits for an answer.
                Some(Piece::Last(rest)) if is_first && rest.is_empty() => return Ok(()),
                Some(Piece::Last(rest)) => return self.send(rest, is_first, true).await,
                Some(Piece::More(part)) => self.send(part, is_first, false).await?,
            }
            is_first = false;
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
        let length = bytes.len();
        self.asked += 1;
        self.asked_bytes += length;
        let (service, answered) = (Arc::clone(&self.service), self.answered.clone());
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        let batches = (first == Some(&b'[')).then(|| Arc::clone(&self.batches));
        let held = service.share();
        // Without room it is refused when its turn comes.
        let _ = held.grow_to(length);
        tokio::spawn(async move {
            let turn = match batches {
                Some(batches) => batches.acquire_owned().await.ok(),
                None => None,
            };
            let answer = service.answer(bytes, held).await;
            // Nobody waits if the connection has ended.
            let _ = answered
                .send(Answered {
                    answer,
                    bytes: length,
                    turn,
                })
                .await;
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
        let call: RawCall<'_> = serde_json::from_slice(bytes).ok()?;
        let id = call.id.map_or("null", RawValue::get);
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
    async fn tell(&mut self, event: &BlockEvent) -> Result<(), Ended> {
        if event.is_gap {
            return Err(Ended);
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
                    let logs = event.logs.as_ref().ok_or(Ended)?;
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

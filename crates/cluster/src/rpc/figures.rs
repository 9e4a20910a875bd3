//! What a server has answered: calls by method and outcome, how long they took, and bytes.

use crate::bag::ReadError;
use cambium_metrics::{Count, LabelledMetrics, MetricsHost, Tally};
use cambium_snapshot::Histogram;
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use tonic::{Code, Status, metadata::MetadataMap};

/// The deadline of the transport begins a moment before the call does.
const BEFORE: Duration = Duration::from_millis(10);

/// The methods of both services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Read,
    Status,
    Update,
    Snapshot,
    Submit,
    Witness,
}

impl Method {
    pub(super) const OF_SHARDS: [Self; 4] =
        [Self::Read, Self::Status, Self::Update, Self::Snapshot];
    pub(super) const OF_BUILDERS: [Self; 2] = [Self::Submit, Self::Witness];
    const ALL: [Self; 6] = [
        Self::Read,
        Self::Status,
        Self::Update,
        Self::Snapshot,
        Self::Submit,
        Self::Witness,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Status => "status",
            Self::Update => "update",
            Self::Snapshot => "snapshot",
            Self::Submit => "submit",
            Self::Witness => "witness",
        }
    }

    /// How calls end, besides [`ENDS`].
    const fn outcomes(self) -> &'static [&'static str] {
        match self {
            Self::Read => &[
                NOT_YET,
                GONE,
                OTHER_SHARD,
                NO_CODE,
                TOO_BIG,
                INVALID,
                UNAVAILABLE,
                LIMIT,
            ],
            Self::Status => &[LIMIT],
            Self::Update => &[NOT_FOUND, DAMAGED, INVALID, LIMIT],
            Self::Snapshot => &[UNAVAILABLE, LIMIT],
            Self::Submit => &[REFUSED, INVALID],
            Self::Witness => &[NOT_FOUND, INVALID],
        }
    }
}

pub(super) const OK: &str = "ok";
pub(super) const REFUSED: &str = "refused";
const NOT_YET: &str = "not_yet";
const GONE: &str = "gone";
const OTHER_SHARD: &str = "other_shard";
const NO_CODE: &str = "no_code";
const TOO_BIG: &str = "too_big";
const INVALID: &str = "invalid";
const UNAVAILABLE: &str = "unavailable";
const NOT_FOUND: &str = "not_found";
const DAMAGED: &str = "damaged";
const LIMIT: &str = "limit";
const DEADLINE: &str = "deadline";
const CANCELED: &str = "canceled";
const FAILED: &str = "failed";
/// How calls of all methods end.
const ENDS: [&str; 4] = [OK, DEADLINE, CANCELED, FAILED];

/// The outcome of a read that has no answer.
pub(super) const fn outcome_of(error: &ReadError) -> &'static str {
    match error {
        ReadError::NotYet(_) => NOT_YET,
        ReadError::Gone { .. } => GONE,
        ReadError::OtherShard { .. } => OTHER_SHARD,
        ReadError::NoCode(_) => NO_CODE,
        ReadError::TooBig { .. } => TOO_BIG,
        ReadError::Request(_) => INVALID,
        ReadError::Unavailable { .. } => UNAVAILABLE,
    }
}

fn outcome_of_status(status: &Status) -> &'static str {
    match status.code() {
        Code::Ok => OK,
        Code::NotFound => NOT_FOUND,
        Code::InvalidArgument => INVALID,
        Code::DataLoss => DAMAGED,
        Code::ResourceExhausted => LIMIT,
        Code::Unavailable => UNAVAILABLE,
        _ => FAILED,
    }
}

#[derive(Debug)]
struct OfMethod {
    calls: Tally,
    time: Histogram,
    bytes: Count,
}

/// What a [`Server`](crate::Server) has answered since it listens.
#[derive(Debug)]
pub struct ServerFigures {
    methods: [OfMethod; Method::ALL.len()],
    /// The methods of the service that it runs.
    serves: OnceLock<&'static [Method]>,
    running: Count,
    waiting: Count,
    accepted: Count,
    open: Count,
}

impl ServerFigures {
    pub(super) fn new() -> Self {
        let of = |method: Method| OfMethod {
            calls: Tally::new(&[&ENDS, method.outcomes()].concat()),
            time: Histogram::default(),
            bytes: Count::default(),
        };
        Self {
            methods: Method::ALL.map(of),
            serves: OnceLock::new(),
            running: Count::default(),
            waiting: Count::default(),
            accepted: Count::default(),
            open: Count::default(),
        }
    }

    pub(super) fn serves(&self, methods: &'static [Method]) {
        // A server runs once.
        let _ = self.serves.set(methods);
    }

    const fn of(&self, method: Method) -> &OfMethod {
        &self.methods[method as usize]
    }

    pub(super) fn add_bytes(&self, method: Method, bytes: usize) {
        self.of(method).bytes.add(bytes as u64);
    }
}

impl MetricsHost for ServerFigures {
    fn report(&self, metrics: &mut dyn LabelledMetrics) {
        for method in *self.serves.get().unwrap_or(&&[][..]) {
            let of = self.of(*method);
            for (outcome, count) in of.calls.counts() {
                metrics.labels(&[("method", method.name()), ("outcome", outcome)]);
                metrics.counter(
                    "rpc_calls",
                    "Calls that have ended, by method and outcome.",
                    count,
                );
            }
            metrics.labels(&[("method", method.name())]);
            metrics.latency(
                "rpc_call",
                "Time of calls until their answers, or the first part of them, could be sent.",
                &of.time.latency(),
            );
            metrics.counter(
                "rpc_answer_bytes",
                "Bytes of node bags, records, snapshots and witnesses that were sent.",
                of.bytes.get(),
            );
        }
        metrics.labels(&[]);
        metrics.counter(
            "rpc_connections",
            "Connections that were accepted.",
            self.accepted.get(),
        );
        metrics.gauges([
            (
                "rpc_connections_open",
                "Connections that are open.",
                self.open.get(),
            ),
            (
                "rpc_calls_running",
                "Calls that have begun and not ended, those that wait among them.",
                self.running.get(),
            ),
            (
                "rpc_calls_waiting",
                "Calls that wait for a thread.",
                self.waiting.get(),
            ),
        ]);
    }
}

/// A connection, which is open while this lives.
#[derive(Debug)]
pub(super) struct Open(Arc<ServerFigures>);

impl Open {
    pub(super) fn new(figures: &Arc<ServerFigures>) -> Self {
        figures.accepted.add(1);
        figures.open.add(1);
        Self(Arc::clone(figures))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.sub(1);
    }
}

/// A call that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting(Arc<ServerFigures>);

impl Waiting {
    /// Returns how many calls waited before.
    pub(super) fn new(figures: &Arc<ServerFigures>) -> (Self, u64) {
        let before = figures.waiting.add(1);
        (Self(Arc::clone(figures)), before)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.sub(1);
    }
}

/// A call that is answered. One that is dropped before its end was given up: by the client, or since its time was over.
#[derive(Debug)]
pub(super) struct Call {
    figures: Arc<ServerFigures>,
    method: Method,
    started: Instant,
    /// The deadline of the call, after which it counts as one that took too long.
    time: Duration,
    outcome: Option<&'static str>,
}

impl Call {
    /// Begins a call that may take so long, and less if its client says so.
    pub(super) fn begin(
        figures: &Arc<ServerFigures>,
        method: Method,
        metadata: &MetadataMap,
        longest: Duration,
    ) -> Self {
        figures.running.add(1);
        let of_client = metadata.get("grpc-timeout");
        let of_client = of_client.and_then(|it| timeout_of(it.to_str().ok()?));
        Self {
            figures: Arc::clone(figures),
            method,
            started: Instant::now(),
            time: of_client.map_or(longest, |time| time.min(longest)),
            outcome: None,
        }
    }

    pub(super) fn end(mut self, outcome: &'static str) {
        self.outcome = Some(outcome);
    }

    /// Ends it with a result, which is returned.
    pub(super) fn ended<T>(self, result: Result<T, Status>) -> Result<T, Status> {
        let outcome = result.as_ref().map_or_else(outcome_of_status, |_| OK);
        let is_known = ENDS.contains(&outcome) || self.method.outcomes().contains(&outcome);
        self.end(if is_known { outcome } else { FAILED });
        result
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let taken = self.started.elapsed();
        let outcome = self.outcome.unwrap_or(match taken + BEFORE >= self.time {
            true => DEADLINE,
            false => CANCELED,
        });
        let of = self.figures.of(self.method);
        of.calls.add(outcome);
        of.time.add(taken);
        self.figures.running.sub(1);
    }
}

/// The time that gRPC's header `grpc-timeout` says: up to 8 digits and a unit.
fn timeout_of(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_what_clients_write() {
        assert_eq!(timeout_of("5S"), Some(Duration::from_secs(5)));
        assert_eq!(timeout_of("00000250m"), Some(Duration::from_millis(250)));
        for text in ["", "S", "5", "5x", "999999999S", "5\u{e9}"] {
            assert_eq!(timeout_of(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_call_ends_once_however_it_ends() {
        let figures = Arc::new(ServerFigures::new());
        figures.serves(&Method::OF_SHARDS);
        let begin = |time| Call::begin(&figures, Method::Read, &MetadataMap::new(), time);
        let hour = Duration::from_secs(3_600);
        begin(hour).end(NOT_YET);
        drop(begin(hour));
        drop(begin(Duration::ZERO));
        let refused: Result<(), _> = begin(hour).ended(Err(Status::resource_exhausted("")));
        assert!(refused.is_err());
        assert!(begin(hour).ended(Ok(())).is_ok());
        let unanswered = begin(hour);
        assert_eq!(figures.running.get(), 1);
        drop(unanswered);
        let counts: Vec<_> = figures.of(Method::Read).calls.counts().collect();
        let counted = counts.into_iter().filter(|(_, count)| *count > 0);
        assert_eq!(
            counted.collect::<Vec<_>>(),
            [
                (OK, 1),
                (DEADLINE, 1),
                (CANCELED, 2),
                (NOT_YET, 1),
                (LIMIT, 1)
            ]
        );
        assert_eq!(figures.of(Method::Read).time.latency().count, 6);
        assert_eq!(figures.running.get(), 0);
    }
}

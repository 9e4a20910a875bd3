//! What a service counts: requests, calls of each method, connections, subscriptions.

use crate::error::RpcError;
use cambium_metrics::{Count, Histogram, LabelledMetrics};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Codes of errors that are counted by themselves; 0 stands for all others.
const CODES: [i64; 24] = [
    RpcError::PARSE,
    RpcError::REQUEST,
    RpcError::NO_METHOD,
    RpcError::PARAMS,
    RpcError::INTERNAL,
    RpcError::SERVER,
    RpcError::NOT_FOUND,
    RpcError::TIMEOUT,
    RpcError::TOO_LARGE,
    RpcError::LIMIT,
    RpcError::PRUNED,
    RpcError::UNKNOWN_PAYLOAD,
    RpcError::FORKCHOICE_STATE,
    RpcError::PAYLOAD_ATTRIBUTES,
    RpcError::TOO_LARGE_REQUEST,
    RpcError::TOO_DEEP_REORG,
    RpcError::UNSUPPORTED_FORK,
    RpcError::REVERT,
    RpcError::EXECUTION,
    RpcError::NONCE_TOO_LOW,
    RpcError::NONCE_TOO_HIGH,
    RpcError::SIMULATION,
    RpcError::BLOCK_GAS,
    0,
];

/// What a service has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Requests, each of them one call or a batch.
    pub requests: u64,
    /// Calls.
    pub calls: u64,
    /// Calls, and requests that are none, whose answer was an error.
    pub errors: u64,
}

/// The counters of a service, which its connections share.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) requests: Count,
    pub(crate) calls: Count,
    errors: Count,
    codes: [Count; CODES.len()],
    pub(crate) given_up: Count,
    pub(crate) request_bytes: Count,
    pub(crate) answer_bytes: Count,
    /// Requests that wait for a thread.
    pub(crate) waiting: Count,
    accepted: Count,
    open: Count,
    subscriptions: Count,
}

impl Figures {
    pub(crate) fn failed(&self, code: i64) {
        self.errors.add(1);
        let place = CODES.iter().position(|known| *known == code);
        self.codes[place.unwrap_or(CODES.len() - 1)].add(1);
    }

    pub(crate) fn counts(&self) -> ServiceCounts {
        ServiceCounts {
            requests: self.requests.get(),
            calls: self.calls.get(),
            errors: self.errors.get(),
        }
    }

    /// Passes the figures, all of which have this label.
    pub(crate) fn report(&self, own: (&'static str, &str), metrics: &mut dyn LabelledMetrics) {
        for (code, count) in CODES.iter().zip(&self.codes) {
            let code = match code {
                0 => "other".to_owned(),
                code => code.to_string(),
            };
            metrics.labels(&[own, ("code", &code)]);
            let help = "Calls, and requests that are none, whose answer was an error, by its code.";
            metrics.counter("api_errors", help, count.get());
        }
        metrics.labels(&[own]);
        metrics.counters([
            (
                "api_requests",
                "Requests that were answered, each of them one call or a batch.",
                self.requests.get(),
            ),
            (
                "api_requests_given_up",
                "Requests whose client left or took nothing of the answer, or whose answer became too large after a part of it had gone.",
                self.given_up.get(),
            ),
            (
                "api_request_bytes",
                "Bytes of requests.",
                self.request_bytes.get(),
            ),
            (
                "api_answer_bytes",
                "Bytes of answers, without those that subscriptions were told.",
                self.answer_bytes.get(),
            ),
            (
                "api_connections",
                "Connections that were accepted.",
                self.accepted.get(),
            ),
        ]);
        metrics.gauges([
            (
                "api_connections_open",
                "Connections that are open.",
                self.open.get(),
            ),
            (
                "api_subscriptions",
                "Subscriptions of open connections.",
                self.subscriptions.get(),
            ),
            (
                "api_requests_waiting",
                "Requests that wait for a thread.",
                self.waiting.get(),
            ),
        ]);
    }
}

/// What is counted of a method.
#[derive(Debug, Default)]
pub(crate) struct MethodFigures {
    ok: Count,
    failed: Count,
    /// Made by the first call.
    time: OnceLock<Box<Histogram>>,
}

impl MethodFigures {
    /// Counts a call that has ended.
    pub(crate) fn add(&self, is_ok: bool, taken: Duration) {
        let count = if is_ok { &self.ok } else { &self.failed };
        count.add(1);
        self.time.get_or_init(Box::default).add(taken);
    }

    /// Passes the figures of a method that was called. The others would be most of a page.
    pub(crate) fn report(
        &self,
        own: (&'static str, &str),
        method: &str,
        metrics: &mut dyn LabelledMetrics,
    ) {
        let Some(time) = self.time.get() else {
            return;
        };
        for (outcome, count) in [("ok", &self.ok), ("error", &self.failed)] {
            metrics.labels(&[own, ("method", method), ("outcome", outcome)]);
            let help =
                "Calls that were answered, by method and outcome, once the method was called.";
            metrics.counter("api_calls", help, count.get());
        }
        metrics.labels(&[own, ("method", method)]);
        let help = "Time of calls on their threads, by method: until the last piece of the answer was made.";
        metrics.latency("api_call", help, &time.latency());
    }
}

/// Something of which there is one more while this lives.
#[derive(Debug)]
pub(crate) struct Alive {
    figures: Arc<Figures>,
    of: fn(&Figures) -> &Count,
}

impl Alive {
    fn new(figures: &Arc<Figures>, of: fn(&Figures) -> &Count) -> Self {
        of(figures).add(1);
        Self {
            figures: Arc::clone(figures),
            of,
        }
    }

    pub(crate) fn connection(figures: &Arc<Figures>) -> Self {
        figures.accepted.add(1);
        Self::new(figures, |figures| &figures.open)
    }

    pub(crate) fn subscription(figures: &Arc<Figures>) -> Self {
        Self::new(figures, |figures| &figures.subscriptions)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        (self.of)(&self.figures).sub(1);
    }
}

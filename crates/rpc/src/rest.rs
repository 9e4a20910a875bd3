//! Requests over REST: an endpoint is found before the body is read, and its work runs on the threads of the service, in the turn
//! of its kind.

use crate::{
    cancel::Cancel,
    dispatch::{Service, tell_slow},
    engine::{Endpoint, Problem, Rest},
    error::RpcError,
    table::Call,
};
use alloy_primitives::Bytes;
use http::{Request, Response, request::Parts};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};
use tokio::task::spawn_blocking;

impl Service {
    /// Answers a request over REST on this thread, at once: for servers that are not this crate's, which check the token and
    /// bound the body.
    pub fn rest(&self, request: Request<Bytes>) -> Response<Vec<u8>> {
        let (parts, body) = request.into_parts();
        let limits = &self.served.limits;
        match self.endpoint(&parts) {
            Ok((_, endpoint)) if body.len() > endpoint.body_bytes_max(limits) => {
                self.refused(&Problem::body_too_large(endpoint.body_bytes_max(limits)))
            }
            Ok((rest, endpoint)) => {
                self.run_rest(rest, endpoint, &body, &Cancel::after(limits.time))
            }
            Err(problem) => self.refused(&problem),
        }
    }

    /// The endpoint of a request, whose body is not looked at.
    pub(crate) fn endpoint(&self, parts: &Parts) -> Result<(&Rest, Endpoint), Problem> {
        let rest = self.rest.as_ref().ok_or_else(Problem::no_endpoint)?;
        if let Some(client) = parts.headers.get("x-engine-client-version") {
            tracing::trace!(?client, "a consensus client says what it is");
        }
        Ok((rest, Endpoint::of(parts, &self.served.limits)?))
    }

    /// Answers a request whose endpoint was found.
    pub(crate) async fn answer_rest(
        self: &Arc<Self>,
        rest: Rest,
        endpoint: Endpoint,
        body: Bytes,
    ) -> Response<Vec<u8>> {
        let cancel = Cancel::after(self.served.limits.time);
        // Dropped with the answer: then the work ends.
        let _leaving = cancel.leaving();
        let permits = match self.turn(endpoint.kind()).await {
            Ok(permits) => permits,
            Err(error) => return self.refused(&error.into()),
        };
        let service = Arc::clone(self);
        let run = move || {
            let _permits = permits;
            service.run_rest(&rest, endpoint, &body, &cancel)
        };
        let answered = spawn_blocking(run).await;
        answered.unwrap_or_else(|error| self.refused(&RpcError::internal(error).into()))
    }

    /// The answer to a request that is not carried out.
    pub(crate) fn refused(&self, problem: &Problem) -> Response<Vec<u8>> {
        self.figures.requests.add(1);
        self.figures.failed(problem.code);
        problem.response()
    }

    fn run_rest(
        &self,
        rest: &Rest,
        endpoint: Endpoint,
        body: &Bytes,
        cancel: &Cancel,
    ) -> Response<Vec<u8>> {
        let _span = tracing::debug_span!("call", endpoint = endpoint.name()).entered();
        self.figures.requests.add(1);
        self.figures.calls.add(1);
        self.figures.request_bytes.add(body.len() as u64);
        let began = Instant::now();
        let node = self.served.node();
        let call = Call {
            node: &node,
            served: &self.served,
            cancel: &cancel.renewed(self.served.limits.time_of(endpoint.kind())),
        };
        let run = || {
            cancel.check()?;
            rest.answer(&call, endpoint, body)
        };
        // An endpoint that panics costs its own answer.
        let answered = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            Err(RpcError::internal("the endpoint panicked, which is a bug").into())
        });
        rest.add(endpoint, answered.is_ok(), began.elapsed());
        let response = answered.unwrap_or_else(|problem: Problem| {
            self.figures.failed(problem.code);
            problem.response()
        });
        let bytes = response.body().len() as u64;
        self.figures.answer_bytes.add(bytes);
        tell_slow(endpoint.name(), began.elapsed(), bytes);
        response
    }
}

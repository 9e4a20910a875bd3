//! Requests over REST: the body is read once its endpoint is known, by that endpoint's limit.

use super::body::{Broken, received};
use crate::{dispatch::Service, engine::Problem, held::no_room};
use http::{Request, Response};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::time::timeout;

/// Answers a request over REST: by its endpoint, once its body is there within the endpoint's limit.
pub(super) async fn respond(
    service: &Arc<Service>,
    request: Request<Incoming>,
) -> Response<Vec<u8>> {
    let (parts, body) = request.into_parts();
    let (rest, endpoint) = match service.endpoint(&parts) {
        Ok((rest, endpoint)) => (rest.clone(), endpoint),
        Err(problem) => return service.refused(&problem),
    };
    let limits = &service.served.limits;
    let most = endpoint.body_bytes_max(limits);
    // Held until the answer is made.
    let held = service.share();
    let problem = match timeout(limits.idle_time, received(body, most, &held)).await {
        Ok(Ok(body)) => return service.answer_rest(rest, endpoint, body.into()).await,
        Ok(Err(Broken::TooLarge)) => Problem::body_too_large(most),
        Ok(Err(Broken::NoRoom)) => no_room().into(),
        Ok(Err(Broken::BrokeOff)) => Problem::bad_request("the request broke off"),
        Err(_) => Problem::slow_body(),
    };
    service.refused(&problem)
}

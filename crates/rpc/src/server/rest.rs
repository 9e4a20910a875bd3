//! Requests over REST: the body is read once its endpoint is known, by that endpoint's limit.

use crate::{dispatch::Service, engine::Problem};
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::time::timeout;

/// Answers a request.
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
    let body = Limited::new(body, most).collect();
    let problem = match timeout(limits.idle_time, body).await {
        Ok(Ok(body)) => {
            let body = body.to_bytes().into();
            return service.answer_rest(rest, endpoint, body).await;
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Problem::body_too_large(most),
        Ok(Err(_)) => Problem::bad_request("the request broke off"),
        Err(_) => Problem::slow_body(),
    };
    service.refused(&problem)
}

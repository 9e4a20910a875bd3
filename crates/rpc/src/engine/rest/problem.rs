//! Errors: a status of HTTP, and a body by RFC 7807 with two fields.

use crate::{engine::ssz::SszError, error::RpcError};
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};
use serde_json::json;

/// Most bytes of what a problem says.
const DETAIL_BYTES_MAX: usize = 1024;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// The last part of `type`.
    class: &'static str,
    /// The code of the same error over JSON-RPC.
    pub(crate) code: i64,
    detail: Option<String>,
    /// The method that the endpoint has.
    allow: Option<&'static str>,
}

impl Problem {
    fn new(status: StatusCode, class: &'static str, code: i64, detail: impl Into<String>) -> Self {
        Self {
            status,
            class,
            code,
            detail: Some(detail.into()),
            allow: None,
        }
    }

    pub(crate) fn no_endpoint() -> Self {
        let what = "there is no such endpoint";
        let status = StatusCode::NOT_FOUND;
        Self::new(status, "method-not-found", RpcError::NO_METHOD, what)
    }

    /// The specification has no class for it; the status says what is wrong.
    pub(super) fn wrong_method(allow: &'static str) -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            detail: Some(format!("this endpoint has {allow} alone")),
            allow: Some(allow),
            ..Self::no_endpoint()
        }
    }

    pub(super) fn wrong_media() -> Self {
        let what = "the content type of this endpoint is application/octet-stream";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(status, "unsupported-media-type", RpcError::REQUEST, what)
    }

    pub(super) fn unsupported_fork(what: impl Into<String>) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Self::new(status, "unsupported-fork", RpcError::UNSUPPORTED_FORK, what)
    }

    pub(crate) fn bad_request(what: impl Into<String>) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Self::new(status, "invalid-request", RpcError::REQUEST, what)
    }

    fn request_too_large(what: impl Into<String>) -> Self {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        let code = RpcError::TOO_LARGE_REQUEST;
        Self::new(status, "request-too-large", code, what)
    }

    pub(crate) fn body_too_large(most: usize) -> Self {
        Self::request_too_large(format!("a body of this endpoint has at most {most} bytes"))
    }

    /// The error of a request that is a list of what is asked for, of which there may be too many.
    pub(super) fn of_list(error: SszError) -> Self {
        match error {
            SszError::TooLong { .. } => Self::request_too_large(error.to_string()),
            SszError::Layout { .. } => error.into(),
        }
    }

    /// The body took too long to come.
    pub(crate) fn slow_body() -> Self {
        Self {
            status: StatusCode::REQUEST_TIMEOUT,
            ..Self::bad_request("the request took too long")
        }
    }

    pub(crate) fn response(&self) -> Response<Vec<u8>> {
        let kind = format!("/engine-api/errors/{}", self.class);
        let body = match &self.detail {
            Some(detail) => {
                let detail = &detail[..detail.floor_char_boundary(DETAIL_BYTES_MAX)];
                json!({ "type": kind, "detail": detail })
            }
            None => json!({ "type": kind }),
        };
        let mut response = Response::new(body.to_string().into_bytes());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let media = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, media);
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

/// Has no detail, as the specification wants it.
impl From<SszError> for Problem {
    fn from(error: SszError) -> Self {
        tracing::debug!(%error, "a request can't be decoded");
        Self {
            status: StatusCode::BAD_REQUEST,
            class: "ssz-decode-error",
            code: RpcError::PARSE,
            detail: None,
            allow: None,
        }
    }
}

impl From<RpcError> for Problem {
    fn from(error: RpcError) -> Self {
        let (status, class) = match error.code {
            RpcError::PARAMS => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-body"),
            RpcError::UNKNOWN_PAYLOAD => (StatusCode::NOT_FOUND, "unknown-payload"),
            RpcError::FORKCHOICE_STATE => (StatusCode::CONFLICT, "invalid-forkchoice"),
            RpcError::PAYLOAD_ATTRIBUTES => {
                (StatusCode::UNPROCESSABLE_ENTITY, "invalid-attributes")
            }
            RpcError::TOO_LARGE_REQUEST => (StatusCode::PAYLOAD_TOO_LARGE, "request-too-large"),
            RpcError::UNSUPPORTED_FORK => (StatusCode::BAD_REQUEST, "unsupported-fork"),
            RpcError::TOO_DEEP_REORG => (StatusCode::CONFLICT, "reorg-too-deep"),
            // The server is busy, and may answer later.
            RpcError::LIMIT | RpcError::TIMEOUT => (StatusCode::SERVICE_UNAVAILABLE, "internal"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Self::new(status, class, error.code, error.message)
    }
}

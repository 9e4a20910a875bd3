//! What a request asks for, by its method, path and headers.

use super::problem::Problem;
use crate::{
    engine::version::FORKS,
    limits::{Kind, Limits},
};
use alloy_primitives::B64;
use alloy_rpc_types_engine::PayloadId;
use cambium_chain::Fork;
use http::{
    HeaderMap, Method, Request,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    request::Parts,
};

/// Paths of this interface, of any version.
const PREFIX: &str = "/engine/";
/// Most bytes of a payload with its envelope (`MAX_REQUEST_BODY_SIZE`).
const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Most bytes of any other body: well above what its lists may have.
const SMALL_BYTES_MAX: usize = 64 << 10;
const SSZ: &str = "application/octet-stream";

/// An endpoint, with what its path and its headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    NewPayload(Fork),
    Forkchoice(Fork),
    BuiltPayload(Fork, PayloadId),
    BodiesByHash(Fork),
    BodiesByRange { fork: Fork, from: u64, count: u64 },
    Blobs(u8),
    Capabilities,
    Identity,
}

/// Whether a request is one of this interface, well-formed or not.
pub(crate) fn is_rest<B>(request: &Request<B>) -> bool {
    request.uri().path().starts_with(PREFIX)
}

/// Most bytes of a payload with its envelope, by the specification and by the server.
pub(super) fn payload_bytes_max(limits: &Limits) -> usize {
    limits.body_bytes.min(PAYLOAD_BYTES_MAX)
}

impl Endpoint {
    /// The names of all endpoints, for figures: see [`Endpoint::index`].
    pub(crate) const NAMES: [&str; 8] = [
        "POST payloads",
        "POST forkchoice",
        "GET payloads",
        "POST bodies/hash",
        "GET bodies",
        "POST blobs",
        "GET capabilities",
        "GET identity",
    ];

    /// Finds the endpoint of a request, whose body is not looked at.
    pub(crate) fn of(request: &Parts, limits: &Limits) -> Result<Self, Problem> {
        let below = request.uri.path().strip_prefix("/engine/v1/");
        let below = below.ok_or_else(Problem::no_endpoint)?;
        let headers = &request.headers;
        let post = || check_post(&request.method, headers);
        let get = || match request.method {
            Method::GET => Ok(()),
            _ => Err(Problem::wrong_method("GET")),
        };
        let endpoint = match below.split('/').collect::<Vec<_>>()[..] {
            ["payloads"] => {
                post()?;
                Self::NewPayload(fork(headers)?)
            }
            ["forkchoice"] => {
                post()?;
                Self::Forkchoice(fork(headers)?)
            }
            ["payloads", id] => {
                get()?;
                Self::BuiltPayload(fork(headers)?, payload_id(id)?)
            }
            ["bodies", "hash"] => {
                post()?;
                Self::BodiesByHash(fork(headers)?)
            }
            ["bodies"] => {
                get()?;
                let query = request.uri.query().unwrap_or_default();
                Self::BodiesByRange {
                    fork: fork(headers)?,
                    from: number(query, "from")?,
                    count: number(query, "count")?,
                }
            }
            ["blobs", version @ ("v1" | "v2" | "v3" | "v4")] => {
                post()?;
                Self::Blobs(version.as_bytes()[1] - b'0')
            }
            ["capabilities"] => {
                get()?;
                Self::Capabilities
            }
            ["identity"] => {
                get()?;
                Self::Identity
            }
            _ => return Err(Problem::no_endpoint()),
        };
        let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        let length: Option<usize> = length.and_then(|length| length.parse().ok());
        let most = endpoint.body_bytes_max(limits);
        match length.is_some_and(|length| length > most) {
            true => Err(Problem::body_too_large(most)),
            false => Ok(endpoint),
        }
    }

    /// Its place among [`Endpoint::NAMES`].
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::NewPayload(_) => 0,
            Self::Forkchoice(_) => 1,
            Self::BuiltPayload(..) => 2,
            Self::BodiesByHash(_) => 3,
            Self::BodiesByRange { .. } => 4,
            Self::Blobs(_) => 5,
            Self::Capabilities => 6,
            Self::Identity => 7,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// The kind of work, as the method of JSON-RPC has it.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::NewPayload(_) | Self::Forkchoice(_) | Self::BuiltPayload(..) | Self::Blobs(_) => {
                Kind::Execution
            }
            Self::BodiesByHash(_) | Self::BodiesByRange { .. } => Kind::Scan,
            Self::Capabilities | Self::Identity => Kind::Quick,
        }
    }

    /// Most bytes of the body.
    pub(crate) fn body_bytes_max(self, limits: &Limits) -> usize {
        match self {
            Self::NewPayload(_) => payload_bytes_max(limits),
            _ => limits.body_bytes.min(SMALL_BYTES_MAX),
        }
    }
}

fn check_post(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if *method != Method::POST {
        return Err(Problem::wrong_method("POST"));
    }
    let given = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let essence = given.and_then(|given| given.split(';').next());
    match essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(SSZ)) {
        true => Ok(()),
        false => Err(Problem::wrong_media()),
    }
}

/// The fork whose schema bodies have.
fn fork(headers: &HeaderMap) -> Result<Fork, Problem> {
    let Some(given) = headers.get("eth-execution-version") else {
        let what = "the header Eth-Execution-Version is missing";
        return Err(Problem::unsupported_fork(what));
    };
    let known = FORKS.iter().find(|(name, _)| given == name);
    known.map(|(_, fork)| *fork).ok_or_else(|| {
        let names = FORKS.map(|(name, _)| name).join(", ");
        Problem::unsupported_fork(format!("Eth-Execution-Version is none of {names}"))
    })
}

/// An identifier in a path: 8 bytes in hex.
fn payload_id(segment: &str) -> Result<PayloadId, Problem> {
    let digits = segment.strip_prefix("0x").filter(|hex| hex.len() == 16);
    let id = digits.and_then(|digits| digits.parse::<B64>().ok());
    id.map(PayloadId)
        .ok_or_else(|| Problem::bad_request("a payload is named by 8 bytes in hex, after 0x"))
}

/// A number in a query, in decimal digits.
fn number(query: &str, name: &'static str) -> Result<u64, Problem> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let given = pairs.find(|(key, _)| *key == name).map(|(_, value)| value);
    let is_digits = |given: &&str| given.bytes().all(|byte| byte.is_ascii_digit());
    let number = given.filter(is_digits).and_then(|given| given.parse().ok());
    number.ok_or_else(|| Problem::bad_request(format!("{name} is missing, or is no number")))
}

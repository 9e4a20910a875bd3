//! The Engine API over REST with SSZ (execution-apis, pull request 793), beside JSON-RPC and with the same meaning.
//!
//! ```text
//!   problem    errors: a status of HTTP, and `application/problem+json`
//!   endpoint   method, path and headers -> an endpoint with its fork, before the body is read
//!   answers    endpoint and body -> a call of the engine -> SSZ
//! ```
//!
//! Left out is compression, which is optional.

mod problem;
mod endpoint;
mod answers;

pub use answers::Rest;
pub(crate) use endpoint::{Endpoint, is_rest};
pub(crate) use problem::Problem;

//! The Engine API over REST with SSZ (execution-apis, pull request 793), beside JSON-RPC and with the same meaning.
//!
//! ```text
//!   problem    errors: a status of HTTP, and `application/problem+json`
//!   endpoint   method, path and headers -> an endpoint with its fork, before the body is read
//!   answers    endpoint and body -> a call of the engine -> SSZ
//! ```
//!
//! Left out are compression, which is optional, and cells of a blob's extension in `blobs/v4`: 64 of 128 cells are the blob itself,
//! and the others would have to be computed. They are answered as not available.

mod problem;
mod endpoint;
mod answers;

pub use answers::Rest;
pub(crate) use endpoint::{Endpoint, is_rest};
pub(crate) use problem::Problem;

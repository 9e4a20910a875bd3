//! Connections.

mod http;

pub use http::{ServeError, Server};

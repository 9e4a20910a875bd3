//! Connections.

mod access;
mod socket;
mod http;

pub use access::Access;
pub use http::{ServeError, Server};

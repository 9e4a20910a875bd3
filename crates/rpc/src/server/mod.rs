//! Connections.

mod access;
mod jwt;
mod socket;
mod http;

pub use access::Access;
pub use http::{ServeError, Server};
pub use jwt::{JwtError, JwtSecret};

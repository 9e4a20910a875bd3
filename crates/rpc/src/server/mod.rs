//! Connections.

mod access;
mod jwt;
mod session;
mod websocket;
mod ipc;
mod impatient;
mod rest;
mod http;

pub use access::Access;
pub use http::{ServeError, Server};
pub use jwt::{JwtError, JwtSecret};

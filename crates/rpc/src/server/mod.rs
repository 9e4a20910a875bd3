//! Connections.

mod access;
mod session;
mod websocket;
mod ipc;
mod http;

pub use access::Access;
pub use http::{ServeError, Server};

//! A chain over JSON-RPC, for the clients that the Ethereum ecosystem has.
//!
//! ```text
//!   server/     connections: bounded in number, bytes and time
//!     |
//!   dispatch    a request or a batch -> calls -> answers, on a thread of the pool, in the turn of its kind; brief ones at once
//!     |
//!   methods/    a table from names to functions; callers add methods and replace them
//!   engine/     methods for a consensus client, in a service of their own; the same by REST with SSZ
//!     |
//!   pool/       transactions that wait
//!   builder/    blocks that are built of them
//!     |
//!   node        one place that answers every question of a chain
//! ```
//!
//! Answers are written as they are made: what is larger than a piece goes to the client while the rest is still computed,
//! and waits for a client that reads slowly. Work ends when its time is over or the client has left.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod error;
mod limits;
mod figures;
mod cancel;
mod signature;
mod params;
mod held;
mod reply;
mod filter;
mod polled;
mod pool;
mod builder;
mod served;
mod table;
mod methods;
mod engine;
mod discovery;
mod events;
mod dispatch;
mod rest;
mod server;

pub use builder::BuildOptions;
pub use cancel::Cancel;
pub use dispatch::Service;
pub use engine::{
    BlobsRequest, BodiesRequest, CellsRequest, Engine, ForkchoiceUpdate, PayloadEnvelope, Rest,
    SszError,
};
pub use error::RpcError;
pub use figures::ServiceCounts;
pub use limits::{Kind, Limits};
pub use params::Params;
pub use pool::{Pool, PoolLimits};
pub use reply::{ListReply, Reply};
pub use served::Served;
pub use server::{Access, JwtError, JwtSecret, ServeError, Server};
pub use table::{Call, Methods};

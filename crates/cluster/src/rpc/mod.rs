//! Shards over the network: gRPC, on which nothing is trusted but what is verified.
//!
//! ```text
//!   reader ---> RemoteShard ---- Read ----> ShardServer ---> ShardHost: the shard, if it is loaded
//!   replica --> ShardClient -- Snapshot --->                            updates that it keeps
//!               (a hole)    --- Update --->
//! ```
//!
//! | file | content |
//! |---|---|
//! | `wire` | the messages, as protocol buffers; `proto/shard.proto` is the same for other languages |
//! | `faults` | errors of reads, as messages |
//! | `figures` | what a server has answered, for collectors |
//! | `server` | answers: bounded in number, bytes and time |
//! | `client` | asks: one connection, with a deadline for each call |
//! | `tls` | certificates of both sides |

mod wire;
mod faults;
mod tls;
mod figures;
mod server;
mod client;

pub use client::{BuilderClient, ClientLimits, ConnectError, RemoteShard, ShardClient};
pub use figures::ServerFigures;
pub use server::{BuilderHost, HostStatus, ServeError, Server, ServerLimits, ShardHost, Wanted};
pub use tls::{TlsError, TlsFiles};
pub use wire::StatusReply;

//! The Engine API: a consensus client hands over blocks, chooses the head, and asks for blocks that are built here.
//!
//! ```text
//!   ssz          requests and answers of the REST interface
//!   payload      a payload by either transport -> a block, with its hash compared
//!   remembered   invalid blocks, and blocks that wait for their parents: both bounded
//!   attributes   what is wrong with attributes of a payload, by the version of the method
//!   building     payloads on their way
//!   new_payload  blocks are inserted: durable before the answer
//!   forkchoice   head, safe and finalized
//!   bodies       bodies of blocks
//!   blobs        blobs of the pool
//!   cells        the extension of a blob
//!   methods      JSON-RPC: parameters -> one of the above -> JSON
//!   rest         REST: SSZ -> the same -> SSZ
//! ```

mod version;
mod ssz;
mod payload;
mod remembered;
mod attributes;
mod building;
mod state;
mod new_payload;
mod forkchoice;
mod bodies;
mod blobs;
mod cells;
mod methods;
mod rest;

pub use rest::Rest;
pub(crate) use rest::{Endpoint, Problem, is_rest};
pub use ssz::{
    BlobsRequest, BodiesRequest, CellsRequest, ForkchoiceUpdate, PayloadEnvelope, SszError,
};
pub use state::Engine;

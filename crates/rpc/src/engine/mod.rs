//! The Engine API: a consensus client hands over blocks, chooses the head, and asks for blocks that are built here.
//!
//! ```text
//!   payload      parameters of engine_newPayload -> a block, with its hash compared
//!   remembered   invalid blocks, and blocks that wait for their parents: both bounded
//!   attributes   what is wrong with attributes of a payload, by the version of the method
//!   building     payloads on their way
//!   new_payload  blocks are inserted: durable before the answer
//!   forkchoice   head, safe and finalized
//!   bodies       bodies of blocks, and blobs of the pool
//! ```

mod version;
mod payload;
mod remembered;
mod attributes;
mod building;
mod state;
mod new_payload;
mod forkchoice;
mod bodies;
mod methods;

pub use state::Engine;

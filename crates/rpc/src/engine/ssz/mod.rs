//! SSZ of the Engine API: the containers of the REST specification (execution-apis, pull request 793), by fork.
//!
//! ```text
//!   fields      a container's fields, lists and optional values; limits before memory is taken
//!   payload     payloads, the envelope in which they are handed over
//!   forkchoice  a choice of the head with attributes, and statuses
//!   built       payloads that were built here, with their blobs
//!   bodies      bodies of blocks
//!   blobs       blobs of the pool, with proofs
//! ```
//!
//! Offsets and lengths are checked by `ethereum_ssz`. The containers are of this crate, since transactions and access lists stay
//! where they are in a request, and since an optional value of this API is a list of at most one item, not a union. A decoded
//! request encodes to the same bytes.

mod fields;
mod payload;
mod forkchoice;
mod built;
mod bodies;
mod blobs;

pub(super) use blobs::{AvailableCells, append_cells, append_proven_blob, append_whole_blob};
pub use blobs::{BlobsRequest, CellsRequest};
pub use bodies::BodiesRequest;
pub(super) use bodies::{StoredBody, append_body};
pub(super) use built::built_payload;
pub use fields::SszError;
pub(super) use fields::{append_list, append_offset};
pub use forkchoice::ForkchoiceUpdate;
pub(super) use forkchoice::{forkchoice_updated, payload_status};
pub use payload::PayloadEnvelope;

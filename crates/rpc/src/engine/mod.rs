//! The Engine API: a consensus client hands over blocks, chooses the head, and asks for blocks that are built here.
//!
//! ```text
//!   payload      parameters of engine_newPayload -> a block, with its hash compared
//!   new_payload  blocks are inserted: durable before the answer
//!   remembered   invalid blocks, and blocks that wait for their parents: both bounded
//!   forkchoice   head, safe and finalized
//!   attributes   what is wrong with attributes of a payload, by the version of the method
//!   building     payloads on their way
//!   bodies       bodies of blocks, and blobs of the pool
//! ```

mod version;
mod payload;
mod remembered;
mod new_payload;
mod attributes;
mod building;
mod forkchoice;
mod bodies;
mod methods;

use crate::served::Served;
use building::Building;
use parking_lot::Mutex;
use remembered::Remembered;
use std::sync::Arc;

/// The Engine API of a chain that this process writes.
///
/// Its [methods](Engine::methods) make a [`Service`](crate::Service) of their own, behind a server with a
/// [secret](crate::JwtSecret). The `Served` of that service may be another one with other limits, over the same node and pool.
pub struct Engine {
    served: Arc<Served>,
    /// Blocks and choices of the head come one at a time.
    remembered: Mutex<Remembered>,
    building: Building,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.served)
    }
}

impl Engine {
    /// The engine of a chain. Payloads are built from the pool, if there is one.
    pub fn new(served: Arc<Served>) -> Self {
        Self {
            building: Building::new(Arc::clone(&served)),
            served,
            remembered: Mutex::default(),
        }
    }
}

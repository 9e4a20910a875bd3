//! What the methods of the engine share.

use super::{building::Building, remembered::Remembered};
use crate::served::Served;
use parking_lot::Mutex;
use std::sync::Arc;

/// The Engine API of a chain that this process writes.
///
/// Its [methods](Engine::methods) make a [`Service`](crate::Service) of their own, behind a server with a
/// [secret](crate::JwtSecret). The `Served` of that service may be another one with other limits, over the same node and pool.
pub struct Engine {
    pub(super) served: Arc<Served>,
    /// Blocks and choices of the head come one at a time.
    pub(super) remembered: Mutex<Remembered>,
    pub(super) building: Building,
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

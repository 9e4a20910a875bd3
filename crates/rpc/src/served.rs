//! What is served: the chain, by its node, and the limits.

use crate::limits::Limits;
use alloy_primitives::B256;
use cambium_node::Node;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// A chain that is served. Each call has the node as it was when the call began.
pub struct Served {
    node: RwLock<Arc<Node>>,
    /// What the server allows.
    pub limits: Limits,
    /// The tip that was found by the head with this hash.
    pub(crate) tip: Mutex<Option<(B256, u128)>>,
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served(at {})", self.node().head())
    }
}

impl Served {
    /// The chain of a node.
    pub fn new(node: Arc<Node>, limits: Limits) -> Self {
        Self {
            node: RwLock::new(node),
            limits,
            tip: Mutex::default(),
        }
    }

    /// The node.
    pub fn node(&self) -> Arc<Node> {
        Arc::clone(&self.node.read())
    }

    /// Replaces the node by another one of the same chain: one that has caught up with the process that writes.
    pub fn replace(&self, node: Arc<Node>) {
        *self.node.write() = node;
    }
}

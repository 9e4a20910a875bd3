//! The tries that proofs of recent blocks share.

use crate::{
    layers::overlay::LayerId,
    tries::{base::Base, delta::Delta, shards::TrieShards},
};
use cambium_primitives::Changes;
use cambium_snapshot::StateError;
use std::sync::Arc;

/// Tries for proofs, at one layer at a time. Proofs at that layer read them together; a proof at another layer moves them first, alone.
pub(crate) struct Prover {
    delta: Delta,
    /// Whether they take more memory than tries that are kept may.
    pub(crate) is_large: bool,
}

impl Prover {
    pub(crate) const fn new(delta: Delta) -> Self {
        let is_large = false;
        Self { delta, is_large }
    }

    pub(crate) const fn delta(&self) -> &Delta {
        &self.delta
    }

    /// Moves to layer `to` by the changes that [`Delta::path_to`] returned.
    pub(crate) fn move_along(
        &mut self,
        changes: &Changes,
        to: LayerId,
        bytes_max: usize,
    ) -> Result<(), StateError> {
        self.delta.move_along(changes, to)?;
        self.delta.tries()?;
        self.is_large = self.delta.memory_bytes() > bytes_max;
        Ok(())
    }

    /// Whether the tries are at this layer above this base.
    pub(crate) fn is_at(&self, layer: LayerId, base: &Arc<Base>) -> bool {
        let is_there = self.delta.at() == layer && Arc::ptr_eq(self.delta.base(), base);
        is_there && self.delta.made_tries().is_some()
    }

    /// The tries and their base, unless a move has failed.
    pub(crate) fn tries(&self) -> Option<(&Arc<TrieShards>, &Arc<Base>)> {
        Some((self.delta.made_tries()?, self.delta.base()))
    }
}

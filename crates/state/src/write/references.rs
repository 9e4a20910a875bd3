//! References for the block log: from time to time a block's record is followed by those of the subtries that it and the
//! blocks below it have changed, so that the first root after a crash needs no page of these
//! ([`references`](crate::log::references)).
//!
//! They are taken when a root has just been computed, since the tries are at that block then, and they wait
//! with the block for its commit. A block that is committed has ancestors that are committed, so what these took is
//! in the log before.

use crate::{
    engine::parts::Engine,
    layers::{
        overlay::LayerId,
        tree::{Layer, Tree},
    },
    log::references::{Subtrie, encode_subtries},
    tries::delta::Delta,
};
use cambium_primitives::{BlockNumber, Changes, Path};
use cambium_snapshot::StateError;
use std::sync::Arc;

/// Layers from one without further references below it up, and the number of the block below them.
struct Since {
    after: BlockNumber,
    /// The newest block first, as the branch is walked down.
    layers: Vec<Arc<Layer>>,
}

/// The layers from `parent` down to the newest whose references the log has, or will have. `None` if
/// one of them is no block.
fn since_references(tree: &Tree, parent: LayerId) -> Option<Since> {
    let mut layers = Vec::new();
    for layer in tree.chain(parent) {
        if layer.id == tree.root().id || layer.leaves_since_references() == 0 {
            let after = layer.block.number;
            return Some(Since { after, layers });
        }
        if tree.is_restored(layer) {
            return None;
        }
        layers.push(layer.clone());
    }
    None
}

/// The paths of all leaves that some of these changes have, sorted.
fn leaf_paths<'a>(changes: impl Iterator<Item = &'a Changes>) -> Vec<Path> {
    let mut leaves = Vec::new();
    for changes in changes {
        for change in changes.accounts() {
            leaves.push(Path::account(&change.path));
            let slots = change.slots.iter();
            leaves.extend(slots.map(|(slot, _)| Path::slot(&change.path, slot)));
        }
    }
    leaves.sort_unstable();
    leaves.dedup();
    leaves
}

impl Engine {
    /// References for the log after a block with `changes` on layer `parent`, whose root the tries have just computed. `None` if
    /// too little has changed since the newest ones, or if they can't be had.
    pub(crate) fn references_after(
        &self,
        delta: &mut Delta,
        parent: LayerId,
        changes: &Changes,
    ) -> Option<Vec<u8>> {
        let leaves_min = self.options.files.log_reference_leaves as usize;
        if leaves_min == 0 || self.layered.is_some() {
            return None;
        }
        let leaves_in = |changes: &Changes| {
            let (accounts, slots) = changes.counts();
            accounts + slots
        };
        let own = leaves_in(changes);
        let since = {
            let current = self.layers.current.read();
            let below = current.tree.get(parent)?.clone();
            if below.leaves_since_references() + own < leaves_min {
                return None;
            }
            let since = since_references(&current.tree, parent)?;
            // A block below may have got references after this layer was made.
            let below_leaves: usize = since.layers.iter().map(|it| leaves_in(&it.changes)).sum();
            below.set_leaves_since_references(below_leaves);
            if below_leaves + own < leaves_min {
                return None;
            }
            since
        };
        let below = since.layers.iter().map(|layer| &layer.changes);
        let leaves = leaf_paths(below.chain([changes]));
        let taken = self.take_references(delta, &leaves);
        let subtries = match taken {
            Ok(subtries) => subtries,
            // A later block takes them, or a crash costs reads.
            Err(error) => {
                tracing::warn!(%error, "no references for the block log");
                return None;
            }
        };
        (!subtries.is_empty()).then(|| encode_subtries(since.after, &subtries))
    }

    fn take_references(
        &self,
        delta: &mut Delta,
        leaves: &[Path],
    ) -> Result<Vec<Subtrie>, StateError> {
        let base = delta.base().clone();
        delta.tries()?.references(leaves, &base)
    }
}

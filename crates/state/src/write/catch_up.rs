//! Merging the layers that replay has left, in steps that fit into the memory, before the first
//! root is computed.

use crate::engine::parts::Engine;
use cambium_snapshot::StateError;
use std::sync::{Arc, atomic::Ordering};

/// Estimated memory of a change in the tries, its page included, in bytes.
const CHANGE_BYTES: usize = 3 << 10;

impl Engine {
    /// The number of oldest layers to merge before tries are made of the others, and the number of
    /// all layers up to the head. The first is as many as one merge takes, or 0 if one set of tries
    /// can hold all layers.
    fn layers_behind(&self) -> (usize, usize) {
        let current = self.layers.current.read();
        let (head, root) = (current.tree.head().id, current.tree.root().id);
        let layers = current
            .tree
            .chain(head)
            .take_while(|layer| layer.id != root);
        let sizes: Vec<_> = layers
            .map(|layer| {
                let (accounts, slots) = layer.changes.counts();
                (accounts + slots) * CHANGE_BYTES
            })
            .collect();
        let max = self.merging.limit.due();
        if sizes.iter().sum::<usize>() <= max {
            return (0, sizes.len());
        }
        let mut bytes = 0;
        let fit = sizes.iter().rev().take_while(|size| {
            bytes += **size;
            bytes <= max
        });
        (fit.count().max(1), sizes.len())
    }

    /// Merges the layers that replay has left, in steps that fit into the memory.
    pub(crate) fn catch_up(self: &Arc<Self>) -> Result<(), StateError> {
        if !self.merging.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.merging.catching_up.lock();
        if !self.merging.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        loop {
            let (oldest, all) = self.layers_behind();
            if oldest == 0 {
                break;
            }
            let keep = all - oldest;
            // Pages for the next merge are read while the one before is under way.
            self.build_tries(keep)?;
            self.wait_for_merge()?;
            self.start_merge(keep);
            self.merging.wait_until_frozen();
            self.health.check()?;
        }
        self.merging.is_behind.store(false, Ordering::Release);
        Ok(())
    }

    /// Moves the tries to the head's ancestor `keep` layers below it.
    fn build_tries(&self, keep: usize) -> Result<(), StateError> {
        let mut delta = self.layers.delta.lock();
        let (path, target) = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            let mut chain = tree.chain(tree.head().id);
            let Some(target) = chain.nth(keep).map(|layer| layer.id) else {
                return Ok(());
            };
            (delta.path_to(tree, target), target)
        };
        delta.move_along(&path, target)
    }
}

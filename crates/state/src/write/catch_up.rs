//! What the layers may take of the memory, and what comes of there being more of them: merges.

use crate::engine::parts::Engine;
use cambium_snapshot::StateError;
use std::sync::{Arc, atomic::Ordering};

/// What a change takes once it is in the tries, its page included, about.
const CHANGE_BYTES: usize = 3 << 10;

impl Engine {
    /// How many of the oldest layers on the head's way are to be merged before tries are made of
    /// the others: as many as one merge takes. 0 if all of them are few enough.
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

    /// Merges what the log had left to be merged when the database was opened, as much at once as
    /// there is memory for: before a root is wanted for the first time.
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
            // What the next merge needs is read while the one before is under way.
            self.build_tries(keep)?;
            self.wait_for_merge()?;
            self.start_merge(keep);
            self.merging.wait_until_frozen();
            self.health.check()?;
        }
        self.merging.is_behind.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes the tries those of the head's ancestor `keep` layers below it.
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

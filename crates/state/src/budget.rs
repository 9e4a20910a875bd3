//! What the layers may take of the memory, and what comes of there being more of them: merges.

use crate::db::Inner;
use cambium_snapshot::{Budget, StateError, Taken};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// So many layers are merged however little they take: an opening replays them one by one.
const LAYERS_MAX: usize = 4096;
/// Of the layers' part as much is merged at once; the rest is for what comes meanwhile.
const DUE_PART: f64 = 0.4;
/// However much memory there is, no more is merged at once: after a crash all that is in no
/// checkpoint must be read again for the first root, at 50,000 to 100,000 pages a second.
const DUE_BYTES_MAX: usize = 192 << 20;
/// What a change takes once it is in the tries, its page included, about.
const CHANGE_BYTES: usize = 3 << 10;

/// Limit of the layers, which follows the size of the index.
#[derive(Default)]
pub(crate) struct LayerLimit(AtomicUsize);

impl LayerLimit {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// What is merged at once.
    fn due(&self) -> usize {
        ((self.get() as f64 * DUE_PART) as usize).min(DUE_BYTES_MAX)
    }

    /// What the tries for proofs may keep from one to the next.
    pub(crate) fn of_prover(&self) -> usize {
        self.get() / 8
    }
}

impl Inner {
    /// Divides the budget anew: `index` bytes are for the index.
    pub(crate) fn divide_budget(&self, index: u64) {
        self.index_reserved.store(index, Ordering::Relaxed);
        self.divide_again();
    }

    /// Divides the budget anew, since something else takes more or less than before.
    pub(crate) fn divide_again(&self) {
        let others = self.codes.memory_bytes() as u64 + self.disk.memory_bytes();
        let taken = Taken {
            index: self.index_reserved.load(Ordering::Relaxed),
            codes: self.code_cache.bytes(),
            others: others + self.pinned_bytes() as u64,
        };
        let budget = Budget::new(self.options.memory_bytes, taken);
        self.layer_limit
            .0
            .store(budget.layer_bytes, Ordering::Relaxed);
        self.pages.set_cache_bytes(budget.cache_bytes);
    }

    /// Whether the layers that are not being merged take enough for a merge, if none is under way.
    pub(crate) fn is_merge_due(&self) -> bool {
        self.layer_bytes() > self.layer_limit.due() || self.current.read().tree.len() > LAYERS_MAX
    }

    /// How many of the oldest layers on the head's way are to be merged before tries are made of
    /// the others: as many as one merge takes. 0 if all of them are few enough.
    fn layers_behind(&self) -> (usize, usize) {
        let current = self.current.read();
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
        let max = self.layer_limit.due();
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
        if !self.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.catching_up.lock();
        if !self.is_behind.load(Ordering::Acquire) {
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
            self.wait_until_frozen()?;
        }
        self.is_behind.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes the tries those of the head's ancestor `keep` layers below it.
    fn build_tries(&self, keep: usize) -> Result<(), StateError> {
        let mut delta = self.delta.lock();
        let (way, target) = {
            let current = self.current.read();
            let tree = &current.tree;
            let mut chain = tree.chain(tree.head().id);
            let Some(target) = chain.nth(keep).map(|layer| layer.id) else {
                return Ok(());
            };
            (delta.way_to(tree, target), target)
        };
        delta.take_way(&way, target)
    }
}

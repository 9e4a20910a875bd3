//! How the memory budget is divided.
//!
//! ```text
//!   | other | index | index being made | layers: delta, and intermediate | caches | slack |
//! ```
//!
//! The index is what it is, and there are two of it while a merge makes the next one. Of what is
//! left, layers get the most: the more changes a merge takes at once, the less it writes for each.
//! The cache of entries keeps the size that it has from the beginning. Codes that have run take
//! what they take, up to a limit of their own, which pages are told of after each merge: they get
//! the rest of the caches' part.

use crate::{db::Inner, error::StateError, merger::MergeJob};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Buffers of rings, segments and logs, blocks and places of codes by hash, and the program itself.
const OTHER_BYTES: u64 = 80 << 20;
/// Of what is left, the part of layers, and of the pages that their tries have taken apart.
const LAYERS_PART: f64 = 0.5;
/// And that of the caches. The rest is the allocator's: what it has freed and not given back,
/// and what is between pieces of different sizes.
const CACHE_PART: f64 = 0.25;
/// Of all memory, the part of the cache of entries: at 1 GiB it takes up to 160,000 accounts.
const ENTRIES_PART: u64 = 128;
/// However much memory there is: as much is written when a database is opened.
const ENTRY_BYTES_MAX: u64 = 256 << 20;
/// And that of the cache of codes at most: at 1 GiB it takes some 600 of the largest contracts.
const CODES_PART: u64 = 64;
/// However much memory there is: ten thousand of the largest contracts.
const CODE_BYTES_MAX: u64 = 256 << 20;
/// Of the layers' part as much is merged at once; the rest is for what comes meanwhile.
const DUE_PART: f64 = 0.4;
/// However much memory there is, no more is merged at once: after a crash all that is in no
/// checkpoint must be read again for the first root, at 50,000 to 100,000 pages a second.
const DUE_BYTES_MAX: usize = 192 << 20;
/// What a change takes once it is in the tries, its page included, about.
const CHANGE_BYTES: usize = 3 << 10;
/// However small the budget, a cache and layers of this size.
const BYTES_MIN: u64 = 256 << 10;
/// How far, of its way, a merge may be behind what has been committed meanwhile before commits
/// wait for it.
const BEHIND_MAX: f64 = 0.1;
/// How long a commit sleeps before it looks how far the merge is.
const SLEEP: Duration = Duration::from_micros(100);

/// Memory of the cache of entries.
pub(crate) fn entry_bytes(memory: u64) -> u64 {
    (memory / ENTRIES_PART).min(ENTRY_BYTES_MAX)
}

/// What the cache of codes may take.
pub(crate) fn code_bytes(memory: u64) -> u64 {
    (memory / CODES_PART).min(CODE_BYTES_MAX)
}

/// What each part may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Cached pages.
    pub(crate) cache_bytes: u64,
    /// Delta and intermediate together.
    pub(crate) layer_bytes: usize,
}

impl Budget {
    /// Divides `memory` bytes, of which `index` are for the index, and `codes` are taken by the
    /// cache of codes.
    pub(crate) fn new(memory: u64, index: u64, codes: u64) -> Self {
        let other = OTHER_BYTES.min(memory / 8) + index;
        let rest = memory.saturating_sub(other) as f64;
        let caches = (rest * CACHE_PART) as u64;
        Self {
            cache_bytes: caches
                .saturating_sub(entry_bytes(memory) + codes)
                .max(BYTES_MIN),
            layer_bytes: ((rest * LAYERS_PART) as u64).max(BYTES_MIN) as usize,
        }
    }
}

/// Limit of the layers, which follows the size of the index.
#[derive(Default)]
pub(crate) struct LayerLimit(AtomicUsize);

impl LayerLimit {
    fn get(&self) -> usize {
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
        let codes = self.code_cache.bytes();
        let budget = Budget::new(self.options.memory_bytes, index, codes);
        self.layer_limit
            .0
            .store(budget.layer_bytes, Ordering::Relaxed);
        self.pages.set_cache_bytes(budget.cache_bytes);
    }

    /// Whether the layers that are not being merged take enough for a merge, if none is under way.
    pub(crate) fn is_merge_due(&self) -> bool {
        self.layer_bytes() > self.layer_limit.due()
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
        let mut writer = self.writer.lock();
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
            self.wait_for_merge(&mut writer)?;
            self.freeze(&mut writer, keep)?;
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
        delta.take_way(&way, target)?;
        Ok(())
    }

    /// Waits until a merge under way is about as far as the layers above it have grown, but no
    /// longer than `usual`, what a commit takes otherwise. Returns whether there is room for more.
    pub(crate) fn keep_pace(&self, merge: &MergeJob, usual: Duration) -> Result<bool, StateError> {
        let max = self.layer_limit.get();
        // At least a quarter, though what is being merged should take more than the rest.
        let room = max.saturating_sub(merge.bytes).max(max / 4);
        let grown = self.layer_bytes() as f64 / room as f64;
        if grown >= 1.0 {
            return Ok(false);
        }
        let start = Instant::now();
        while !merge.is_finished()
            && grown > merge.progress(&self.counters) + BEHIND_MAX
            && start.elapsed() < usual
        {
            thread::sleep(SLEEP);
        }
        self.counters
            .merge_pace_ns
            .add(start.elapsed().as_nanos() as u64);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_budget_are_within_it() {
        for memory in [0, 1 << 20, 64 << 20, 1 << 30, 64 << 30] {
            for index in [0, 1 << 20, 128 << 20] {
                let Budget {
                    cache_bytes,
                    layer_bytes,
                } = Budget::new(memory, index, code_bytes(memory));
                let others = entry_bytes(memory) + code_bytes(memory);
                let all = cache_bytes + others + layer_bytes as u64;
                assert!(all + index <= memory.max(2 * BYTES_MIN + others + index));
            }
        }
        let budget = Budget::new(1 << 30, 128 << 20, 4 << 20);
        assert_eq!(
            (budget.cache_bytes >> 20, budget.layer_bytes >> 20),
            (192, 408)
        );
    }
}

//! How the memory budget is divided.
//!
//! ```text
//!   | fixed | index | index being made | layers: delta, and intermediate | caches | slack |
//! ```
//!
//! The index is what it is, and there are two of it while a merge makes the next one. Of what is
//! left, layers get the most: the more changes a merge takes at once, the less it writes for each.
//! The cache of entries keeps the size that it has from the beginning. Codes that have run take
//! what they take, up to a limit of their own, which pages are told of after each merge: they get
//! the rest of the caches' part. What grows besides (places of codes, rings, layers that views keep)
//! is counted, and all others have less.

use crate::{db::Inner, error::StateError, past::PAST_BYTES_MIN};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// So many layers are merged however little they take: an opening replays them one by one.
const LAYERS_MAX: usize = 4096;
/// Buffers of segments and logs, blocks by hash, and the program itself.
const FIXED_BYTES: u64 = 40 << 20;
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
/// What views of old blocks may take, of all memory.
const PAST_PART: u64 = 8;

/// Memory of the cache of entries.
pub(crate) fn entry_bytes(memory: u64) -> u64 {
    (memory / ENTRIES_PART).min(ENTRY_BYTES_MAX)
}

/// What the cache of codes may take.
pub(crate) fn code_bytes(memory: u64) -> u64 {
    (memory / CODES_PART).min(CODE_BYTES_MAX)
}

/// What all that views of old blocks bring back may take.
pub(crate) fn past_bytes(memory: u64) -> u64 {
    (memory / PAST_PART).max(PAST_BYTES_MIN)
}

/// What is taken already, or by others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// The index, twice while a merge makes the next one.
    pub(crate) index: u64,
    /// The cache of codes.
    pub(crate) codes: u64,
    /// What grows with the database and its use: places of codes, rings, layers that views keep.
    pub(crate) others: u64,
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
    /// Divides `memory` bytes.
    pub(crate) fn new(memory: u64, taken: Taken) -> Self {
        let fixed = FIXED_BYTES.min(memory / 8) + taken.index + taken.others;
        let rest = memory.saturating_sub(fixed) as f64;
        let caches = (rest * CACHE_PART) as u64;
        Self {
            cache_bytes: caches
                .saturating_sub(entry_bytes(memory) + taken.codes)
                .max(BYTES_MIN),
            layer_bytes: ((rest * LAYERS_PART) as u64).max(BYTES_MIN) as usize,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_budget_are_within_it() {
        for memory in [0, 1 << 20, 64 << 20, 1 << 30, 64 << 30] {
            for index in [0, 1 << 20, 128 << 20] {
                for others in [0, 40 << 20] {
                    let taken = Taken {
                        index,
                        codes: code_bytes(memory),
                        others,
                    };
                    let Budget {
                        cache_bytes,
                        layer_bytes,
                    } = Budget::new(memory, taken);
                    let caches = entry_bytes(memory) + code_bytes(memory);
                    let all = cache_bytes + caches + layer_bytes as u64;
                    let taken = index + others;
                    assert!(all + taken <= memory.max(2 * BYTES_MIN + caches + taken));
                }
            }
        }
        let taken = Taken {
            index: 128 << 20,
            codes: 4 << 20,
            others: 40 << 20,
        };
        let budget = Budget::new(1 << 30, taken);
        assert_eq!(
            (budget.cache_bytes >> 20, budget.layer_bytes >> 20),
            (192, 408)
        );
    }
}

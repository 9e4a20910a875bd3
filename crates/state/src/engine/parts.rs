//! The parts of an open database, the order of its locks, and the order of its writes.
//!
//! Locks, in the order in which they are taken:
//! 1. `merging.catching_up`: while the layers that replay has left are merged.
//! 2. `journal.head_moves`: while blocks are committed or the head moves, until that is done.
//! 3. the upper tries of `layered`, which compute roots under that commitment.
//! 4. `layers.delta`: the tries above the base, which compute all other roots.
//! 5. `journal.writer`: while the block log is appended to, and while layers are frozen.
//! 6. `layers.current`: base, overlay and tree of layers. Held for moments only; views copy it.
//! 7. the lock inside `journal.blocks`: positions of blocks. Held for look-ups, which may read the
//!    block index from disk.
//!
//! Before all of them, a reader that catches up takes `is_partial` of its
//! [`ReadAccess`](crate::log::access::ReadAccess).
//!
//! Five locks stand beside these:
//! - the roots of snapshots, under which nothing is taken; a thread that waits for one holds none
//!   of these;
//! - the tries for proofs, which proofs at one block share, taken while none of these is held; `layers.current` is taken under it;
//! - the phase of merging, taken under the first two at most; `layers.current` is taken under it;
//! - the list of files to reclaim, under which only locks of the store are taken;
//! - the count of news for subscribers, under which nothing is taken.
//!
//! Order of writing, on which crash safety rests:
//! - a block is durable when its record is in the synced log;
//! - a checkpoint is written only when the pages, codes and block index that it names are synced;
//! - a page counts as dead only when no kept checkpoint names it.

use super::{
    layers::Layers, merging::MergeControl, news::News, past_states::PastStates, prover::Prover,
};
use crate::{
    health::Health, layered::parts::Layered, layers::tree::Layer, log::journal::Journal,
    options::Options, store::Store,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::{Budget, IndexMemory, KeptStorage, MemoryInUse, StateError};
use cambium_trie::ProofTargets;
use parking_lot::RwLock;
use std::{
    ops::RangeInclusive,
    sync::{Arc, atomic::Ordering},
};

/// The parts of an open database.
pub(crate) struct Engine {
    pub(crate) options: Options,
    /// The contracts whose storage is kept, if the database is partial. Layers, log, pages and merges need no rule for it: see
    /// [`KeptStorage`].
    pub(crate) kept_storage: Option<KeptStorage>,
    pub(crate) health: Health,
    pub(crate) store: Store,
    pub(crate) layers: Layers,
    pub(crate) merging: Arc<MergeControl>,
    /// A second set of tries for proofs, so that proofs and roots don't wait for each other.
    pub(crate) prover: RwLock<Option<Prover>>,
    /// States of old blocks that views hold.
    pub(crate) past: Arc<PastStates>,
    /// Computes roots if the chain has the `layered` commitment.
    pub(crate) layered: Option<Layered>,
    /// Wakes subscribers.
    pub(crate) news: News,
    /// Dropped last: it holds the lock of the directory.
    pub(crate) journal: Journal,
}

impl Engine {
    /// Fails unless the storage of an account is kept.
    ///
    /// # Errors
    ///
    /// [`StateError::StorageNotKept`].
    pub(crate) fn check_storage_kept(&self, account: &B256) -> Result<(), StateError> {
        match &self.kept_storage {
            None => Ok(()),
            Some(kept) => kept.check(account),
        }
    }

    /// Fails unless the storage of each account that has slots among `targets` is kept.
    ///
    /// # Errors
    ///
    /// [`StateError::StorageNotKept`].
    pub(crate) fn check_targets(&self, targets: &ProofTargets) -> Result<(), StateError> {
        let Some(kept) = &self.kept_storage else {
            return Ok(());
        };
        let mut with_slots = targets
            .accounts()
            .iter()
            .filter(|(_, slots)| !slots.is_empty());
        with_slots.try_for_each(|(account, _)| kept.check(account))
    }

    /// Fails with [`StateError::NotOnPartial`] if the database is partial.
    pub(crate) const fn refuse_partial(&self, what: &'static str) -> Result<(), StateError> {
        match self.kept_storage {
            None => Ok(()),
            Some(_) => Err(StateError::NotOnPartial(what)),
        }
    }

    /// Number and hash of a block by its hash, if the block is in memory: sealed, or recent.
    pub(crate) fn find(&self, hash: &B256) -> Option<BlockId> {
        if let Some(layer) = self.layers.current.read().tree.by_hash(hash) {
            return Some(layer.block);
        }
        self.journal.blocks.recent(hash).map(|block| block.id)
    }

    /// The hash of the ancestor of `layer` at `number`, which must not be above the layer's own
    /// number.
    pub(crate) fn ancestor_hash(
        &self,
        layer: &Layer,
        number: BlockNumber,
    ) -> Result<Option<B256>, StateError> {
        if number == layer.block.number {
            return Ok(Some(layer.block.hash));
        }
        let mut id = BlockId::new(layer.block.number - 1, layer.parent_hash);
        // Blocks that are not committed are known to the tree alone.
        let current = self.layers.current.read();
        while id.number > number
            && self.journal.blocks.recent(&id.hash).is_none()
            && let Some(layer) = current.tree.by_hash(&id.hash)
        {
            id = BlockId::new(id.number - 1, layer.parent_hash);
        }
        self.journal.blocks.ancestor_hash(id, number)
    }

    /// The heights of missing blocks below blocks that wait for them: from the head's child on, or,
    /// on another branch, below it.
    pub(crate) fn missing_blocks(&self) -> Option<RangeInclusive<BlockNumber>> {
        let last = self.journal.blocks.lowest_orphan()?.saturating_sub(1);
        let next = self.layers.current.read().tree.head().block.number + 1;
        Some(next.min(last)..=last)
    }

    /// Divides the memory budget again, with another index.
    pub(crate) fn divide_budget(&self, index: IndexMemory) {
        *self.merging.index.lock() = index;
        self.divide_again();
    }

    /// Divides the memory budget again, because the memory of another part has changed.
    pub(crate) fn divide_again(&self) {
        let others = self.store.codes.memory_bytes() as u64
            + self.store.disk.memory_bytes()
            + self.store.pages.take_pinned_bytes_peak();
        let taken = MemoryInUse {
            index: *self.merging.index.lock(),
            codes: self.store.code_cache.bytes(),
            others: others + (self.pinned_bytes() + self.upper_bytes()) as u64,
        };
        let budget = Budget::new(self.options.memory_bytes, taken);
        self.merging
            .limit
            .0
            .store(budget.layer_bytes, Ordering::Relaxed);
        self.store.pages.set_cache_bytes(budget.cache_bytes);
    }

    /// Memory of the upper tries, in bytes.
    pub(crate) fn upper_bytes(&self) -> usize {
        self.layered.as_ref().map_or(0, Layered::bytes)
    }

    /// Memory that only views still hold, in bytes.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.layers.pinned_bytes() + self.past.bytes()
    }
}

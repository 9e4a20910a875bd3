//! Upper tries at a block of some branch, and moving them to others.
//!
//! ```text
//!   snapshot            start                  position
//!      |  intermediate    |   delta               |  uncommitted changes of a session
//!   ---o------------------o----o----o----o----o---o- - -
//!                              reverts of each block
//! ```
//!
//! Tries move down by the reverts of blocks, and up by their net changes. At the first block of the
//! next interval the delta becomes the intermediate trie. Tries farther away are built anew from
//! the changes of two intervals.

use alloy_primitives::B256;
use cambium_primitives::{AccountDiff, BlockId};
use cambium_snapshot::{Counters, pool};
use cambium_trie::{TrieError, UpperReverts, UpperTrie, layered_root};
use std::time::Instant;

/// Most sets of tries that are kept: of two branches that were forked before an interval ended.
const KEPT_MAX: usize = 2;

/// The upper tries at one block.
pub(crate) struct UpperTries {
    /// The block whose state is the snapshot.
    pub(crate) snapshot: BlockId,
    /// The block after which the delta begins.
    pub(crate) start: BlockId,
    intermediate: UpperTrie,
    delta: UpperTrie,
    /// The blocks whose changes the delta has, oldest first.
    blocks: Vec<(B256, UpperReverts)>,
    /// Memory of the reverts of these blocks, in bytes.
    revert_bytes: usize,
    /// Changes of a session, which belong to no block yet.
    uncommitted: Option<(u64, UpperReverts)>,
}

impl UpperTries {
    /// The tries at `start`, whose intermediate trie has what changed since `snapshot`.
    pub(crate) fn new(snapshot: BlockId, start: BlockId, intermediate: UpperTrie) -> Self {
        Self {
            snapshot,
            start,
            delta: intermediate.new_like(),
            intermediate,
            blocks: Vec::new(),
            revert_bytes: 0,
            uncommitted: None,
        }
    }

    /// The hash of the block at which the tries are, apart from uncommitted changes.
    pub(crate) fn position(&self) -> B256 {
        self.blocks
            .last()
            .map_or(self.start.hash, |(hash, _)| *hash)
    }

    /// Memory of the tries, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.delta.memory_bytes() + self.intermediate.memory_bytes() + self.revert_bytes
    }

    /// Takes uncommitted changes out.
    pub(crate) fn drop_uncommitted(&mut self) {
        if let Some((_, reverts)) = self.uncommitted.take() {
            self.delta.revert(&reverts);
        }
    }

    /// Moves down to the newest block of `chain`, which is sorted from `start` up, that is an
    /// ancestor of the position. Returns the number of blocks of `chain` that the tries have.
    pub(crate) fn move_down(&mut self, chain: &[BlockId]) -> usize {
        self.drop_uncommitted();
        let both = self.blocks.iter().zip(chain);
        let shared = both.take_while(|((mine, _), other)| *mine == other.hash);
        let shared = shared.count();
        self.remove_blocks(shared);
        shared
    }

    /// Takes the changes of all but the `keep` oldest blocks out of the delta.
    fn remove_blocks(&mut self, keep: usize) {
        for (_, reverts) in self.blocks.drain(keep..).rev() {
            self.revert_bytes -= reverts.memory_bytes();
            self.delta.revert(&reverts);
        }
    }

    fn push_block(&mut self, block: B256, reverts: UpperReverts) {
        self.revert_bytes += reverts.memory_bytes();
        self.blocks.push((block, reverts));
    }

    /// Merges the net changes of a child of the position.
    pub(crate) fn move_up(&mut self, block: BlockId, net: &[AccountDiff]) -> Result<(), TrieError> {
        let reverts = self.delta.apply(net)?;
        self.push_block(block.hash, reverts);
        Ok(())
    }

    /// Begins the next interval: the delta becomes the intermediate trie.
    pub(crate) fn next_interval(mut self, start: BlockId) -> Self {
        self.drop_uncommitted();
        let Self {
            start: snapshot,
            delta,
            intermediate,
            blocks,
            ..
        } = self;
        pool::drop_later((intermediate, blocks));
        let delta = delta.compacted().unwrap_or(delta);
        Self::new(snapshot, start, delta)
    }

    /// Merges net changes of a session on the position.
    pub(crate) fn apply_uncommitted(
        &mut self,
        owner: u64,
        net: &[AccountDiff],
    ) -> Result<(), TrieError> {
        self.drop_uncommitted();
        self.uncommitted = Some((owner, self.delta.apply(net)?));
        Ok(())
    }

    /// Hashes what has changed. Returns the roots of the delta and of the intermediate trie.
    pub(crate) fn roots(&mut self, counters: &Counters) -> UpperRoots {
        let start = Instant::now();
        let tries = [&mut self.delta, &mut self.intermediate];
        for trie in tries {
            let hashed = trie.commit(&pool::Threads);
            counters.node_hashes.add(hashed as u64);
        }
        counters.hash_ns.add(start.elapsed().as_nanos() as u64);
        UpperRoots {
            delta: self.delta.hash(&pool::Threads),
            intermediate: self.intermediate.hash(&pool::Threads),
        }
    }

    /// The delta and the intermediate trie, to prove from.
    pub(crate) const fn tries(&mut self) -> (&mut UpperTrie, &mut UpperTrie) {
        (&mut self.delta, &mut self.intermediate)
    }
}

/// Roots of upper tries.
#[derive(Clone, Copy)]
pub(crate) struct UpperRoots {
    delta: B256,
    intermediate: B256,
}

impl UpperRoots {
    /// The root of the commitment, above a snapshot with that root.
    pub(crate) fn above(self, snapshot: B256) -> B256 {
        layered_root(self.delta, self.intermediate, snapshot)
    }
}

/// The sets of upper tries that are kept, the one used last at the end.
#[derive(Default)]
pub(crate) struct Uppers(Vec<UpperTries>);

impl Uppers {
    /// Memory of all sets, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.iter().map(UpperTries::memory_bytes).sum()
    }

    /// Takes out a set for which `is_wanted` is true.
    pub(crate) fn take(&mut self, is_wanted: impl Fn(&UpperTries) -> bool) -> Option<UpperTries> {
        let at = self.0.iter().rposition(is_wanted)?;
        Some(self.0.remove(at))
    }

    /// Keeps a set, and returns it. Drops the one that was not used for longest.
    pub(crate) fn keep(&mut self, tries: UpperTries) -> &mut UpperTries {
        if self.0.len() == KEPT_MAX {
            pool::drop_later(self.0.remove(0));
        }
        self.0.push(tries);
        self.0.last_mut().expect("just added")
    }

    /// Makes the uncommitted changes of `owner` on `parent`, if a set still has them, those of
    /// `block`.
    pub(crate) fn adopt(&mut self, owner: u64, parent: B256, block: B256) {
        for tries in &mut self.0 {
            let is_owner = |uncommitted: &mut (u64, UpperReverts)| uncommitted.0 == owner;
            if tries.position() == parent
                && let Some((_, reverts)) = tries.uncommitted.take_if(is_owner)
            {
                tries.push_block(block, reverts);
                return;
            }
        }
    }

    /// Forgets a block that was dropped: another one may get its hash.
    pub(crate) fn forget(&mut self, block: B256) {
        self.0.retain_mut(|tries| {
            if let Some(at) = tries.blocks.iter().position(|(hash, _)| *hash == block) {
                tries.drop_uncommitted();
                tries.remove_blocks(at);
            }
            tries.start.hash != block && tries.snapshot.hash != block
        });
    }
}

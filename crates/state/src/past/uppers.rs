//! The upper tries at any block, from the changes of the blocks below it, and proofs from them.

use crate::{
    engine::parts::Engine,
    layered::{
        parts::{Layered, LockedUppers},
        uppers::UpperTries,
    },
    log::{blocks::FoundBlock, records::describe},
    options::LeafKind,
    view::state::View,
};
use alloy_primitives::B256;
use cambium_primitives::{AccountDiff, BlockId, BlockNumber, DecodeError, Path};
use cambium_snapshot::StateError;
use cambium_trie::{
    EMPTY_ROOT, EntryProof, LayeredEntryProver, LayeredProof, LayeredProver, LeafRange, NodeRef,
    PartialTrie, ProofTargets, ProvedRange, Stub, TrieError, UpperTrie, net_changes,
};
use std::{num::NonZeroUsize, ops::ControlFlow, sync::Arc};

impl View {
    /// Proves accounts and slots, present or absent, under the `layered` commitment. The upper tries
    /// of old blocks are made from the log, and the state of their snapshot is restored.
    ///
    /// # Errors
    ///
    /// [`StateError::NotUnderMpt`] if the chain has another commitment, [`StateError::WrongLeaf`] if the
    /// leaves are entries, and the errors of [`Db::view_of`](crate::Db::view_of).
    pub fn prove_layered(&self, targets: &ProofTargets) -> Result<LayeredProof, StateError> {
        self.layered_witness(targets, &[])
    }

    /// Makes the same proof, from which it is seen besides that the accounts `without_slots` have no slots:
    /// all slots that the tries have of them are in it, tombstones and what they void.
    /// [`LayeredProof::parts`] reads it.
    ///
    /// # Errors
    ///
    /// [`StateError::NotUnderMpt`] under another commitment, and otherwise as [`View::prove_layered`].
    pub fn layered_witness(
        &self,
        targets: &ProofTargets,
        without_slots: &[B256],
    ) -> Result<LayeredProof, StateError> {
        let what = StateError::NotUnderMpt("a proof of three tries");
        let layered = self.inner.layered.as_ref().ok_or(what)?;
        if self.inner.options.leaves == LeafKind::Entries {
            let targets = targets.accounts().first();
            return Err(StateError::WrongLeaf {
                path: targets.map(|(path, _)| *path).unwrap_or_default(),
                leaves: "entries",
            });
        }
        let (prover, snapshot) = self.upper_parts(layered, targets, without_slots)?;
        let mut targets = prover.snapshot_targets();
        if !prover.whole().is_empty() {
            let view = self.inner.view_of(snapshot)?;
            let slots = prover.whole().iter().map(|path| {
                let slots = view.slots(path)?.into_iter().map(|(slot, _)| slot);
                Ok((*path, slots.collect()))
            });
            let slots = slots.collect::<Result<_, StateError>>()?;
            targets = targets.and(&ProofTargets::new(slots));
        }
        let part = match targets.accounts().is_empty() {
            true => blinded(self.inner.snapshot_root(snapshot)?),
            false => self.inner.trie_view_of(snapshot)?.extract_state(&targets)?,
        };
        Ok(prover.finish(&part))
    }

    /// Proves entries, present or absent, under the `layered` commitment, as [`View::prove_layered`]
    /// proves accounts. A proof of the keys that a block reads and writes is one for
    /// [`verify_layered_update`](cambium_trie::verify_layered_update).
    ///
    /// # Errors
    ///
    /// As [`View::prove_layered`]; [`StateError::WrongLeaf`] if the leaves are accounts.
    pub fn prove_layered_entries(&self, keys: &[B256]) -> Result<EntryProof, StateError> {
        let layered = self.layered_entries(keys.first())?;
        let (prover, snapshot) = self.with_uppers(layered, |tries| {
            let snapshot = tries.snapshot;
            let (delta, intermediate) = tries.tries();
            (LayeredEntryProver::new(delta, intermediate, keys), snapshot)
        })?;
        let targets = prover.snapshot_targets();
        let part = match targets.accounts().is_empty() {
            true => blinded(self.inner.snapshot_root(snapshot)?),
            false => self.inner.trie_view_of(snapshot)?.extract_state(&targets)?,
        };
        Ok(prover.finish(&part))
    }

    /// Proves the entries from `first` to `last`, both included, `limit` of them at most, and that there
    /// are no others, under the `layered` commitment.
    ///
    /// # Errors
    ///
    /// As [`View::prove_layered_entries`], and an error if the range ends before it begins.
    pub fn prove_layered_entry_range(
        &self,
        first: B256,
        last: B256,
        limit: NonZeroUsize,
    ) -> Result<ProvedRange, StateError> {
        let layered = self.layered_entries(Some(&first))?;
        let path = Path::account(&last);
        if first > last {
            return Err(TrieError::Unsorted { path }.into());
        }
        // How far the limit of entries allows to go: the tries may have more leaves than that.
        let (mut count, mut end, mut next) = (0, last, None);
        self.each_value(&first, |key, _| {
            if key > last {
                return Ok(ControlFlow::Break(()));
            }
            if count == limit.get() {
                next = Some(key);
                return Ok(ControlFlow::Break(()));
            }
            (count, end) = (count + 1, key);
            Ok(ControlFlow::Continue(()))
        })?;
        if next.is_none() {
            end = last;
        }
        let (prover, snapshot) = self.with_uppers(layered, |tries| {
            let snapshot = tries.snapshot;
            let (delta, intermediate) = tries.tries();
            let prover = LayeredEntryProver::of_range(delta, intermediate, first, end);
            (prover, snapshot)
        })?;
        let range = LeafRange::accounts(first, end);
        let snapshot = self.inner.trie_view_of(snapshot)?;
        let part = snapshot.extract_state_range(&range, NonZeroUsize::MAX)?;
        Ok(ProvedRange {
            proof: prover.finish(&part.trie),
            first,
            last: end,
            next,
        })
    }

    /// The parts of a database of entries under the `layered` commitment.
    fn layered_entries(&self, key: Option<&B256>) -> Result<&Layered, StateError> {
        let what = StateError::NotUnderMpt("a proof of three tries");
        let layered = self.inner.layered.as_ref().ok_or(what)?;
        match self.inner.options.leaves {
            LeafKind::Entries => Ok(layered),
            LeafKind::Accounts => Err(StateError::WrongLeaf {
                path: key.copied().unwrap_or_default(),
                leaves: "accounts",
            }),
        }
    }

    /// The root of the snapshot on which a child of the block stands, if that is another one than
    /// that of the block itself: where an interval ends.
    ///
    /// # Errors
    ///
    /// [`StateError::NotUnderMpt`] under another commitment, and an error of damage or of the disk if the
    /// root has to be computed and the state can't be read.
    pub fn next_snapshot_root(&self) -> Result<Option<B256>, StateError> {
        let what = StateError::NotUnderMpt("the root of a snapshot");
        let layered = self.inner.layered.as_ref().ok_or(what)?;
        let (block, intervals) = (self.block(), layered.intervals);
        if intervals.start_of(block.number) == intervals.start_of(block.number + 1) {
            return Ok(None);
        }
        let number = intervals.snapshot_of(block.number + 1);
        let (snapshot, _) = self.inner.chain_down(block, number)?;
        Ok(Some(self.inner.snapshot_root(snapshot)?))
    }

    /// The parts of a proof from the upper tries, and the block of the snapshot below them.
    fn upper_parts(
        &self,
        layered: &Layered,
        targets: &ProofTargets,
        without_slots: &[B256],
    ) -> Result<(LayeredProver, BlockId), StateError> {
        self.with_uppers(layered, |tries| {
            let snapshot = tries.snapshot;
            let (delta, intermediate) = tries.tries();
            let prover = LayeredProver::for_witness(delta, intermediate, targets, without_slots);
            (prover, snapshot)
        })
    }

    /// Runs `prove` on the upper tries of the block, as its own root has them.
    fn with_uppers<T>(
        &self,
        layered: &Layered,
        prove: impl FnOnce(&mut UpperTries) -> T,
    ) -> Result<T, StateError> {
        let block = self.block();
        let start = layered.intervals.start_of(block.number);
        let mut uppers = layered.lock();
        self.check_alive()?;
        let is_here =
            |tries: &UpperTries| tries.position() == block.hash && tries.start.number == start;
        if let Some(mut tries) = uppers.take(is_here) {
            tries.drop_uncommitted();
            return Ok(prove(uppers.keep(tries)));
        }
        drop(uppers);
        Ok(prove(&mut self.inner.uppers_anew(layered, block)?))
    }
}

/// The trie of a state of which nothing but the root is known.
fn blinded(root: B256) -> PartialTrie {
    match root {
        EMPTY_ROOT => PartialTrie::new(Path::EMPTY),
        root => PartialTrie::from_stub(Path::EMPTY, Stub::bare(NodeRef::hash(root))),
    }
}

impl Engine {
    /// Moves upper tries to `parent`, so that a block can be built on it, and returns them.
    pub(crate) fn uppers_at<'a>(
        &self,
        layered: &Layered,
        uppers: &'a mut LockedUppers<'_>,
        parent: BlockId,
    ) -> Result<&'a mut UpperTries, StateError> {
        let intervals = layered.intervals;
        let number = intervals.start_of(parent.number + 1);
        let is_here =
            |tries: &UpperTries| tries.position() == parent.hash && tries.start.number == number;
        if let Some(mut tries) = uppers.take(is_here) {
            tries.drop_uncommitted();
            return Ok(uppers.keep(tries));
        }
        let (start, chain) = self.chain_down(parent, number)?;
        let ends_at_start = |tries: &UpperTries| {
            let end = tries.start.number + intervals.blocks();
            tries.position() == start.hash && end == start.number
        };
        let found = match uppers.take(|tries| tries.start == start) {
            Some(tries) => Some(tries),
            None => {
                let before = uppers.take(ends_at_start);
                before.map(|tries| tries.next_interval(start))
            }
        };
        let tries = match found {
            Some(tries) => tries,
            None => self.uppers_below(layered, parent.number + 1, start)?,
        };
        // After an error the tries are gone, and are made anew when they are needed next.
        let tries = self.move_uppers(tries, &chain)?;
        Ok(uppers.keep(tries))
    }

    /// Makes the upper tries after block `block`, as its own root has them.
    pub(crate) fn uppers_anew(
        &self,
        layered: &Layered,
        block: BlockId,
    ) -> Result<UpperTries, StateError> {
        let number = layered.intervals.start_of(block.number);
        let (start, chain) = self.chain_down(block, number)?;
        let tries = self.uppers_below(layered, block.number, start)?;
        let mut tries = self.move_uppers(tries, &chain)?;
        tries.roots(&self.store.counters);
        Ok(tries)
    }

    /// Moves tries along `chain`, which begins above their start.
    fn move_uppers(
        &self,
        mut tries: UpperTries,
        chain: &[BlockId],
    ) -> Result<UpperTries, StateError> {
        let there = tries.move_down(chain);
        for block in &chain[there..] {
            tries.move_up(*block, &self.net_changes_of(*block)?)?;
        }
        Ok(tries)
    }

    /// The upper tries of block `number`, with nothing in the delta, which begins after `start`.
    fn uppers_below(
        &self,
        layered: &Layered,
        number: BlockNumber,
        start: BlockId,
    ) -> Result<UpperTries, StateError> {
        let snapshot = layered.intervals.snapshot_of(number);
        let (snapshot, middle) = self.chain_down(start, snapshot)?;
        let mut intermediate = match self.options.leaves {
            LeafKind::Accounts => UpperTrie::new(),
            LeafKind::Entries => UpperTrie::of_entries(),
        };
        for block in middle {
            intermediate.apply(&self.net_changes_of(block)?)?;
        }
        Ok(UpperTries::new(snapshot, start, intermediate))
    }

    /// The ancestor of `block` at `number`, and the blocks above it up to `block`, oldest first.
    fn chain_down(
        &self,
        mut block: BlockId,
        number: BlockNumber,
    ) -> Result<(BlockId, Vec<BlockId>), StateError> {
        let mut chain = Vec::new();
        while block.number > number {
            chain.push(block);
            block = BlockId::new(block.number - 1, self.parent_of(block)?);
        }
        chain.reverse();
        Ok((block, chain))
    }

    fn parent_of(&self, block: BlockId) -> Result<B256, StateError> {
        let unknown = || StateError::UnknownBlock(block.hash);
        {
            let current = self.layers.current.read();
            let layer = current.tree.by_hash(&block.hash);
            if let Some(layer) = layer.filter(|layer| layer.block == block) {
                return Ok(layer.parent_hash);
            }
        }
        match self.journal.blocks.find(block)?.ok_or_else(unknown)? {
            FoundBlock::Recent(block) => Ok(block.parent),
            FoundBlock::BaseAncestor => {
                let below = block.number.checked_sub(1).ok_or_else(unknown)?;
                let entry = self.journal.blocks.base_ancestor(below)?;
                Ok(entry.ok_or_else(unknown)?.hash)
            }
        }
    }

    /// The net changes of a block, from its layer or its record in the log.
    fn net_changes_of(&self, block: BlockId) -> Result<Vec<AccountDiff>, StateError> {
        let layer = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            // The root's layer, and restored ones, are of more or fewer blocks than their own.
            let layer = tree.by_hash(&block.hash).filter(|layer| {
                let is_own = layer.id != tree.root().id && !tree.is_restored(layer);
                is_own && layer.block == block
            });
            layer.cloned()
        };
        if let Some(layer) = layer {
            let net = net_changes(&layer.changes, &layer.reverts);
            return net.ok_or_else(|| unfit(format!("block {block}")));
        }
        let position = self.journal.blocks.position_of(block)?;
        let position = position.ok_or(StateError::UnknownBlock(block.hash))?;
        let record = self.journal.record_of(block, position)?;
        let net = net_changes(&record.changes, &record.reverts);
        net.ok_or_else(|| unfit(describe(position)))
    }

    /// Computes the root of `view` from nothing but the changes of blocks and the root of the
    /// snapshot below them; `None` if the chain has another commitment.
    pub(crate) fn layered_root_anew(
        self: &Arc<Self>,
        view: &View,
    ) -> Result<Option<B256>, StateError> {
        let Some(layered) = &self.layered else {
            return Ok(None);
        };
        let mut tries = self.uppers_anew(layered, view.block())?;
        let roots = tries.roots(&self.store.counters);
        Ok(Some(roots.above(self.snapshot_root(tries.snapshot)?)))
    }

    /// Makes the upper tries of the head.
    ///
    /// # Errors
    ///
    /// [`StateError::BadOptions`] if they take more memory than the budget allows. Other errors come
    /// when a root is computed.
    pub(crate) fn check_upper_memory(&self) -> Result<(), StateError> {
        let Some(layered) = self.layered.as_ref() else {
            return Ok(());
        };
        if self.journal.is_read_only() {
            return Ok(());
        }
        let head = self.layers.current.read().tree.head().block;
        let bytes = {
            let mut uppers = layered.lock();
            if self.uppers_at(layered, &mut uppers, head).is_err() {
                return Ok(());
            }
            uppers.memory_bytes() as u64
        };
        let intervals = layered.intervals;
        intervals.check_measured(bytes, self.options.memory_bytes)?;
        self.divide_again();
        Ok(())
    }
}

/// The error for a block whose reverts are not those of its changes.
fn unfit(what: String) -> StateError {
    StateError::Damaged {
        what,
        source: DecodeError {
            what: "reverts that don't fit the changes",
            offset: 0,
        },
    }
}

//! Proving entries under the `layered` commitment: in two steps, between which the snapshot is read.

use super::{
    mpt::targets,
    proof::{EntryProof, LayeredEntryProof},
};
use crate::{
    extract::ProofTargets,
    hash::Alone,
    multiproof::MultiProof,
    node_ref::EMPTY_ROOT,
    partial::PartialTrie,
    range::LeafRange,
    upper::{LayeredRoots, UpperTrie},
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::B256;

/// Makes an [`EntryProof`] of the three tries of the `layered` commitment, in two steps: the upper tries
/// are read first, and then the snapshot.
///
/// [`verify_entries`](crate::verify_entries) verifies a proof of keys. A proof of the keys that a commit
/// reads and writes is one for [`verify_layered_update`](crate::verify_layered_update).
pub struct LayeredEntryProver {
    proof: LayeredEntryProof,
    /// Keys that the upper tries don't have, sorted.
    open: Vec<B256>,
}

fn nodes_of(part: &PartialTrie) -> MultiProof {
    MultiProof {
        nodes: part.witness_nodes(),
    }
}

impl LayeredEntryProver {
    fn with_roots(delta: &mut UpperTrie, intermediate: &mut UpperTrie, open: Vec<B256>) -> Self {
        Self {
            proof: LayeredEntryProof {
                roots: LayeredRoots {
                    delta: delta.hash(&Alone),
                    intermediate: intermediate.hash(&Alone),
                    snapshot: EMPTY_ROOT,
                },
                delta: MultiProof::default(),
                intermediate: MultiProof::default(),
                snapshot: MultiProof::default(),
            },
            open,
        }
    }

    /// Begins a proof of `keys`, in any order, present or absent.
    ///
    /// # Panics
    ///
    /// If a part of the upper tries is blinded.
    pub fn new(delta: &mut UpperTrie, intermediate: &mut UpperTrie, keys: &[B256]) -> Self {
        let mut open = keys.to_vec();
        open.sort_unstable();
        open.dedup();
        let mut prover = Self::with_roots(delta, intermediate, open);
        prover.proof.delta = prover.pass(delta);
        prover.proof.intermediate = prover.pass(intermediate);
        prover
    }

    /// Begins a proof of all entries from `first` to `last`, both included.
    ///
    /// # Panics
    ///
    /// If a part of the upper tries is blinded, or `last` is before `first`.
    pub fn of_range(
        delta: &mut UpperTrie,
        intermediate: &mut UpperTrie,
        first: B256,
        last: B256,
    ) -> Self {
        let mut prover = Self::with_roots(delta, intermediate, Vec::new());
        let range = LeafRange::accounts(first, last);
        let part = |trie: &mut UpperTrie| {
            let part = trie.extract_range(&range);
            nodes_of(&part.expect("a range of an upper trie without blinded nodes"))
        };
        prover.proof.delta = part(delta);
        prover.proof.intermediate = part(intermediate);
        prover
    }

    /// Looks the open keys up in an upper trie, and returns the nodes on their paths.
    fn pass(&mut self, layer: &mut UpperTrie) -> MultiProof {
        let part = layer.extract(&targets(self.open.iter().copied()));
        let part = part.expect("an upper trie without blinded nodes");
        self.open.retain(|key| layer.entry(key).is_none());
        nodes_of(part.trie())
    }

    /// Returns the keys to look up in the snapshot.
    pub fn snapshot_targets(&self) -> ProofTargets {
        targets(self.open.iter().copied())
    }

    /// Returns the roots of the upper tries. That of the snapshot is not known yet.
    pub const fn roots(&self) -> LayeredRoots {
        self.proof.roots
    }

    /// Returns the proof. `part` is the result of [`PartialTrie::extract`] for [`Self::snapshot_targets`] from the trie
    /// of the snapshot; for a range, that of [`PartialTrie::extract_range`].
    ///
    /// # Panics
    ///
    /// If `part` is not hashed.
    pub fn finish(mut self, part: &PartialTrie) -> EntryProof {
        let root = part.state_root();
        self.proof.roots.snapshot = root.expect("an extracted part is hashed");
        self.proof.snapshot = nodes_of(part);
        EntryProof::Layered(Box::new(self.proof))
    }
}

//! Proving entries of a trie.

use super::{
    mpt::{sorted, targets},
    proof::EntryProof,
};
use crate::{
    binary_proof::{BinaryProof, ProofPart},
    commitment::Commitment,
    error::{Missing, TrieError, UpdateError},
    multiproof::MultiProof,
    node_ref::NodeKind,
    partial::PartialTrie,
    range::LeafRange,
    resolve::Resolve,
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::B256;
use cambium_primitives::{AccountDiff, Path};
use core::num::NonZeroUsize;

/// A proof of all entries of a range.
#[derive(Clone, Debug)]
pub struct ProvedRange {
    /// The proof.
    pub proof: EntryProof,
    /// First key of the range.
    pub first: B256,
    /// Last proved key: the end that was asked for, or an earlier one at the limit.
    pub last: B256,
    /// The first entry beyond, within what was asked for: `None` if there is none.
    pub next: Option<B256>,
}

impl PartialTrie {
    /// Proves what the leaves of `keys`, in any order, commit to, or that there are none. Loads
    /// absent subtries. [`verify_entries`](crate::verify_entries) verifies the proof.
    ///
    /// # Errors
    ///
    /// Returns an error if the trie is not based at the empty path or loading fails.
    pub fn prove_entries<R: Resolve>(
        &mut self,
        keys: &[B256],
        resolver: &mut R,
    ) -> Result<EntryProof, UpdateError<R::Error>> {
        self.check_base()?;
        match self.commitment {
            Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => {
                let part = self.extract(&targets(keys.iter().copied()), resolver)?;
                Ok(part.entry_proof([])?)
            }
            Commitment::Binary(_) => {
                let keys = sorted(keys.iter().copied());
                self.load_entries(&keys, resolver)?;
                Ok(self.entry_proof(keys)?)
            }
        }
    }

    /// Proves `keys` in a shard, the subtrie at the trie's base, for [`PartialTrie::join_entry_parts`]. Loads absent
    /// subtries. Returns `None` if the commitment is not [`Commitment::Binary`], or if the root of the shard is not a
    /// branch, so that a look-up may end in another shard.
    ///
    /// # Errors
    ///
    /// Returns an error if a key is outside the shard or loading fails.
    pub fn prove_entry_part<R: Resolve>(
        &mut self,
        keys: &[B256],
        resolver: &mut R,
    ) -> Result<Option<ProofPart>, UpdateError<R::Error>> {
        let Commitment::Binary(hasher) = self.commitment else {
            return Ok(None);
        };
        if self.kind(self.root) != Some(NodeKind::Branch) {
            return Ok(None);
        }
        let keys = sorted(keys.iter().copied());
        self.load_entries(&keys, resolver)?;
        let part = ProofPart::of(self, hasher, &keys);
        Ok(Some(part.map_err(no_node)?))
    }

    /// Joins the proofs of shards to one of the whole trie, whose top levels these are. `parts` are in
    /// the order of the shards: one for each that has some of `keys`. It proves what
    /// [`PartialTrie::prove_entries`] does for the same keys.
    ///
    /// # Errors
    ///
    /// Returns an error if the commitment is not [`Commitment::Binary`], or a part is missing.
    pub fn join_entry_parts(
        &self,
        keys: &[B256],
        parts: Vec<ProofPart>,
    ) -> Result<EntryProof, TrieError> {
        let Commitment::Binary(hasher) = self.commitment else {
            return Err(TrieError::NoNode { path: self.base });
        };
        let keys = sorted(keys.iter().copied());
        let proof = BinaryProof::join(self, hasher, &keys, parts);
        Ok(EntryProof::Binary(proof.map_err(no_node)?))
    }

    /// Proves the entries from `first` to `last`, both included, `limit` of them at most, and that
    /// there are no others. Loads absent subtries. [`verify_entry_range`](crate::verify_entry_range)
    /// verifies the proof.
    ///
    /// # Errors
    ///
    /// Returns an error if `last` is before `first`, if the trie is not based at the empty path or loading
    /// fails.
    pub fn prove_entry_range<R: Resolve>(
        &mut self,
        first: B256,
        last: B256,
        limit: NonZeroUsize,
        resolver: &mut R,
    ) -> Result<ProvedRange, UpdateError<R::Error>> {
        self.check_base()?;
        let asked = LeafRange::accounts(first, last);
        let part = self.extract_range(&asked, limit, resolver)?;
        let leaves = part.trie.leaves(&part.range);
        let leaves = leaves.map_err(|missing| TrieError::NoNode { path: missing.path })?;
        let ends = [part.range.first, part.range.last];
        let keys = ends
            .into_iter()
            .chain(leaves.into_iter().map(|(key, _)| key));
        Ok(ProvedRange {
            proof: part.trie.entry_proof(keys)?,
            first,
            last: part.range.last,
            next: part.next,
        })
    }

    /// Proves what the leaves of `reads` commit to, and what is needed to compute the root after `writes`,
    /// which are sorted and unique. Loads absent subtries.
    /// [`verify_entry_update`](crate::verify_entry_update) verifies the proof and computes the root.
    ///
    /// # Errors
    ///
    /// Returns an error if `writes` cannot be applied, if the trie is not based at the empty path or
    /// loading fails.
    pub fn prove_entry_update<R: Resolve>(
        &mut self,
        reads: &[B256],
        writes: &[AccountDiff],
        resolver: &mut R,
    ) -> Result<EntryProof, UpdateError<R::Error>> {
        let keys = reads.iter().copied();
        match self.commitment {
            Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => {
                self.check_base()?;
                let part = self.extract_for_changes(&targets(keys), writes, resolver)?;
                Ok(part.entry_proof([])?)
            }
            Commitment::Binary(_) => {
                let keys = keys.chain(writes.iter().map(|write| write.path));
                self.prove_entries(&keys.collect::<Vec<_>>(), resolver)
            }
        }
    }

    /// Proves entries from an extracted part. Under [`Commitment::Mpt`] all of its nodes are the proof.
    fn entry_proof(&self, keys: impl IntoIterator<Item = B256>) -> Result<EntryProof, TrieError> {
        let Commitment::Binary(hasher) = self.commitment else {
            return Ok(EntryProof::Mpt(MultiProof {
                nodes: self.witness_nodes(),
            }));
        };
        let proof = BinaryProof::of(self, hasher, &sorted(keys));
        Ok(EntryProof::Binary(proof.map_err(no_node)?))
    }

    /// A proof begins at the root of the whole trie.
    fn check_base(&self) -> Result<(), TrieError> {
        match self.base.is_empty() {
            true => Ok(()),
            false => Err(TrieError::Outside {
                path: Path::EMPTY,
                under: Box::new(self.base),
            }),
        }
    }
}

fn no_node(missing: Missing) -> TrieError {
    TrieError::NoNode { path: missing.path }
}

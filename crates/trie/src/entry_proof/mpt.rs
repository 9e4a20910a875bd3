//! Entries from the nodes of a Merkle Patricia trie.

use super::error::EntryProofError;
use crate::{
    commitment::Commitment,
    error::{Missing, UpdateError},
    extract::ProofTargets,
    graft::LeafValue,
    hash::commit,
    multiproof::{MultiProof, MultiProofError},
    partial::{Lookup, PartialTrie},
    range::LeafRange,
    resolve::NoResolve,
    rlp::stored_nowhere,
    value_commitment::ValueCommitment,
};
use alloc::{vec, vec::Vec};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};

/// The trie of a proof's nodes.
pub(super) struct Nodes<'a> {
    proof: &'a MultiProof,
    trie: PartialTrie,
}

/// Proof targets of entries.
pub(super) fn targets(keys: impl IntoIterator<Item = B256>) -> ProofTargets {
    ProofTargets::new(keys.into_iter().map(|key| (key, vec![])).collect())
}

impl<'a> Nodes<'a> {
    pub(super) fn new(root: B256, proof: &'a MultiProof) -> Result<Self, MultiProofError> {
        let (trie, surplus) = PartialTrie::from_entry_witness(root, &proof.nodes)?;
        match surplus {
            0 => Ok(Self { proof, trie }),
            surplus => Err(MultiProofError::Surplus { surplus }),
        }
    }

    pub(super) fn read(
        &self,
        keys: &[B256],
    ) -> Result<Vec<Option<ValueCommitment>>, MultiProofError> {
        let read = |key| {
            let path = Path::account(key);
            match self.trie.lookup(&path) {
                Lookup::Stub { depth, .. } => Err(MultiProofError::Incomplete { path, depth }),
                Lookup::Entry(value) => Ok(Some(commitment_to(&value))),
                _ => Ok(None),
            }
        };
        keys.iter().map(read).collect()
    }

    /// Returns an error if the proof has nodes that are not in `needed`.
    pub(super) fn check_needed(&self, needed: &PartialTrie) -> Result<(), MultiProofError> {
        match self.proof.nodes.len() - needed.witness_nodes().len() {
            0 => Ok(()),
            surplus => Err(MultiProofError::Surplus { surplus }),
        }
    }

    /// Returns an error if the proof has nodes that reading `keys` does not need.
    pub(super) fn check_keys(mut self, keys: &[B256]) -> Result<(), EntryProofError> {
        let keys = targets(keys.iter().copied());
        let needed = self.trie.extract(&keys, &mut NoResolve).map_err(refused)?;
        Ok(self.check_needed(&needed)?)
    }

    /// Returns the entries of a range, of which the proof leaves out none.
    pub(super) fn read_range(
        &self,
        range: &LeafRange,
    ) -> Result<Vec<(B256, ValueCommitment)>, MultiProofError> {
        let leaves = self.trie.leaves(range).map_err(incomplete)?;
        let entries = leaves.into_iter().filter_map(|(key, value)| match value {
            LeafValue::Entry(value) => Some((key, commitment_to(&value))),
            _ => None,
        });
        Ok(entries.collect())
    }

    /// Returns the root after writes. Refuses nodes that reading `keys` and the writes do not need.
    pub(super) fn update(
        mut self,
        keys: &[B256],
        writes: &[(B256, Option<ValueCommitment>)],
    ) -> Result<B256, EntryProofError> {
        let changes: Vec<_> = writes.iter().map(change).collect();
        let keys = targets(keys.iter().copied());
        let needed = self
            .trie
            .extract_for_changes(&keys, &changes, &mut NoResolve)
            .map_err(refused)?;
        self.check_needed(&needed)?;
        self.trie.apply(&changes, &mut NoResolve).map_err(refused)?;
        commit(&mut [&mut self.trie], &mut Batch::new());
        Ok(self.trie.state_root().expect("the trie is hashed"))
    }
}

fn commitment_to(value: &EntryValue) -> ValueCommitment {
    ValueCommitment::of_entry(Commitment::Mpt, value)
}

fn change((key, value): &(B256, Option<ValueCommitment>)) -> AccountDiff {
    let account = match value {
        None => AccountUpdate::Delete,
        Some(ValueCommitment::Value(bytes)) => {
            AccountUpdate::Entry(EntryValue::Inline(bytes.clone()))
        }
        Some(ValueCommitment::Hashed { len, hash }) => {
            AccountUpdate::Entry(stored_nowhere(*len, *hash))
        }
        Some(ValueCommitment::Hash(_)) => unreachable!("writes are checked before"),
    };
    AccountDiff {
        path: *key,
        wipe: account == AccountUpdate::Delete,
        account,
        slots: vec![],
    }
}

fn incomplete(missing: Missing) -> MultiProofError {
    MultiProofError::Incomplete {
        path: missing.path,
        depth: missing.path.len(),
    }
}

fn refused(error: UpdateError<Missing>) -> EntryProofError {
    match error {
        UpdateError::Resolve(missing) => EntryProofError::Mpt(incomplete(missing)),
        UpdateError::Trie(error) => EntryProofError::Trie(error),
    }
}
